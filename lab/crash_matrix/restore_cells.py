"""Plays a cell of the crash matrix with a ledger that goes back under a process that remembers (I23).

A process has settled events; its ledger is restored to before them; the process is struck where it writes
down what was lost. One handler cannot be asked, so that its event waits for a person; the downstream of the
other one honours the key. In recovery the events were left by a worker that was killed, and settled by the
worker that is struck. Judged is what was called, what the ledger says, and what another delivery is
told.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast
from urllib.parse import urlsplit, urlunsplit

import psycopg

from lab.crash_matrix.cells import STRIKES_MAX, Cell, Finding, Manner, Phase, Times
from lab.crash_matrix.gate_cells import WAIT_SECONDS, Injected, Losing, Raising
from lab.crash_matrix.losses import Loss, Losses
from oncegate import Gate, Once
from oncegate.crashpoints import CrashPoints
from oncegate.errors import OncegateError
from oncegate.gate.admission import Verdict
from oncegate.gate.flows.restore import Restorer
from oncegate.maintenance.reconciler import Reconciler
from oncegate.store import ClaimSession, Session, Store
from oncegate.store.incarnations import WENT_BACK, IncarnationChange
from oncegate.stores.postgres import PostgresStore
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing import ArmedCrashPoints, Forked, SharedClock
from oncegate.testing.forking import run_forked, stop_this_process
from oncegate.testing.postgres import create_database, drop_database
from tests.stores.test_replaced_files import copied, moved

KILLED = -9
LAPSE_SECONDS = 3_600.0
TRIES = STRIKES_MAX + 2


class Restorable(Protocol):
    """A ledger of which a copy can be kept, and put in its place."""

    def store(self, clock: SharedClock) -> Store:
        """The ledger."""

    def keep(self) -> None:
        """Keeps a copy; nobody has the ledger open."""

    def go_back(self) -> None:
        """Puts the copy in the ledger's place, whoever has it open."""


class RestorableFile:
    """A file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def store(self, clock: SharedClock) -> Store:
        return SqliteStore(self._path, clock=clock)

    def keep(self) -> None:
        copied(self._path)

    def go_back(self) -> None:
        moved(self._path.with_name("copy.db"), self._path)


class RestorableDatabase:
    """A database of a server."""

    def __init__(self, url: str) -> None:
        self.url = url
        parts = urlsplit(url)
        self._name = parts.path[1:]
        self._server = urlunsplit(parts._replace(path="/postgres"))

    def store(self, clock: SharedClock) -> Store:
        return PostgresStore(self.url, clock=clock)

    def keep(self) -> None:
        create_database(self._server, f"{self._name}_kept", self._name)

    def go_back(self) -> None:
        drop_database(self._server, self._name)
        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(f'ALTER DATABASE "{self._name}_kept" RENAME TO "{self._name}"'.encode())


@dataclass(slots=True)
class RestoreCells:
    """Plays cells, each trial on a ledger of its own."""

    make_ledger: Callable[[Path], Restorable]
    folder: Path
    _numbers: Any = field(default_factory=itertools.count)

    def play(self, cell: Cell) -> Finding:
        """Plays a cell; raises AssertionError if a promise broke."""
        found = Finding()
        losses = (Loss.DONE, Loss.UNDONE) if cell.manner is Manner.UNKNOWN else (None,)
        for loss in losses:
            for _ in range(_trials(cell)):
                place = self.folder / f"restored-{cell.ledger.name}-{os.getpid()}-{next(self._numbers)}"
                place.mkdir()
                found.add(Restoration(cell, loss, self.make_ledger(place), place).play())
        return found


def _trials(cell: Cell) -> int:
    """A process that is killed or stands still passes the point once: others are struck instead."""
    passes_once = cell.manner in (Manner.KILL, Manner.STALL)
    return STRIKES_MAX if passes_once and cell.times is Times.REPEATEDLY else 1


class Restoration:
    """One ledger that goes back, once, and the process that remembers what it had."""

    def __init__(self, cell: Cell, loss: Loss | None, ledger: Restorable, place: Path) -> None:
        self.cell, self.loss, self.ledger = cell, loss, ledger
        self.clock, self.losses = SharedClock(), Losses()
        self.calls = place / "calls"
        self.calls.touch()
        self.found = Finding(tries=1)

    def play(self) -> Finding:
        """Strikes, lets all settle, checks."""
        self._run(lambda: self._admit(self._gate(), "mail", "kept"))
        self.ledger.keep()
        if self.cell.phase is Phase.RECOVERY:
            with self._worker(lambda: self._leave(ArmedCrashPoints("effect.after"))) as first:
                assert first.wait(WAIT_SECONDS) == KILLED
            self.clock.advance(LAPSE_SECONDS)
        with self._worker(lambda: self._remember_and_meet(self._points())) as worker:
            ran_meanwhile = self.cell.manner is Manner.STALL and self._go_on_meanwhile(worker)
            answer, code = worker.answer(WAIT_SECONDS), worker.wait(WAIT_SECONDS)
        self._note(answer, code)
        self.clock.advance(LAPSE_SECONDS)
        self._check(self._run(self._look), ran_meanwhile=ran_meanwhile)
        return self.found

    # --- processes ---

    def _gate(self, points: CrashPoints | None = None) -> Gate:
        logging.getLogger("oncegate").setLevel(logging.CRITICAL + 1)
        store = self.losses.wrap(self.ledger.store(self.clock))
        gate = Gate(store=store, clock=self.clock, crashpoints=points)
        bank = gate.downstream("bank", honours_key="1d")

        @gate.handler("mail", key="{id}")
        def send(event: dict[str, str]) -> str:
            self._called(f"mail {event['id']}")
            return "sent"

        @gate.handler("charge", key="{id}")
        def charge(event: dict[str, str], once: Once) -> str:
            return once.effect(bank, pay, event["id"], name="pay")

        def pay(number: str, *, idempotency_key: str) -> str:
            self._called(f"charge {number} {idempotency_key}")
            return f"charged {number}"

        return gate

    def _called(self, what: str) -> None:
        with self.calls.open("a") as file:
            file.write(f"{what}\n")

    def _admit(self, gate: Gate, surface: str, number: str) -> str:
        return str(gate.admit_sync(surface, {"id": number}).verdict.value)

    def _leave(self, points: CrashPoints) -> None:
        self._admit(self._gate(points), "charge", "lost")

    def _remember_and_meet(self, points: CrashPoints) -> dict[str, Any]:
        """Settles events, loses their ledger, and goes on until an event gets through."""
        self._lose_in_restoring()
        gate = self._gate(points)
        if self.cell.phase is Phase.RECOVERY:
            Reconciler(gate, at_once=True).run_once()
        else:
            self._admit(gate, "mail", "lost")
            self._admit(gate, "charge", "lost")
        self.ledger.go_back()
        told: Counter[str] = Counter()
        for _ in range(TRIES):
            try:
                told[self._admit(gate, "mail", "next")] += 1
                break
            except (OncegateError, Injected) as error:
                told[type(error).__name__] += 1
        reached = getattr(points, "reached", {}).get(self.cell.point, 0)
        return {"told": dict(told), "struck": min(reached, self._times)}

    def _lose_in_restoring(self) -> None:
        """Commits of the restoring itself get lost too; in this process alone."""
        restore, losses = Restorer.restore, self.losses

        def losing(self: Restorer, session: ClaimSession, change: IncarnationChange) -> None:
            restore(self, losses.over(cast("Session", session)), change)

        Restorer.restore = losing  # type: ignore[method-assign]

    @property
    def _times(self) -> int:
        return STRIKES_MAX if self.cell.times is Times.REPEATEDLY else 1

    def _points(self) -> CrashPoints:
        if self.loss is not None:
            return Losing(self.cell.point, self.loss, self.losses, self._times)
        if self.cell.manner is Manner.EXCEPTION:
            return Raising(self.cell.point, self._times)
        if self.cell.manner is Manner.STALL:
            return ArmedCrashPoints(self.cell.point, stop_this_process)
        return ArmedCrashPoints(self.cell.point)

    def _worker(self, work: Callable[[], Any]) -> Forked:
        return Forked(work)

    def _run(self, work: Callable[[], Any]) -> Any:
        code, answer = run_forked(work, WAIT_SECONDS)
        assert code == 0, (str(self.cell), code)
        return answer

    def _go_on_meanwhile(self, worker: Forked) -> bool:
        """Another process is handed the event while the first one stands still; whether it ran there."""
        worker.wait_stopped(WAIT_SECONDS)
        assert worker.is_stopped, (str(self.cell), "nobody stood still")
        self.found.strikes += 1
        surface = "charge" if self.cell.phase is Phase.RECOVERY else "mail"
        verdict = self._run(lambda: self._admit(self._gate(), surface, "lost"))
        worker.resume()
        return bool(verdict == Verdict.RUN.value)

    def _note(self, answer: dict[str, Any] | None, code: int) -> None:
        if code == KILLED:
            self.found.strikes += 1
            self.found.told["killed"] += 1
            return
        assert code == 0, (str(self.cell), code)
        assert answer is not None
        self.found.told.update(answer["told"])
        if self.cell.manner is not Manner.STALL:
            self.found.strikes += answer["struck"]

    # --- the end ---

    def _look(self) -> dict[str, Any]:
        """A new process: another delivery of each event, after recovery, and the incidents."""
        gate = self._gate()
        with contextlib.closing(gate.engine.store.connect()) as session, session.unit():
            bodies = [json.loads(document.body) for document in session.documents(WENT_BACK)]
        Reconciler(gate, at_once=True).run_once()
        events = [("mail", "kept"), ("charge", "lost")]
        events += [] if self.cell.phase is Phase.RECOVERY else [("mail", "lost")]
        told = {f"{surface} {number}": self._admit(gate, surface, number) for surface, number in events}
        return {"told": told, "incidents": bodies}

    def _check(self, seen: dict[str, Any], *, ran_meanwhile: bool) -> None:
        case = (str(self.cell), self.loss, seen, self.calls.read_text())
        calls = self.calls.read_text().splitlines()
        told, incidents = seen["told"], seen["incidents"]
        is_remembered = (self.cell.manner, self.cell.point) != (Manner.KILL, "restore.before")
        assert self.found.strikes, (case, "nothing was struck")
        assert len(incidents) == is_remembered, case
        # What the downstream recognises was done once, by anybody, under one key.
        assert len({one for one in calls if one.startswith("charge")}) == 1, case
        assert told["mail kept"] == Verdict.REPLAY.value, case
        assert calls.count("mail kept") == 1, case
        if self.cell.phase is Phase.RECOVERY:
            assert told["charge lost"] == (Verdict.REPLAY if is_remembered else Verdict.RUN).value, case
            self.found.ends["committed"] += 1
            return
        if is_remembered and not ran_meanwhile:
            assert told["mail lost"] == Verdict.HOLD.value, case
            assert calls.count("mail lost") == 1, case
            self.found.ends["for a person"] += 1
            return
        # Nobody can know: the one process that remembered is dead, or had not written it down yet.
        assert calls.count("mail lost") == 2, case
        named = [one["label"] for incident in incidents for one in incident["ran_again"]]
        assert ("lost" in named) == is_remembered, case
        self.found.ends["ran again"] += 1
