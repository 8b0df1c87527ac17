"""A roll-back whose process is killed and started again compensates each line once (I6, I17)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oncegate.crashpoints import HISTORY_CRASH_POINTS
from oncegate.journal.rollback.plans import PlanState, RollbackPlan
from oncegate.testing import ArmedCrashPoints, ManualClock, run_forked
from tests.support.care import Care

pytestmark = pytest.mark.slow

KILLED = -9
ROUTES = 4
POINTS = (
    *((point, 2) for point in HISTORY_CRASH_POINTS if point.startswith("rollback.line")),
    ("rollback.end.before", 1),
    ("snapshot.manifest.before", 1),
    ("reserve.after", 2),
    ("commit.before", 3),
    ("commit.after", 3),
    ("settle.after", 2),
)


def address(request: pytest.FixtureRequest, store: str, folder: Path) -> str:
    """A new ledger of a store."""
    if store == "postgres":
        return str(request.getfixturevalue("ledger_url"))
    return f"sqlite:///{folder / 'ledger.db'}"


def prepare(url: str, folder: Path) -> str:
    """Good routes, a snapshot, as many doubled ones, and an approved plan; returns its name."""
    care = Care(url, folder, clock=ManualClock())
    care.fill(ROUTES)
    care.take()
    care.fill(ROUTES, "x")
    plan, _ = care.plan()
    care.approve(plan)
    care.close()
    return plan.name


def killed(url: str, folder: Path, point: str, occurrence: int, later_seconds: int = 0) -> int:
    """Applies in a process that is killed at a point; returns how it ended."""

    def work() -> None:
        clock = ManualClock()
        clock.advance(later_seconds)
        dying = Care(url, folder, clock=clock, crashpoints=ArmedCrashPoints(point, occurrence=occurrence))
        dying.apply()
        dying.close()

    return run_forked(work)[0]


def resumed(url: str, folder: Path, name: str) -> tuple[RollbackPlan, list[str], list[str]]:
    """Applies in another process, after the dead one's lease."""

    def work() -> list[list[str]]:
        clock = ManualClock()
        clock.advance(3600)
        living = Care(url, folder, clock=clock)
        living.apply()
        found = [living.compensations(), living.ids()]
        living.close()
        return found

    code, found = run_forked(work)
    assert code == 0
    care = Care(url, folder, clock=ManualClock())
    plan = care.stands(name)
    care.close()
    return plan, *found


# On PostgreSQL one point in each run: the decision is the same, and a case takes ten times as long.
CASES = [
    *(pytest.param("sqlite", *one, id=f"sqlite-{one[0]}") for one in POINTS),
    pytest.param("postgres", *POINTS[1], id=f"postgres-{POINTS[1][0]}"),
    *(
        pytest.param("postgres", *one, id=f"postgres-{one[0]}", marks=pytest.mark.soak)
        for one in (POINTS[0], *POINTS[2:])
    ),
]


@pytest.mark.parametrize(("store", "point", "occurrence"), CASES)
def test_killed_and_resumed_compensates_each_line_once(
    request: pytest.FixtureRequest, tmp_path: Path, store: str, point: str, occurrence: int
) -> None:
    """The compensation's own table counts its calls that stand."""
    url = address(request, store, tmp_path)
    name = prepare(url, tmp_path)
    assert killed(url, tmp_path, point, occurrence) == KILLED
    plan, calls, ids = resumed(url, tmp_path, name)

    assert (plan.state, plan.progress.done, plan.progress.differing) == (PlanState.APPLIED, ROUTES, 0)
    assert calls == [f"x{number}" for number in range(ROUTES)]
    assert ids == [f"r{number}" for number in range(ROUTES)]


@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.soak)])
def test_killed_twice_compensates_each_line_once(
    request: pytest.FixtureRequest, tmp_path: Path, store: str
) -> None:
    """The second process dies in the recovery of the first one's line."""
    url = address(request, store, tmp_path)
    name = prepare(url, tmp_path)
    assert killed(url, tmp_path, "rollback.line.after", 1) == KILLED
    assert killed(url, tmp_path, "rollback.line.after", 1, later_seconds=1800) == KILLED
    plan, calls, _ = resumed(url, tmp_path, name)

    assert plan.state is PlanState.APPLIED
    assert calls == [f"x{number}" for number in range(ROUTES)]


class Shelf:
    """Objects outside the ledger's database: a file each, and a line for every compensation."""

    def __init__(self, url: str, folder: Path, **more: Any) -> None:
        self.care = Care(url, folder, **more)
        self.folder, self.calls = folder / "shelf", folder / "calls"
        self.folder.mkdir(exist_ok=True)
        gate = self.care.gate
        self.put_on = gate.mutation("shelf.put", read=self.read, compensate=self.put, belief="shelf")(
            self.put
        )
        gate.belief("shelf")(lambda: [(path.name, self.read(path.name)) for path in self.folder.iterdir()])

        @gate.handler("shelf", key="{id}")
        def handle(event: dict[str, Any], once: Any) -> None:
            self.put_on(event["id"], {"value": event["value"]})

    def read(self, name: str) -> dict[str, Any] | None:
        path = self.folder / name
        return json.loads(path.read_text()) if path.exists() else None

    def put(self, name: str, value: dict[str, Any] | None) -> None:
        with self.calls.open("a") as calls:
            calls.write(f"{name}\n")
        if value is None:
            (self.folder / name).unlink()
        else:
            (self.folder / name).write_text(json.dumps(value))


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
@pytest.mark.parametrize("point", ["rollback.line.before", "rollback.line.after"])
def test_object_outside_the_database_is_set_back_once(
    request: pytest.FixtureRequest, tmp_path: Path, store: str, point: str
) -> None:
    """Killed between the call and its record: the line finds the object as planned and calls nothing."""
    url = address(request, store, tmp_path)
    shelf = Shelf(url, tmp_path, clock=ManualClock())
    shelf.care.take()
    for name in ("a", "b", "c"):
        shelf.care.gate.admit_sync("shelf", {"id": name, "value": 1})
    plan, _ = shelf.care.plan()
    shelf.care.approve(plan)
    shelf.care.close()
    shelf.calls.unlink()

    def dies() -> None:
        Shelf(
            url, tmp_path, clock=ManualClock(), crashpoints=ArmedCrashPoints(point, occurrence=2)
        ).care.apply()

    assert run_forked(dies)[0] == KILLED
    clock = ManualClock()
    clock.advance(3600)
    living = Shelf(url, tmp_path, clock=clock)
    living.care.apply()

    assert living.care.stands(plan.name).progress.done == 3
    assert sorted(living.calls.read_text().split()) == ["a", "b", "c"]
    assert list(living.folder.iterdir()) == []
    living.care.close()
