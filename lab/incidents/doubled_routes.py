"""312 home-care routes that are 624 by Wednesday, and the way back to the last good snapshot.

The provider sends Monday's plans once more under new ids, so that no key tells them apart. A planner works
on meanwhile. The arrivals: fixtures/routes-doubled.jsonl.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from lab.incidents.incident import Incident, Numbers, Place
from oncegate import Gate
from oncegate.journal.keys import PrivateKey, write_private
from oncegate.journal.rollback.plans import PlanState, RollbackPlan
from oncegate.journal.snapshots.suspicion import suspicions
from oncegate.journal.snapshots.timeline import read_timeline
from oncegate.recorder.planning import make_plan
from oncegate.recorder.reading import began_ms
from oncegate.testing import ManualClock
from oncegate.wiring.history import history_of

ROUTES: Final = 312
SURFACE: Final = "care.routes"
EVERY: Final = timedelta(minutes=15)
WEDNESDAY_MS: Final = 50 * 3_600_000  # after the recording began: the planner sees it
TABLE: Final = "CREATE TABLE route (id text PRIMARY KEY, name text, plan text, day text, carer text)"
FIELDS: Final = ("id", "name", "plan", "day", "carer")
INSERT: Final = "INSERT INTO route (id, name, plan, day, carer) VALUES (?, ?, ?, ?, ?)"
# What the planner really changes on Tuesday: three carers, one route of their own, one copy moved.
BY_HAND: Final = (
    *(
        (f"UPDATE route SET carer = 'eva' WHERE id = 'hc-0{number}/r-0{number}-01'", ())
        for number in (1, 2, 4)
    ),
    (INSERT, ("own-1", "own-1", "p-own", "friday", "eva")),
    ("UPDATE route SET day = 'thursday', carer = 'eva' WHERE id = 'hc-05-again/r-05-02'", ()),
)
CHANGES: Final = len(BY_HAND)
WANTED: Final = [f"r-{plan:02d}-{route:02d}" for plan in range(1, 25) for route in range(1, 14)]
SNAPSHOT_EACH: Final = 6  # arrivals
PLANNER_WORKS_AFTER: Final = 40  # arrivals
_EVAS: Final = "SELECT count(*) FROM route WHERE carer = 'eva'"


class DoubledRoutes(Incident):
    """312 routes are 624 by Wednesday, and a backup would take the planner's own work away.

    A provider sends Monday's plans again under new ids, one an hour, and nothing tells them from new ones.
    The planner works on: three carers, one route of their own, one copy that is wanted on another day. A
    backup of Monday night takes all of that away, and forgets keys, so that six plans that are sent once
    more make routes again. With the gate the snapshot before the first double is named; the plan proposes
    the doubled routes, marks the one that a person changed, and leaves alone what no event did. Each
    compensation is counted. What is sent once more stays a replay.
    """

    name = "routes-doubled"
    needs_postgres = True

    def naive(self) -> dict[str, Callable[[Place], Numbers]]:
        """Monday's backup, restored on Wednesday."""
        return {"Monday's backup": self._restored}

    def _restored(self, place: Place) -> Numbers:
        """Routes and keys are those of Monday night; then six plans come once more."""
        monday = [
            one for one in self._events() if one[0] < WEDNESDAY_MS and "again" not in one[1]["event_id"]
        ]
        late = [event for at_ms, event in self._events() if at_ms >= WEDNESDAY_MS]
        names = [name for _, event in monday for name in event["routes"]]
        names += [name for event in late for name in event["routes"]]  # the backup knows none of their keys
        return _judged(Counter(names), kept=0) | {"routes at the end": len(names)}

    def _events(self) -> list[tuple[int, dict[str, Any]]]:
        return [(one.at_ms, one.payload) for one in make_plan(self.recording)]

    def gated(self, place: Place) -> Numbers:
        """On both SQL ledgers, with the same numbers."""
        assert place.new_server is not None
        found = self._rolled_back(f"sqlite:///{place.folder / 'ledger.db'}", place.folder / "sqlite")
        with place.new_server() as server:
            other = self._rolled_back(server.new_database(), place.folder / "postgres")
        if found != other:
            raise AssertionError(f"SQLite came to {found}, PostgreSQL to {other}")
        return found

    def _rolled_back(self, url: str, folder: Path) -> Numbers:
        folder.mkdir()
        with closing(CareService(url, folder, began_ms(self.recording))) as care:
            events = self._events()
            care.week([one for one in events if one[0] < WEDNESDAY_MS])
            numbers = {"routes on Wednesday": len(care.rows()), **care.first_wrong()}
            plan = care.back_to(numbers["last good snapshot"])
            numbers |= {
                "lines proposed": plan.lines,
                "left to a person": plan.conflicts,
                "left alone": plan.left_alone,
                "compensations": care.compensations,
            }
            replays = sum(care.arrives(event) for at_ms, event in events if at_ms >= WEDNESDAY_MS)
            numbers |= {"replays after it": replays, "routes at the end": len(care.rows())}
            names = Counter(row[1] for row in care.rows() if row[4] != "eva" or row[1] != "r-05-02")
            return numbers | _judged(names, kept=care.count(_EVAS))

    def wrong(self, numbers: Numbers) -> list[str]:
        """No route twice, and nothing of the planner's lost."""
        return [
            f"{label} is {numbers[label]}, not 0"
            for label in ("done twice", "never done")
            if numbers[label]
        ]


def _judged(names: Counter[str], kept: int) -> Numbers:
    return {
        "the planner's own changes kept": kept,
        "done twice": sum(count - 1 for count in names.values() if count > 1),
        "never done": CHANGES - kept + max(0, ROUTES - sum(name in names for name in WANTED)),
    }


class CareService:
    """The service behind the gate: a route is made by a mutation, in the event's own transaction."""

    def __init__(self, url: str, folder: Path, began_at_ms: int) -> None:
        self.clock = ManualClock(wall_ms=began_at_ms)
        self._began_ms = began_at_ms
        self.gate = gate = Gate(url, clock=self.clock)
        self.compensations = 0
        write_private(folder / "key", PrivateKey.generate("care"))
        gate.snapshots(
            f"file://{folder}/snapshots",
            signed_by=f"file:{folder}/key",
            every=EVERY,
            second_person_above=1_000,
        )
        gate.engine.store.connect().close()
        self.run(TABLE)
        add = gate.mutation("route.add", read=get_route, compensate=self.put_route, belief="routes")(
            add_route
        )
        gate.belief("routes", content=("name", "plan", "day"))(self.routes)

        @gate.handler(SURFACE, key="{event_id}")
        def plan(event: dict[str, Any], once: Any) -> None:
            with once.commit() as tx:
                for name in event["routes"]:
                    add(tx, f"{event['event_id']}/{name}", name, event["plan"], event["day"])

    def put_route(self, tx: Any, route: str, value: dict[str, Any] | None) -> None:
        """Gives a route its value back, or removes it."""
        self.compensations += 1
        tx.execute("DELETE FROM route WHERE id = ?", (route,))
        if value is not None:
            tx.execute(INSERT, tuple(value[field] for field in FIELDS))

    def run(self, sql: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """A statement past the gate."""
        with closing(self.gate.engine.store.connect()) as session, session.unit():
            return session.execute(sql, parameters)

    def rows(self) -> list[tuple[Any, ...]]:
        """All routes."""
        return self.run("SELECT id, name, plan, day, carer FROM route ORDER BY id")

    def count(self, sql: str) -> int:
        """What a statement counts."""
        return int(self.run(sql)[0][0])

    def routes(self) -> Iterator[dict[str, Any]]:
        """What is believed."""
        return (dict(zip(FIELDS, row, strict=True)) for row in self.rows())

    def arrives(self, event: dict[str, Any]) -> bool:
        """An event comes; whether it was a replay."""
        return self.gate.admit_sync(SURFACE, event).replay

    def week(self, events: list[tuple[int, dict[str, Any]]]) -> None:
        """Events at their times, the planner's work in the middle, and snapshots now and then."""
        taker = history_of(self.gate).taker()
        for place, (at_ms, event) in enumerate(events):
            self.clock.advance(max(0, self._began_ms + at_ms - self.clock.wall_ms()) / 1000 + 0.001)
            if place % SNAPSHOT_EACH == 0:
                asyncio.run(taker.run_once())
            self.arrives(event)
            if place == PLANNER_WORKS_AFTER:
                for sql, parameters in BY_HAND:
                    self.run(sql, parameters)
        asyncio.run(taker.take())

    def first_wrong(self) -> Numbers:
        """What the timeline says."""
        with self.gate.engine.store.look() as session:
            items = read_timeline(session).items
        # Monday's plans are a jump, and right: the planner knows. Doubles are what nobody wants.
        found = next(one for one in suspicions(items) if "content" in one.why)
        return {"snapshots": len(items), "last good snapshot": found.last_good}

    def back_to(self, number: int) -> RollbackPlan:
        """Plans, approves what has no conflict, applies, and checks that it is done."""
        history = history_of(self.gate)
        work = history.rollback()
        made = asyncio.run(history.planner().make(history.taker().archive.manifest(number), "planner"))
        work.book.propose(*made)
        work.book.approve(made[0].name, made[0].digest, "planner", "doubled by Wednesday")
        asyncio.run(work.run_once())
        with self.gate.engine.store.look() as session:
            ended = work.book.read(session, made[0].name)
        if ended.state is not PlanState.APPLIED or ended.progress.failed or ended.progress.differing:
            raise AssertionError(f"the roll-back came to {ended.state.value}: {ended.progress}")
        return made[0]

    def close(self) -> None:
        """Ends the service."""
        self.gate.close()


def get_route(tx: Any, route: str) -> dict[str, Any] | None:
    """One route."""
    rows = tx.execute("SELECT id, name, plan, day, carer FROM route WHERE id = ?", (route,))
    return dict(zip(FIELDS, rows[0], strict=True)) if rows else None


def add_route(tx: Any, route: str, name: str, plan: str, day: str) -> None:
    """A new route, with a carer by its name."""
    tx.execute(INSERT, (route, name, plan, day, f"carer of {name}"))
