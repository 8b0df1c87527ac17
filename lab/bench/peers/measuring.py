"""Events a second of every subject on the same work: ours and the peers', taking turns round after round.

A subject gets a process, a ledger and a business table of its own each round. Its effects are counted as
well, so that a figure that was reached by running repeats again cannot pass for speed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from lab.bench.peers.environments import NotInstalled, interpreter_of
from lab.bench.peers.line import PeerFailed, PeerProcess
from lab.bench.peers.roster import OURS, Peer, Variant
from lab.bench.peers.scripts.stand import REPEAT_EVERY
from lab.bench.peers.servers import address_for
from oncegate.testing.postgres import PostgresServer

CONCURRENCIES: Final = (1, 16, 64, 256)
STREAMS: Final = ("fresh", "replay", "mixed")
REREAD: Final = "reread"  # replays that the ledger has to be read for; only ours keeps some in memory
OPEN_SECONDS_MAX: Final = 120.0
RUN_SECONDS_MAX: Final = 120.0

Place = tuple[str, int]  # a stream at a concurrency
Report = dict[str, Any]


@dataclass(slots=True)
class Turns:
    """One variant of one peer, and what was seen of it in each round."""

    peer: Peer
    variant: Variant
    found: dict[Place, list[Report]] = field(default_factory=dict)
    missing: str = ""  # why it cannot be measured at all
    trouble: str = ""  # what went wrong in a round; the other rounds count

    def as_json(self) -> dict[str, Any]:
        """Medians and spreads, or why there are none."""
        named = {"name": self.peer.name, "version": self.peer.version, "store": self.variant.store}
        trouble = f"**in one round: {self.trouble}**" if self.trouble else ""
        notes = "; ".join(note for note in (self.variant.note, self.peer.note, trouble) if note)
        noted = {"durability": self.variant.durability, "note": notes}
        cells = [_summed(place, reports) for place, reports in self.found.items()]
        noted["installs"] = ", ".join(self.peer.installs)
        missing = self.missing or ("" if cells else self.trouble)
        return {**named, **noted, "missing": missing, "cells": cells}


@dataclass(slots=True)
class Measuring:
    """What to measure."""

    peers: tuple[Peer, ...]
    postgres: PostgresServer | None
    seconds: float = 1.0
    concurrencies: tuple[int, ...] = CONCURRENCIES
    install: bool = False
    talk: Callable[[str], None] = field(default=lambda line: None)
    turns: list[Turns] = field(default_factory=list)

    def prepare(self) -> None:
        """Makes the environments that are missing, where that was asked for."""
        for peer in (OURS, *self.peers):
            missing = self._why_missing(peer)
            self.turns += [Turns(peer, variant, missing=missing) for variant in self._variants(peer)]

    def _variants(self, peer: Peer) -> Iterator[Variant]:
        for variant in peer.variants:
            if variant.store != "postgres" or self.postgres is not None:
                yield variant

    def _why_missing(self, peer: Peer) -> str:
        try:
            interpreter_of(peer, self.talk, install=self.install)
        except NotInstalled as reason:
            return str(reason)
        return ""

    def take_round(self) -> None:
        """Lets every subject have its turn."""
        for one in self.turns:
            if not one.missing:
                self.talk(f"{one.peer.name} on {one.variant.store}, durability {one.variant.durability}")
                self._take_turn(one)

    def _take_turn(self, one: Turns) -> None:
        with tempfile.TemporaryDirectory(prefix="oncegate-bench-", ignore_cleanup_errors=True) as name:
            try:
                with address_for(one.peer, one.variant, Path(name), self.postgres) as address:
                    self._measure(one, address, name)
            except (NotInstalled, PeerFailed) as reason:
                one.trouble = f"failed: {reason}"[:300]

    def _measure(self, one: Turns, address: str, folder: str) -> None:
        settings = {"store": one.variant.store, "url": address, "folder": folder}
        settings["durability"] = one.variant.durability
        with PeerProcess(one.peer) as process:
            process.ask("open", OPEN_SECONDS_MAX, **settings)
            for tasks in self.concurrencies:
                if tasks <= one.peer.concurrency_max:
                    self._measure_at(one, process, tasks)
        if one.peer is OURS:
            with PeerProcess(one.peer) as process:
                process.ask("open", OPEN_SECONDS_MAX, **settings)
                self._reread(one, process)

    def _ends(self, peer: Peer) -> tuple[int, int]:
        """The lowest and the highest concurrency of a peer: where all streams are measured."""
        own = [tasks for tasks in self.concurrencies if tasks <= peer.concurrency_max]
        return own[0], own[-1]

    def _measure_at(self, one: Turns, process: PeerProcess, tasks: int) -> None:
        settled = 0
        for stream in STREAMS if tasks in self._ends(one.peer) else STREAMS[:1]:
            prefix = f"mixed-{tasks}" if stream == "mixed" else f"run-{tasks}"
            found = self._run(process, stream, prefix, tasks, settled)
            one.found.setdefault((stream, tasks), []).append(found)
            settled = settled or found["events"]

    def _reread(self, one: Turns, process: PeerProcess) -> None:
        for tasks in sorted(set(self._ends(one.peer))):
            settled = one.found["fresh", tasks][-1]["events"]
            found = self._run(process, REREAD, f"run-{tasks}", tasks, settled)
            one.found.setdefault((REREAD, tasks), []).append(found)

    def _run(self, process: PeerProcess, stream: str, prefix: str, tasks: int, settled: int) -> Report:
        words = {"stream": stream, "prefix": prefix, "seconds": self.seconds, "concurrency": tasks}
        found = process.ask("run", RUN_SECONDS_MAX, **words, settled=settled)
        return {**found, "again": found["effects"] - effects_expected(stream, found["events"], tasks)}


def effects_expected(stream: str, events: int, tasks: int) -> int:
    """How many effects a stream may have: one for each key that was not settled before."""
    if stream in ("replay", REREAD):
        return 0
    if stream == "fresh":
        return events
    repeats = sum(1 for number in range(REPEAT_EVERY - 1, events, REPEAT_EVERY) if number > 4 * tasks)
    return events - repeats


def _summed(place: Place, reports: list[Report]) -> dict[str, Any]:
    rates = [report["events"] / report["seconds"] if report["seconds"] else 0.0 for report in reports]
    return {
        "stream": place[0],
        "concurrency": place[1],
        "rate": round(median(rates)),
        "rate_low": round(min(rates)),
        "rate_high": round(max(rates)),
        "p50_ms": round(median(report["p50_ms"] for report in reports), 3),
        "p99_ms": round(median(report["p99_ms"] for report in reports), 3),
        "effects_again": max(report["again"] for report in reports),
    }
