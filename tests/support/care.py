"""A small care service on a ledger's own database: routes that events make, and a person changes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from oncegate import Gate
from oncegate.crashpoints import CrashPoints
from oncegate.errors import Failed
from oncegate.journal.keys import PrivateKey, write_private
from oncegate.journal.rollback.plans import PlanLines, RollbackPlan
from oncegate.journal.snapshots.taking import SnapshotTaken
from oncegate.testing import ManualClock
from oncegate.wiring.history import history_of

FIELDS = ("id", "carer", "day")
TABLE = "CREATE TABLE IF NOT EXISTS route (id text PRIMARY KEY, carer text NOT NULL, day text NOT NULL)"
CALLS = "CREATE TABLE IF NOT EXISTS compensation (id text NOT NULL)"


class Care:
    """One process of the service; several may work on one ledger and one folder of snapshots."""

    def __init__(
        self,
        url: str,
        folder: Path,
        *,
        clock: ManualClock | None = None,
        crashpoints: CrashPoints | None = None,
        second_person_above: int = 100,
        to: str | None = None,
    ) -> None:
        self.url = url
        self.key = folder / "signing.key"
        if not self.key.exists():
            write_private(self.key, PrivateKey("care", b"k" * 32))
        self.gate = gate = Gate(url, clock=clock, crashpoints=crashpoints)
        gate.engine.store.connect().close()
        self.sql(TABLE)
        self.sql(CALLS)
        self.vault = to or f"file://{folder / 'snapshots'}"
        gate.snapshots(self.vault, signed_by=f"file:{self.key}", second_person_above=second_person_above)
        gate.belief("routes")(self.routes)
        self.add = gate.mutation("route.add", get=get_route, put=put_route, belief="routes")(add_route)
        self.assign = gate.mutation("route.assign", get=get_route, put=put_route, belief="routes")(
            assign_route
        )

        @gate.handler("visits", key="{id}")
        def visit(event: dict[str, Any], once: Any) -> None:
            if event.get("fails"):
                raise Failed("a visit that cannot be")
            with once.commit() as tx:
                if event.get("new", True):
                    self.add(tx, event["route"], event["carer"], event.get("day", "monday"))
                else:
                    self.assign(tx, event["route"], event["carer"])

    def sql(self, text: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """A statement of the service's own, past the gate: what a person does."""
        with closing(self.gate.engine.store.connect()) as session, session.unit():
            return session.execute(text, parameters)

    def routes(self) -> Iterator[dict[str, Any]]:
        """The belief."""
        for row in self.sql("SELECT id, carer, day FROM route ORDER BY id DESC"):
            yield dict(zip(FIELDS, row, strict=True))

    def visit(self, number: object, route: str, carer: str, **more: Any) -> bool:
        """Admits an event; whether it was a replay."""
        event = {"id": f"v{number}", "route": route, "carer": carer, **more}
        return self.gate.admit_sync("visits", event).replay

    def fill(self, count: int, prefix: str = "r", start: int = 0) -> None:
        """Makes routes by events."""
        for number in range(start, start + count):
            self.visit(f"{prefix}{number}", f"{prefix}{number}", f"carer{number}")

    def take(self) -> SnapshotTaken:
        """Takes a snapshot."""
        return asyncio.run(history_of(self.gate).taker().take())

    def plan(self, to: int = 1) -> tuple[RollbackPlan, PlanLines]:
        """Makes and keeps a plan."""
        history = history_of(self.gate)
        found = history.taker().archive.manifest(to)
        plan, lines = asyncio.run(history.planner().make(found, "anna"))
        history.rollback().book.propose(plan, lines)
        return plan, lines

    def approve(self, plan: RollbackPlan, actor: str = "anna", **more: Any) -> RollbackPlan:
        """Says yes."""
        book = history_of(self.gate).rollback().book
        return book.approve(plan.name, plan.digest, actor, "doubled on Tuesday", **more)

    def apply(self) -> None:
        """What the worker does."""
        asyncio.run(history_of(self.gate).rollback().run_once())

    def stands(self, name: str) -> RollbackPlan:
        """A plan as it is now."""
        with self.gate.engine.store.look() as session:
            return history_of(self.gate).rollback().book.read(session, name)

    def ids(self) -> list[str]:
        """The routes there are."""
        return sorted(one for (one,) in self.sql("SELECT id FROM route"))

    def compensations(self) -> list[str]:
        """Every call of the compensation that was committed, by route."""
        return sorted(one for (one,) in self.sql("SELECT id FROM compensation"))

    def close(self) -> None:
        """Ends the process."""
        self.gate.close()


def get_route(tx: Any, route: str) -> dict[str, Any] | None:
    rows = tx.execute("SELECT id, carer, day FROM route WHERE id = ?", (route,))
    return dict(zip(FIELDS, rows[0], strict=True)) if rows else None


def put_route(tx: Any, route: str, value: dict[str, Any] | None) -> None:
    tx.execute("INSERT INTO compensation (id) VALUES (?)", (route,))
    tx.execute("DELETE FROM route WHERE id = ?", (route,))
    if value is not None:
        row = (route, value["carer"], value["day"])
        tx.execute("INSERT INTO route (id, carer, day) VALUES (?, ?, ?)", row)


def add_route(tx: Any, route: str, carer: str, day: str) -> None:
    tx.execute("INSERT INTO route (id, carer, day) VALUES (?, ?, ?)", (route, carer, day))


def assign_route(tx: Any, route: str, carer: str) -> None:
    tx.execute("UPDATE route SET carer = ? WHERE id = ?", (carer, route))
