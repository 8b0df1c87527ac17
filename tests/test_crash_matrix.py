"""A worker is killed at every crash point, also while recovering; nothing is lost or done twice (I1-I6)."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from lab.crash_matrix.site import (
    ASKED,
    FINAL,
    HONOURED,
    KILLED,
    SCENARIOS,
    UNREPEATABLE,
    Crash,
    Scenario,
    Site,
    armed,
    started_terminals,
)
from oncegate.crashpoints import CRASH_POINTS
from oncegate.demo.terminal_client import KeyMode, TerminalProcess
from oncegate.model.states import State
from oncegate.store import LogKind
from oncegate.testing import ArmedCrashPoints
from oncegate.testing.forking import stop_this_process

# What a first crash leaves behind, at its most different: nothing but a reservation; the start of a step
# without its end; a booking without its slot; an effect of which nothing is recorded.
FIRST_CRASHES = ("reserve.after", "start.after", "step.after", "effect.after")


@pytest.fixture(scope="module")
def terminals(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[KeyMode, TerminalProcess]]:
    with started_terminals(tmp_path_factory.mktemp("terminals")) as started:
        yield started


@pytest.fixture
def site(tmp_path: Path, terminals: dict[KeyMode, TerminalProcess], request: pytest.FixtureRequest) -> Site:
    return Site(tmp_path / "".join(c if c.isalnum() else "-" for c in request.node.name), terminals)


@pytest.fixture(scope="module")
def passes(
    tmp_path_factory: pytest.TempPathFactory, terminals: dict[KeyMode, TerminalProcess]
) -> dict[str, Counter[str]]:
    return Site(tmp_path_factory.mktemp("undisturbed") / "ledger", terminals).passes(SCENARIOS)


BOTH, BY_TURNS = (False, True), ()  # who finishes: the next delivery and the reconciler, or one of them


@pytest.mark.slow
@pytest.mark.parametrize("finishers", [BY_TURNS, pytest.param(BOTH, marks=pytest.mark.soak)], ids=len)
@pytest.mark.parametrize("name", CRASH_POINTS)
def test_crash_at_every_point_is_recovered(
    site: Site, passes: dict[str, Counter[str]], name: str, finishers: tuple[bool, ...]
) -> None:
    """Killed here, by any handler and each time it is passed, an event is finished and finished once."""
    fired = 0
    for number, scenario in enumerate(SCENARIOS):
        for occurrence in range(1, passes[scenario.name][name] + 1):
            for by_reconciler in finishers or (bool((number + occurrence) % 2),):
                case = (scenario.name, name, occurrence, by_reconciler)
                event = site.die_at(scenario, (name, occurrence))
                site.recover(scenario, event, by_reconciler=by_reconciler)
                site.check(scenario, event, case)
                if by_reconciler:
                    site.check_replayed(scenario, event, case)
                fired += 1
    if not fired:  # only recoveries come here
        fired = sum(die_twice(site, scenario, ("effect.after", 1), name) for scenario in (HONOURED, ASKED))

    assert fired, f"{name} was never reached"


@pytest.mark.slow
@pytest.mark.parametrize("share", [4, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("number", range(len(SCENARIOS)), ids=lambda number: SCENARIOS[number].name)
def test_crash_during_recovery_is_recovered(
    site: Site, passes: dict[str, Counter[str]], number: int, share: int
) -> None:
    """Whatever the first worker left behind, its successor may die at any point: the next one finishes.

    In CI each scenario begins with one of the first crashes and dies a second time at every other point, by
    turns; in soak it begins with all of them and dies at every point.
    """
    scenario, fired = SCENARIOS[number], 0
    firsts = [first for first in FIRST_CRASHES if first in passes[scenario.name]]
    for first in firsts[number % min(share, len(firsts)) :: share]:
        places = slice(number // len(FIRST_CRASHES) % 2, None, 2) if share > 1 else slice(None)
        fired += die_twice(site, scenario, (first, 1), places=places)

    assert fired >= 3, "a run in which hardly anything died shows nothing"


def die_twice(
    site: Site, scenario: Scenario, first: Crash, second: str | None = None, places: slice = slice(None)
) -> int:
    """Kills the successors of a dead worker, at the points they pass or at one; returns how often."""
    pilot = site.die_at(scenario, first)
    crashes = [
        (turn, (name, occurrence))
        for turn, reached in enumerate(site.recover(scenario, pilot, by_reconciler=True))
        for name, times in reached.items()
        if second in (None, name)
        for occurrence in range(1, times + 1)
    ]
    for crash in crashes[places]:
        event = site.die_at(scenario, first)
        site.recover(scenario, event, by_reconciler=True, crash=crash)
        site.check(scenario, event, (scenario.name, first, crash))
    return len(crashes[places])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_crash_after_crash_is_recovered(site: Site, seed: int) -> None:
    """Up to five workers in a row die at random points, at any time they pass them; the sixth finishes."""
    choose = random.Random(seed)
    for _ in range(8):
        scenario = choose.choice(SCENARIOS)
        event, crashes = site.new_event(scenario), []
        for _ in range(choose.randint(2, 5)):
            crashes.append((choose.choice(list(CRASH_POINTS)), choose.choice([1, 1, 1, 2])))
            points = armed(crashes[-1])
            by_reconciler = choose.random() < 0.5 and site.state(event) is not None
            with (
                site.fork_reconciler(scenario, points)
                if by_reconciler
                else site.fork_delivery(scenario, event, crashpoints=points)
            ) as worker:
                assert worker.wait() in (0, KILLED)
            site.clock.advance(choose.choice([1.0, 25.0, 120.0]))
        site.recover(scenario, event, by_reconciler=choose.random() < 0.5)
        site.check(scenario, event, (seed, scenario.name, crashes))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["reserve.after", "effect.after", "commit.before", "commit.after"])
def test_parallel_arrivals_while_one_worker_dies(site: Site, name: str) -> None:
    """Three processes are handed the same events at once, and one of them is killed on its way."""
    for scenario in (HONOURED, ASKED, UNREPEATABLE):
        events = [site.new_event(scenario) for _ in range(4)]
        with contextlib.ExitStack() as stack:
            dying = stack.enter_context(site.fork_delivery(scenario, *events, crashpoints=armed((name, 1))))
            others = [
                stack.enter_context(site.fork_delivery(scenario, *events[turn:], *events[:turn]))
                for turn in (1, 2)
            ]
            codes = [worker.wait() for worker in (dying, *others)]

        assert codes[1:] == [0, 0]
        for event in events:
            site.recover(scenario, event, by_reconciler=True)
            site.check(scenario, event, (scenario.name, name, codes))


@pytest.mark.parametrize("name", ["reserve.before", "reserve.after", "commit.before"])
def test_unrepeatable_step_that_certainly_did_not_start_is_run(site: Site, name: str) -> None:
    """A crash before its start is recorded leaves nothing for a person to decide."""
    event = site.die_at(UNREPEATABLE, (name, 1))

    site.recover(UNREPEATABLE, event, by_reconciler=False)

    assert site.state(event) is State.COMMITTED
    assert len(site.sold(UNREPEATABLE, event)) == 1


@pytest.mark.parametrize("name", ["start.after", "effect.before", "effect.after"])
def test_unrepeatable_step_that_may_have_happened_is_left_to_a_person(site: Site, name: str) -> None:
    """A crash after the recorded start, before the recorded end, is never run again, by anybody (A4)."""
    event = site.die_at(UNREPEATABLE, (name, 1))
    sold = len(site.sold(UNREPEATABLE, event))

    for by_reconciler in (True, False):
        site.recover(UNREPEATABLE, event, by_reconciler=by_reconciler)
        site.check_replayed(UNREPEATABLE, event, name)

    assert site.state(event) is State.UNKNOWN
    assert len(site.sold(UNREPEATABLE, event)) == sold == (name == "effect.after")


@pytest.mark.parametrize("wall_step_days", [0, -40, 400], ids=["true", "set back", "set ahead"])
def test_key_that_is_honoured_no_longer_is_not_sent_again(site: Site, wall_step_days: int) -> None:
    """Past the time for which a terminal remembers keys a person decides, whatever the wall clock says."""
    event = site.die_at(HONOURED, ("effect.after", 1))
    site.clock.advance(31 * 24 * 3600.0)
    site.clock.step_wall(wall_step_days * 24 * 3600.0)

    assert site.deliver(HONOURED, event).told == ["OutcomeUnknown"]

    assert site.state(event) is State.UNKNOWN
    assert len(site.sold(HONOURED, event)) == 1
    assert site.bookings(event) == []


# --- zombies ---------------------------------------------------------------------------------------

STOPS = [
    *((HONOURED, name) for name in ("reserve.after", "effect.before", "effect.after", "settle.before")),
    *((ASKED, name) for name in ("reserve.after", "effect.after", "step.after")),
    *((UNREPEATABLE, name) for name in ("reserve.after", "start.after", "effect.after")),
]


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "name"), STOPS, ids=str)
def test_stopped_worker_changes_nothing_when_it_goes_on(site: Site, scenario: Scenario, name: str) -> None:
    """A worker stopped past its lease, while another one finishes its key, is told ClaimLost (I4)."""
    event = site.new_event(scenario)
    points = ArmedCrashPoints(name, stop_this_process)
    with site.fork_delivery(scenario, event, crashpoints=points) as zombie:
        zombie.wait_stopped()
        assert zombie.is_stopped
        site.recover(scenario, event, by_reconciler=True)
        assert site.state(event) in FINAL
        before, booked = site.detail(event), site.bookings(event)

        zombie.resume()
        (told,) = zombie.answer()["told"]

    assert told == "ClaimLost"
    after = site.detail(event)
    assert before is not None
    assert after is not None
    late = [record for record in after.records if record.kind is LogKind.SECOND_RESOURCE]
    assert replace(after, records=tuple(r for r in after.records if r not in late)) == before
    assert site.bookings(event) == booked
    # What the stopped worker bought is on record, and nothing else has changed (A9).
    assert len(late) == (scenario is UNREPEATABLE and name == "effect.after")
    site.check(scenario, event, (scenario.name, name))


@pytest.mark.slow
def test_stopped_committer_holds_nobody_up_for_ever(site: Site) -> None:
    """A worker stopped in the middle of its commit makes others busy; when it goes on, all is as it was."""
    event, other = site.new_event(HONOURED), site.new_event(HONOURED)
    points = ArmedCrashPoints("settle.after", stop_this_process)
    with site.fork_delivery(HONOURED, event, crashpoints=points) as zombie:
        zombie.wait_stopped()
        with site.fork_delivery(HONOURED, other, event) as worker:
            told = worker.answer()["told"]
        zombie.resume()
        assert zombie.answer()["told"] == ["run"]

    assert told == ["run", "replay"]
    site.check(HONOURED, event, "stopped")
    site.check(HONOURED, other, "meanwhile")
