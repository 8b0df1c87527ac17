"""What really happens to one event under three faults, for every subject alike, with real processes.

The downstream counts every call, never refuses one, and can be asked what a key owns. So a peer is as good
as what it does with that; it is given its best settings. The driver only kills, stops, and delivers again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final

from lab.bench.peers.environments import NotInstalled
from lab.bench.peers.line import NoAnswer, PeerFailed, PeerProcess
from lab.bench.peers.roster import Peer, Variant
from lab.bench.peers.scripts.stand import key_of, make_event
from lab.bench.peers.servers import address_for
from oncegate.clock import SystemClock
from oncegate.testing.postgres import PostgresServer

LEASE_S: Final = 2.0
LAPSE_S: Final = 2 * LEASE_S  # how long a worker is stopped before another one comes
PATIENCE_S: Final = 20.0  # how long redeliveries go on
PATIENCE_QUICK_S: Final = 8.0
PAUSE_S: Final = 0.5
AT_ONCE: Final = 6  # subjects at a time: they mostly wait for leases
EVENT: Final = make_event(1, "fault")


class Judgement(Enum):
    """What a cell is worth."""

    RIGHT = "right"
    HELD = "held"  # no second effect, but nobody finishes it, though the downstream could have been asked
    WRONG = "wrong"
    FAILED = "could not be run"


@dataclass(frozen=True, slots=True)
class Cell:
    """What happened to one event."""

    judgement: Judgement
    effects: int = 0
    rows: int = 0
    said: str = ""

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "judgement": self.judgement.value}


class Stage:
    """One ledger, one downstream with its book, one event."""

    def __init__(
        self, peer: Peer, variant: Variant, address: str, folder: Path, patience_s: float = PATIENCE_S
    ) -> None:
        self._patience_s = patience_s
        self._peer, self._variant, self._address, self._folder = peer, variant, address, folder
        self._clock = SystemClock()
        self._book = folder / "effects.txt"

    def worker(self, moment: str = "", fault: str = "") -> PeerProcess:
        """A process that may be struck at a moment."""
        process = PeerProcess(self._peer)
        try:
            process.ask(
                "open",
                store=self._variant.store,
                url=self._address,
                folder=str(self._folder),
                lease_s=LEASE_S,
                effects=str(self._book),
                moment=moment,
                fault=fault,
            )
        except PeerFailed:
            process.close()
            raise
        return process

    def effects(self) -> int:
        """How many effects the downstream has seen."""
        return len(self._book.read_text("utf-8").splitlines()) if self._book.exists() else 0

    def redeliver(self, process: PeerProcess) -> dict[str, Any]:
        """Delivers the event again and again, as a queue would, until it is settled or patience ends."""
        ends_at = self._clock.ticks_ms() + int(self._patience_s * 1000)
        while True:
            found = self._deliver(process)
            if "outcome" in found or self._clock.ticks_ms() >= ends_at:
                return found
            self._clock.pause(PAUSE_S)

    def _deliver(self, process: PeerProcess) -> dict[str, Any]:
        try:
            return process.ask("deliver", self._patience_s, event=EVENT)
        except NoAnswer as waiting:
            return {"refused": str(waiting)}

    def let_lease_lapse(self) -> None:
        """The fault itself takes this long: a worker sleeps past its lease."""
        self._clock.pause(LAPSE_S)


def killed(stage: Stage) -> Cell:
    """kill -9 between effect and record, then redelivery."""
    with stage.worker("after call", "kill") as first:
        first.send({"do": "deliver", "event": EVENT})
        first.wait_for_end()
    with stage.worker() as second:
        said = stage.redeliver(second)
        rows = second.ask("rows", key=key_of(EVENT))["rows"]
    return _judged(stage, rows, said)


def stalled_before(stage: Stage) -> Cell:
    """A worker sleeps past its lease before its call; another one takes over; the first one wakes."""
    return _stalled(stage, "before call")


def stalled_after(stage: Stage) -> Cell:
    """A worker sleeps past its lease after its call; another one takes over; the first one wakes."""
    return _stalled(stage, "after call")


def stalled_inside(stage: Stage) -> Cell:
    """The same, with its request on the way out: only a downstream that honours keys can refuse it."""
    return _stalled(stage, "in call")


def _stalled(stage: Stage, moment: str) -> Cell:
    with stage.worker(moment, "stall") as first:
        first.send({"do": "deliver", "event": EVENT})
        if "stalled" not in first.answer():
            raise PeerFailed(f"the worker did not come to the moment {moment!r}")
        first.stop()
        stage.let_lease_lapse()
        with stage.worker() as second:
            said = stage.redeliver(second)
            first.go_on()
            first.send({})
            woken = first.answer()
            rows = second.ask("rows", key=key_of(EVENT))["rows"]
    cell = _judged(stage, rows, said)
    return replace(cell, said=f"{cell.said}; woken worker: {_in_words(woken)}"[:300])


def changed(stage: Stage) -> Cell:
    """Another payload under the key of a settled event."""
    with stage.worker() as process:
        first = process.ask("deliver", event=EVENT)
        if "outcome" not in first:
            raise PeerFailed(f"the first event was not settled: {_in_words(first)}")
        again = process.ask("deliver", event=EVENT)
        second = process.ask("deliver", event={**EVENT, "remarks": "other"})
        rows = process.ask("rows", key=key_of(EVENT))["rows"]
    effects = stage.effects()
    # One that refuses the unchanged event as well has not noticed anything.
    right = effects == 1 and rows == 1 and "refused" in second and "outcome" in again
    said = f"unchanged: {_in_words(again)}; changed: {_in_words(second)}"
    return Cell(Judgement.RIGHT if right else Judgement.WRONG, effects, rows, said[:300])


def _judged(stage: Stage, rows: int, said: dict[str, Any]) -> Cell:
    effects = stage.effects()
    if effects != 1 or rows > 1:
        judgement = Judgement.WRONG
    elif "outcome" in said and rows == 1:
        judgement = Judgement.RIGHT
    else:
        judgement = Judgement.HELD
    return Cell(judgement, effects, rows, _in_words(said))


def _in_words(said: dict[str, Any]) -> str:
    if "refused" in said:
        return f"refused: {said['refused']}"
    return "ran" if said.get("ran") else "gave the recorded outcome"


SCENES: Final[dict[str, Callable[[Stage], Cell]]] = {
    "killed between effect and record": killed,
    "other payload, same key": changed,
    "zombie, asleep before its call": stalled_before,
    "zombie, asleep after its call": stalled_after,
}
# Shown beside the others and not judged: no gate can call a request back.
SHOWN: Final[dict[str, Callable[[Stage], Cell]]] = {"zombie, asleep inside its call": stalled_inside}


@dataclass(frozen=True, slots=True)
class Scenes:
    """Every scene for every subject, some at a time: nothing is timed here."""

    postgres: PostgresServer | None
    talk: Callable[[str], None]
    quick: bool = False  # less patience, and only what is judged

    def run(self, subjects: list[tuple[Peer, Variant]]) -> list[dict[str, Any]]:
        """One row a subject."""
        with ThreadPoolExecutor(AT_ONCE) as threads:
            return list(threads.map(lambda subject: self._row(*subject), subjects))

    def _row(self, peer: Peer, variant: Variant) -> dict[str, Any]:
        cells = {name: self._cell(scene, peer, variant) for name, scene in SCENES.items()}
        beside = {} if self.quick else SHOWN
        shown = {name: self._cell(scene, peer, variant).as_json() for name, scene in beside.items()}
        words = ", ".join(cell.judgement.value for cell in cells.values())
        self.talk(f"{peer.name} on {variant.store}: {words}")
        named = {"name": peer.name, "version": peer.version, "store": variant.store}
        return {**named, "cells": {name: cell.as_json() for name, cell in cells.items()}, "shown": shown}

    def _cell(self, scene: Callable[[Stage], Cell], peer: Peer, variant: Variant) -> Cell:
        patience = PATIENCE_QUICK_S if self.quick else PATIENCE_S
        with tempfile.TemporaryDirectory(prefix="oncegate-bench-", ignore_cleanup_errors=True) as name:
            try:
                with address_for(peer, variant, Path(name), self.postgres, hurried=True) as address:
                    return scene(Stage(peer, variant, address, Path(name), patience))
            except (NotInstalled, PeerFailed) as reason:
                return Cell(Judgement.FAILED, said=str(reason)[:300])
