"""Bulk plans with several processes behind one address: made in one, confirmed in another (I20)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from oncegate import Gate
from oncegate.commit.group_commit import GroupCommit
from oncegate.dashboard.jobs import Jobs
from oncegate.dashboard.operators import Role
from oncegate.dashboard.plans import JobState, JobWord, PlanKind, Plans, PlanView
from oncegate.errors import StoreUnavailable
from oncegate.store import LogKind
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing import ManualClock
from oncegate.testing.waiting import wait_until
from tests.dashboard.conftest import Site
from tests.dashboard.scene import Scene
from tests.dashboard.serving import Stage

SHEET = PlanView(
    PlanKind.ENTRIES, "ann", None, "release", "released", "x", "", "", 2, [("routes", 2)], True, []
)  # fmt: skip


class Balancer:
    """Gives every request to the next process in turn."""

    def __init__(self, *applications: Any) -> None:
        self._next = cycle(applications)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await next(self._next)(scope, receive, send)


@pytest.fixture(params=["sqlite", "postgres"])
def shared(request: pytest.FixtureRequest, tmp_path: Path, stage: Stage) -> Iterator[Site]:
    """One ledger with an incident, and two pages on it that know nothing of each other."""
    is_postgres = request.param == "postgres"
    url = (
        request.getfixturevalue("ledger_url")
        if is_postgres
        else f"sqlite:///{tmp_path}/page.db?synchronous=NORMAL"
    )
    scene, other = Scene(url), Gate(url)
    scene.incident()
    balancer = Balancer(scene.gate.dashboard(login=True), other.dashboard(login=True))
    with stage.showing(balancer) as address:
        yield Site(scene, address)
    other.close()
    scene.gate.close()


def released(site: Site) -> int:
    with site.gate.engine.store.look() as session:
        records = session.log_before(None, 50, by_people=True)
    return sum(record.kind is LogKind.RELEASED for record in records)


@pytest.mark.slow
def test_a_plan_made_in_one_process_is_confirmed_and_watched_in_others(shared: Site) -> None:
    client = shared.client(Role.APPROVER)
    asked = shared.form(client, q="reason:skew", verb="release", reason="clock repaired")
    job = client.post("/plans/entries", asked).headers["location"].removeprefix(client.prefix)

    for _ in range(4):  # each process twice
        assert "Release all 3" in client.get(job).text
    for _ in range(2):
        assert client.post(f"{job}/start", shared.form(client)).status == 303
    wait_until(lambda: "ended" in client.get(job).text)

    for _ in range(2):
        assert "3 released of 3" in client.get(job).text
    assert released(shared) == 3


@pytest.mark.slow
def test_lanes_are_retried_by_a_plan_that_another_process_made(shared: Site) -> None:
    client = shared.client(Role.OPERATOR)
    asked = shared.form(client, destination="orders", verb="retry", reason="they are back")
    job = client.post("/plans/lanes", asked).headers["location"].removeprefix(client.prefix)
    client.get(job)
    assert client.post(f"{job}/start", shared.form(client)).status == 303
    wait_until(lambda: "2 retried of 2" in client.get(job).text)


@pytest.mark.slow
def test_a_plan_of_another_tenant_is_not_there_in_any_process(shared: Site) -> None:
    client, stranger = shared.client(Role.APPROVER, "acme"), shared.client(Role.APPROVER, "globex")
    asked = shared.form(client, q="", verb="reject", reason="x")
    job = client.post("/plans/entries", asked).headers["location"].removeprefix(client.prefix)
    for _ in range(2):
        assert client.get(job).status == 200
        assert stranger.get(job).status == 404
        assert stranger.post(f"{job}/start", shared.form(stranger)).status == 404


def test_a_plan_is_confirmed_only_by_whoever_may_and_in_their_name(shared: Site) -> None:
    """An operator sees an approver's plan and may not say yes to it; another approver may."""
    planner, operator = shared.client(Role.APPROVER), shared.client(Role.OPERATOR)
    asked = shared.form(planner, q="reason:skew", verb="release", reason="clock repaired")
    job = planner.post("/plans/entries", asked).headers["location"].removeprefix(planner.prefix)

    refused = [operator.post(f"{job}/{verb}", shared.form(operator)).status for verb in ("start", "cancel")]
    other = shared.client(Role.APPROVER, "acme")  # who sees another tenant's things only

    assert refused == [403, 403]
    assert other.post(f"{job}/start", shared.form(other)).status == 404
    assert released(shared) == 0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def open_plans(tmp_path: Path, clock: ManualClock) -> Iterator[Callable[[], Plans]]:
    """Plans as one process after the other sees them."""
    opened: list[GroupCommit] = []

    def open_one() -> Plans:
        opened.append(GroupCommit(SqliteStore(tmp_path / "plans.db", clock=clock), clock=clock))
        return Plans(opened[-1], clock)

    yield open_one
    for commits in opened:
        commits.close()


def job_of(plans: Plans, name: str) -> JobWord:
    with plans._commits.store.look() as session:
        word = plans.job(session, name)
    assert word is not None
    return word


def test_a_yes_that_is_said_in_two_processes_begins_one_job(open_plans: Callable[[], Plans]) -> None:
    here, there = open_plans(), open_plans()
    name = here.keep(SHEET, ((1, 1, b"a"), (2, 1, b"b")))
    assert there.begin(name, 2) is not None
    assert here.begin(name, 2) is None


def test_a_plan_that_is_too_old_is_shown_but_not_confirmed(
    open_plans: Callable[[], Plans], clock: ManualClock
) -> None:
    plans = open_plans()
    name = plans.keep(SHEET, ((1, 1, b"a"), (2, 1, b"b")))
    with plans._commits.store.look() as session:
        assert plans.targets(session, name) == ((1, 1, b"a"), (2, 1, b"b"))
    clock.advance(3_600)
    with plans._commits.store.look() as session:
        assert plans.sheet(session, name) == SHEET
        assert plans.targets(session, name) is None


def test_a_job_whose_process_died_is_said_to_be_silent(
    open_plans: Callable[[], Plans], clock: ManualClock
) -> None:
    plans = open_plans()
    name = plans.keep(SHEET, ())
    plans.begin(name, 2)
    clock.advance(30)
    assert not job_of(plans, name).is_silent
    clock.advance(1)
    assert job_of(plans, name).is_silent


class Patient:
    """Work that goes on until it is told to stop, moving the clock so that it is heard in between."""

    def __init__(self, clock: ManualClock) -> None:
        self.progress = SimpleNamespace(done=0, changed=0, is_cancelled=False)
        self.begun = Event()
        self._clock = clock
        self._stop = Event()

    def run(self, on_progress: Callable[[Any], object], /) -> None:
        while not self._stop.wait(0.02):  # so that others find the ledger free
            self.progress.done += 1
            self._clock.advance(0.5)
            on_progress(self.progress)
            self.begun.set()
        self.progress.is_cancelled = True

    def cancel(self) -> None:
        self._stop.set()


def test_a_job_is_cancelled_from_another_process(
    open_plans: Callable[[], Plans], clock: ManualClock
) -> None:
    here, there = open_plans(), open_plans()
    name, work = here.keep(SHEET, ()), Patient(clock)
    try:
        assert Jobs(here, clock).start(name, 2, work)
        assert work.begun.wait(60)
        assert job_of(there, name).state is JobState.RUNNING
        there.cancel(name, "ben")
        wait_until(lambda: job_of(there, name).state is JobState.CANCELLED)
    finally:
        work.cancel()


def test_the_end_of_a_job_is_told_when_the_store_is_back(
    open_plans: Callable[[], Plans], clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans, refusals = open_plans(), [StoreUnavailable("away")] * 3
    name, work = plans.keep(SHEET, ()), Patient(clock)
    work.cancel()
    tell = plans.tell

    def refuse(name: str, word: JobWord) -> None:
        if refusals:
            raise refusals.pop()
        tell(name, word)

    monkeypatch.setattr(plans, "tell", refuse)
    assert Jobs(plans, clock).start(name, 2, work)
    wait_until(lambda: job_of(plans, name).state is JobState.CANCELLED)
    assert refusals == []
