"""A person's word survives what may go wrong around it: lost replies, kills in its commit and its run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.crash_matrix.site import SCENARIOS, UNREPEATABLE, Crash, Event, Scenario, Site, armed
from oncegate import Gate
from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.operations import Reserve
from oncegate.demo.terminal_client import KeyMode, TerminalProcess
from oncegate.errors import RulingRefused, StoreUnavailable
from oncegate.model.states import Decision, State
from oncegate.review.decisions import Decisions, StepDecision, doubts
from oncegate.store import LogKind, Reservation
from oncegate.store.people import RULING_KINDS
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing import Fault, Faults, Forked, ManualClock, faulty

KILLED = -9
OPAQUE = next(scenario for scenario in SCENARIOS if scenario.name == "opaque unrepeatable")
ROUNDS_MAX = 8


# --- a commit in doubt -----------------------------------------------------------------------------


class Office:
    """A ledger behind a faulty store with one event that waits for approval."""

    def __init__(self, path: Path) -> None:
        self.clock, self.faults = ManualClock(), Faults()
        self.store = faulty(SqliteStore(path, clock=self.clock), self.faults)
        self.commits = GroupCommit(self.store, clock=self.clock)
        self.rulings = Decisions(self.commits, self.clock)
        self.entry = self.arrive(1, hold="waits for approval").entry_id

    def arrive(self, token: int, **changes: Any) -> Any:
        """The event arrives."""
        wanted = Reservation(b"k" * 24, "", "orders", "e", b"f", b"{}", 1, 20_000, 8, token, **changes)
        return self.commits.submit(Reserve(wanted))

    def approve(self) -> Any:
        """Somebody says yes."""
        return self.rulings.approve(self.entry, actor="Ada", reason="fine")

    def kinds(self) -> list[LogKind]:
        """The entry's records."""
        with self.store.look() as session:
            found = session.detail(self.entry)
        assert found is not None
        return [record.kind for record in found.records]


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    opened = Office(tmp_path / "ledger.db")
    yield opened
    opened.commits.close()


def test_a_word_whose_reply_is_lost_is_found_in_the_log(office: Office) -> None:
    """I5: it counted, the person is told so, and saying it again is refused."""
    office.faults.plan.extend([Fault.LOST_REPLY])
    assert office.approve().state is State.RETRYABLE
    with pytest.raises(RulingRefused, match="Ada approved it"):
        office.approve()
    assert office.kinds() == [LogKind.HELD, LogKind.APPROVED]


def test_a_word_that_was_undone_is_told_as_not_said(office: Office) -> None:
    """I5: nothing was changed, and it can be said again."""
    office.faults.plan.extend([Fault.UNDONE])
    with pytest.raises(StoreUnavailable):
        office.approve()
    assert office.kinds() == [LogKind.HELD]
    assert office.approve().state is State.RETRYABLE


def test_an_approved_claim_in_doubt_is_not_taken_for_a_first_one(office: Office) -> None:
    """I1: its attempts count from one again, but what earlier attempts did is not read back here."""
    office.approve()
    office.faults.plan.extend([Fault.LOST_REPLY])
    with pytest.raises(StoreUnavailable):
        office.arrive(2)
    assert office.arrive(3).decision is Decision.BUSY
    office.clock.advance(30)
    assert office.arrive(4).decision is Decision.RECOVER


# --- killed processes ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def terminals(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[KeyMode, TerminalProcess]]:
    folder = tmp_path_factory.mktemp("terminals")
    started = {mode: TerminalProcess(folder / f"{mode}.jsonl", key_mode=mode) for mode in KeyMode}
    with contextlib.ExitStack() as stack:
        for terminal in started.values():
            stack.enter_context(terminal)
        yield started


@pytest.fixture
def site(tmp_path: Path, terminals: dict[KeyMode, TerminalProcess], request: pytest.FixtureRequest) -> Site:
    return Site(tmp_path / "".join(c if c.isalnum() else "-" for c in request.node.name), terminals)


def speak(site: Site, scenario: Scenario, event: Event, gate: Gate) -> str:
    """Somebody looks into the terminal's own record and says what is there."""
    found = site.detail(event)
    assert found is not None
    sold = site.sold(scenario, event)
    told = StepDecision(happened=True, resource="S-1") if sold else StepDecision(happened=False)
    steps = {step.name: told for step in doubts(found)}
    try:
        entry = gate.people.approve(found.entry.entry_id, actor="Ada", reason="looked", steps=steps)
    except RulingRefused:
        return "refused"
    return entry.state.label


def person_says(site: Site, scenario: Scenario, event: Event) -> str:
    """What somebody who lives is told."""
    with site.worker(scenario) as gate:
        return speak(site, scenario, event, gate)


def kill_person(site: Site, scenario: Scenario, event: Event, crash: Crash) -> None:
    """Somebody whose process dies while it is told."""
    with Forked(lambda: speak(site, scenario, event, site.gate(scenario, armed(crash)))) as person:
        assert person.wait() == KILLED


def strand(site: Site, scenario: Scenario, point: str) -> Event:
    """An event that waits for a person because its worker was killed."""
    event = site.new_event(scenario)
    with site.fork_delivery(scenario, event, crashpoints=armed((point, 1))) as worker:
        assert worker.wait() == KILLED
    site.recover(scenario, event, by_reconciler=True)
    assert site.state(event) is State.UNKNOWN
    return event


def see_through(site: Site, scenario: Scenario, event: Event) -> None:
    """Persons and workers take turns until the event is done."""
    for _ in range(ROUNDS_MAX):
        if site.state(event) is State.COMMITTED:
            break
        if site.state(event) in (State.UNKNOWN, State.HELD):
            assert person_says(site, scenario, event) == "retryable"
        site.clock.advance(120.0)
        site.reconcile(scenario)
    assert site.state(event) is State.COMMITTED
    assert len(site.sold(scenario, event)) == 1
    if scenario.books:
        assert len(site.bookings(event)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [UNREPEATABLE, OPAQUE], ids=str)
@pytest.mark.parametrize("first", ["effect.before", "effect.after"])
@pytest.mark.parametrize("point", ["commit.before", "commit.after"])
def test_a_person_whose_process_is_killed_was_heard_or_not(
    site: Site, scenario: Scenario, first: str, point: str
) -> None:
    """I6, I16, I20: before the commit nothing is said, after it everything; one record either way."""
    event = strand(site, scenario, first)
    kill_person(site, scenario, event, (point, 1))
    heard = point == "commit.after"
    assert site.state(event) is (State.RETRYABLE if heard else State.UNKNOWN)
    assert person_says(site, scenario, event) == ("refused" if heard else "retryable")

    see_through(site, scenario, event)

    found = site.detail(event)
    assert found is not None
    assert [record.kind for record in found.records if record.kind in RULING_KINDS] == [LogKind.APPROVED]


CRASHES: list[Crash] = [
    ("reserve.after", 1), ("start.after", 1), ("effect.before", 1), ("effect.after", 1),
    ("step.after", 1), ("settle.before", 1), ("settle.after", 1), ("commit.before", 1),
    ("commit.before", 2), ("commit.after", 2),
]  # fmt: skip
# Where the step is skipped, only these are passed.
FINISHING: list[Crash] = [("reserve.after", 1), ("settle.before", 1), ("commit.before", 2)]


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [UNREPEATABLE, OPAQUE], ids=str)
def test_a_kill_in_the_run_after_an_approval_doubles_nothing(site: Site, scenario: Scenario) -> None:
    """I1, I6: wherever the approved run dies, the event ends with one slot, and never by guessing."""
    fired = 0
    for first in ("effect.before", "effect.after"):
        for crash in CRASHES if first == "effect.before" else FINISHING:
            event = strand(site, scenario, first)
            assert person_says(site, scenario, event) == "retryable"
            site.clock.advance(120.0)
            with site.fork_reconciler(scenario, armed(crash)) as worker:
                fired += worker.wait() == KILLED
            see_through(site, scenario, event)
    assert fired >= len(CRASHES), "a run in which hardly anything died shows nothing"
