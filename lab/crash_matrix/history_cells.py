"""The crash matrix of the journal, of snapshots and of roll-backs: workers struck at each of their points.

A cell is a point, a ledger, what happens there and how often. A worker seals the log, takes a snapshot and
applies an approved plan, in a process of its own. Afterwards the world goes on without faults. Then the
journal verifies against its published head, every snapshot verifies, and each line was compensated once.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from lab import ROOT
from lab.crash_matrix.cells import STRIKES_MAX, Cell, Finding, Ledger, Manner, Phase, Times
from lab.crash_matrix.gate_cells import Injected, Raising
from oncegate import Gate
from oncegate.crashpoints import HISTORY_CRASH_POINTS, SEAL_CRASH_POINTS, CrashPoints
from oncegate.errors import OncegateError
from oncegate.journal.keys import PrivateKey, write_private
from oncegate.journal.publishing import HeadFolder
from oncegate.journal.rollback.plans import PlanState
from oncegate.journal.sealer import Sealer
from oncegate.journal.verifying import Verification
from oncegate.testing import ArmedCrashPoints, Forked, SharedClock
from oncegate.testing.spare_ledgers import SpareLedgers
from oncegate.wiring.history import History, history_of

RECORD: Final = ROOT / "lab" / "crash_matrix" / "history-matrix.json"
MARKS: Final = ("<!-- history matrix: begin -->", "<!-- history matrix: end -->")
POINTS: Final = {**SEAL_CRASH_POINTS, **HISTORY_CRASH_POINTS}
ROUTES: Final = 4
ROUNDS: Final = 8
KILLED: Final = -9
LAPSE_SECONDS: Final = 3_600
_TABLES: Final = (
    "CREATE TABLE route (id text PRIMARY KEY, carer text NOT NULL)",
    "CREATE TABLE compensation (id text NOT NULL)",
)


def history_cells() -> Iterator[Cell]:
    """Every cell. Recovery is in it: the worker after a struck one finds what that one left."""
    for point in POINTS:
        for ledger in Ledger:
            for manner in (Manner.KILL, Manner.EXCEPTION):
                for times in Times:
                    yield Cell(point, ledger, manner, times, Phase.NORMAL)


def _read(tx: Any, route: str) -> dict[str, Any] | None:
    rows = tx.execute("SELECT carer FROM route WHERE id = ?", (route,))
    return {"carer": rows[0][0]} if rows else None


def _set_back(tx: Any, route: str, value: dict[str, Any] | None) -> None:
    tx.execute("INSERT INTO compensation (id) VALUES (?)", (route,))
    tx.execute("DELETE FROM route WHERE id = ?", (route,))


def _add(tx: Any, route: str) -> None:
    tx.execute("INSERT INTO route (id, carer) VALUES (?, 'anna')", (route,))


class Scene:
    """One ledger with an approved plan, a folder for heads and snapshots, and workers that are struck."""

    def __init__(self, cell: Cell, url: str, folder: Path) -> None:
        self.cell, self._url, self._folder = cell, url, folder
        self.clock, self.found = SharedClock(), Finding(tries=1)
        write_private(folder / "key", PrivateKey("matrix", b"k" * 32))
        with closing(self._gate(CrashPoints(), is_new=True)) as gate:
            history = history_of(gate)
            self._visit(gate, "r")
            asyncio.run(history.taker().take())
            self._visit(gate, "x")
            plan, lines = asyncio.run(history.planner().make(history.taker().archive.manifest(1), "anna"))
            book = history.rollback().book
            book.propose(plan, lines)
            book.approve(plan.name, plan.digest, "anna", "doubled")
            self._plan = plan.name

    def _gate(self, points: CrashPoints, *, is_new: bool = False) -> Gate:
        gate = Gate(self._url, clock=self.clock, crashpoints=points)
        if is_new:
            gate.engine.store.connect().close()
            for sql in _TABLES:
                self._sql(gate, sql)
        gate.snapshots(f"file://{self._folder}/snapshots", signed_by=f"file:{self._folder}/key")
        gate.belief("routes")(lambda: self._routes(gate))
        add = gate.mutation("route.add", read=_read, compensate=_set_back, belief="routes")(_add)

        @gate.handler("visits", key="{id}")
        def visit(event: dict[str, Any], once: Any) -> None:
            with once.commit() as tx:
                add(tx, event["id"])

        return gate

    def _sql(self, gate: Gate, sql: str) -> list[tuple[Any, ...]]:
        with closing(gate.engine.store.connect()) as session, session.unit():
            return session.execute(sql, ())

    def _routes(self, gate: Gate) -> list[tuple[str, dict[str, Any]]]:
        rows = self._sql(gate, "SELECT id, carer FROM route ORDER BY id")
        return [(route, {"carer": carer}) for route, carer in rows]

    def _visit(self, gate: Gate, prefix: str) -> None:
        for number in range(ROUTES):
            gate.admit_sync("visits", {"id": f"{prefix}{number}"})

    # --- workers ---

    def _worker(self, points: CrashPoints, rounds: int) -> Forked:
        def work() -> dict[str, Any]:
            logging.disable(logging.CRITICAL)  # it tells of every error that is injected
            told: list[str] = []
            with closing(self._gate(points)) as gate:
                history = history_of(gate)
                for _ in range(rounds):
                    told += [name for one in self._jobs(gate, history) if (name := _failure(one))]
                    self.clock.advance(LAPSE_SECONDS)
            return {"told": told, "reached": getattr(points, "reached", {}).get(self.cell.point, 0)}

        return Forked(work)

    def _jobs(self, gate: Gate, history: History) -> list[Callable[[], object]]:
        key, heads = PrivateKey("matrix", b"k" * 32), HeadFolder(self._folder / "heads")
        engine = gate.engine
        sealer = Sealer(
            engine.store, self.clock, [key], destinations=[heads], batch_records=5,
            crashpoints=engine.crashpoints,
        )  # fmt: skip
        return [
            lambda: sealer.run_once(at_once=True),
            lambda: asyncio.run(history.taker().take()),
            lambda: asyncio.run(history.rollback().run_once()),
        ]

    def play(self) -> Finding:
        """Strikes, lets all settle, checks."""
        turns = STRIKES_MAX if self.cell.times is Times.REPEATEDLY else 1
        if self.cell.manner is Manner.KILL:
            for _ in range(turns):
                with self._worker(ArmedCrashPoints(self.cell.point), 1) as worker:
                    assert worker.wait(60) == KILLED, f"{self.cell}: it was not killed"
                self.found.strikes += 1
                self.found.told["killed"] += 1
                self.clock.advance(LAPSE_SECONDS)
        else:
            with self._worker(Raising(self.cell.point, turns), ROUNDS) as worker:
                answer, code = worker.answer(60), worker.wait(60)
            assert code == 0, f"{self.cell}: {code}"
            self.found.strikes += min(answer["reached"], turns)
            self.found.told.update(answer["told"])
        with self._worker(CrashPoints(), ROUNDS) as last:
            assert last.wait(60) == 0
        self._check()
        return self.found

    def _check(self) -> None:
        with closing(self._gate(CrashPoints())) as gate:
            history, key = history_of(gate), PrivateKey("matrix", b"k" * 32)
            newest = HeadFolder(self._folder / "heads").newest()
            assert newest is not None
            with gate.engine.store.look() as session:
                report = Verification(session, trusted=[key.verifier], heads=[("outside", newest[1])]).run()
                plan = history.rollback().book.read(session, self._plan)
            assert report.is_intact, f"{self.cell}: {report.findings}"
            numbers = [one.manifest.number for one in history.taker().archive.verify()]
            assert numbers == [*range(1, len(numbers) + 1)], f"{self.cell}: {numbers}"
            done = (plan.state, plan.progress.done, plan.progress.differing)
            assert done == (PlanState.APPLIED, ROUTES, 0), f"{self.cell}: {plan}"
            calls = sorted(one for (one,) in self._sql(gate, "SELECT id FROM compensation"))
            assert calls == [f"x{number}" for number in range(ROUTES)], f"{self.cell}: {calls}"
            assert [one for one, _ in self._routes(gate)] == [f"r{number}" for number in range(ROUTES)]
        self.found.ends["as planned"] += 1


def _failure(job: Callable[[], object]) -> str:
    try:
        job()
    except (OncegateError, Injected) as error:
        return type(error).__name__
    return ""


def play_history(
    folder: Path, ledgers: SpareLedgers, record: dict[str, dict[str, Any]], talk: Callable[[str], object]
) -> list[str]:
    """Plays every cell that the record has not got, and keeps what was found; returns what failed."""
    failed = []
    for number, cell in enumerate(history_cells()):
        if str(cell) in record:
            continue
        place = folder / f"history-{number}"
        place.mkdir()
        is_local = cell.ledger is Ledger.SQLITE
        url = f"sqlite:///{place}/ledger.db" if is_local else ledgers.take()
        try:
            record[str(cell)] = Scene(cell, url, place).play().as_json()
        except AssertionError as error:
            failed.append(f"{cell}: {error}")
        if not is_local:
            ledgers.give_back(url)
        RECORD.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
        talk(f"{cell}: {record.get(str(cell), 'FAILED')}\n")
    return failed


def rendered(record: dict[str, dict[str, Any]]) -> str:
    """The table: strikes once, and repeatedly."""
    columns = [(ledger, manner) for ledger in Ledger for manner in (Manner.KILL, Manner.EXCEPTION)]
    rows = [["point", *(f"{ledger.value}, {manner.value}" for ledger, manner in columns)]]
    rows.append(["---"] * (len(columns) + 1))
    for point in POINTS:
        found = [
            [record[str(Cell(point, ledger, manner, times, Phase.NORMAL))]["strikes"] for times in Times]
            for ledger, manner in columns
        ]
        rows.append([f"`{point}`", *(" + ".join(map(str, pair)) for pair in found)])
    return "\n".join(["", *(f"| {' | '.join(row)} |" for row in rows), "", ""])


def read_record() -> dict[str, dict[str, Any]]:
    """What was found when the cells were last played."""
    return json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}
