"""Workers on PostgreSQL are killed at every crash point, alone and several at once (I1-I6)."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.crash_matrix.server_site import ServerSite
from lab.crash_matrix.site import (
    ASKED,
    FROM_A_TASK,
    HONOURED,
    JOINED,
    KILLED,
    SAME_DATABASE,
    UNREPEATABLE,
    Scenario,
    armed,
    started_terminals,
)
from oncegate.crashpoints import CRASH_POINTS
from oncegate.demo.terminal_client import KeyMode, TerminalProcess
from oncegate.model.states import State
from oncegate.testing.postgres import GivenServer, PostgresServer
from oncegate.testing.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.slow

# The handlers that differ most in what they leave on a ledger; all the others run on the embedded one.
HERE = (HONOURED, ASKED, UNREPEATABLE, SAME_DATABASE, JOINED, FROM_A_TASK)


@pytest.fixture(scope="module")
def terminals(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[KeyMode, TerminalProcess]]:
    with started_terminals(tmp_path_factory.mktemp("terminals")) as started:
        yield started


@pytest.fixture(scope="module")
def site(
    postgres: PostgresServer | GivenServer, terminals: dict[KeyMode, TerminalProcess]
) -> Iterator[ServerSite]:
    made = ServerSite(Path("postgres"), terminals, url=postgres.new_database())
    yield made
    made.close()


@pytest.fixture(scope="module")
def passes(site: ServerSite) -> dict[str, Counter[str]]:
    return site.passes(HERE)


share = pytest.mark.parametrize("share", [2, pytest.param(1, marks=pytest.mark.soak)])


@share
@pytest.mark.parametrize("name", CRASH_POINTS)
def test_crash_at_every_point_is_recovered(
    site: ServerSite, passes: dict[str, Counter[str]], name: str, share: int
) -> None:
    """Killed here by any handler, an event is finished and finished once, by a delivery or a worker.

    In CI a handler that passes the point more than twice dies the first, third, fifth time.
    """
    fired = 0
    for number, scenario in enumerate(HERE):
        for occurrence in range(1, passes[scenario.name][name] + 1, share):
            by_reconciler = bool((number + occurrence) % 2)
            event = site.die_at(scenario, (name, occurrence))
            site.recover(scenario, event, by_reconciler=by_reconciler)
            site.check(scenario, event, (scenario.name, name, occurrence, by_reconciler))
            fired += 1
    if not fired:  # only recoveries come here
        for scenario in (HONOURED, ASKED):
            fired += die_again(site, scenario, name, share)
    assert fired, f"{name} was never reached"


def die_again(site: ServerSite, scenario: Scenario, name: str, share: int) -> int:
    """Kills the recovery of a dead worker at the point, each time or every other; returns how often."""
    fired = 0
    pilot = site.die_at(scenario, ("effect.after", 1))
    for turn, reached in enumerate(site.recover(scenario, pilot, by_reconciler=True)):
        for occurrence in range(1, reached[name] + 1, share):
            event = site.die_at(scenario, ("effect.after", 1))
            site.recover(scenario, event, by_reconciler=True, crash=(turn, (name, occurrence)))
            site.check(scenario, event, (scenario.name, name, turn, occurrence))
            fired += 1
    return fired


@share
@pytest.mark.parametrize("name", ["recover.after", "commit.before", "commit.after", "settle.after"])
def test_crash_of_a_caretaker_is_recovered(site: ServerSite, name: str, share: int) -> None:
    """The successor of a dead worker dies too, wherever it is; the next one finishes (I6)."""
    assert sum(die_again(site, scenario, name, share) for scenario in (HONOURED, ASKED)) >= 2


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.soak) for n in range(1, 10))])
def test_killed_workers_among_several_leave_nothing_undone(site: ServerSite, seed: int) -> None:
    """Four processes are handed overlapping streams, two die at random points; the totals are right."""
    choose = random.Random(seed)
    for scenario in (HONOURED, UNREPEATABLE):
        events = [site.new_event(scenario) for _ in range(24)]
        crashes = [(choose.choice(["effect.after", "commit.after", "settle.before"]), choose.randint(2, 9))]
        crashes.append((choose.choice(["reserve.after", "commit.before", "effect.before"]), 3))
        # Given four workers with overlapping streams in their own orders, two of which will die; the first
        # has some events to itself, so that it comes to its crash however late it starts
        own, shared = events[:9], events[9:]
        streams = [[*own, *choose.sample(shared, 9)], *(choose.sample(shared, 13) for _ in range(3))]
        choose.shuffle(streams[0])
        with contextlib.ExitStack() as stack:
            workers = [
                stack.enter_context(
                    site.fork_delivery(
                        scenario,
                        *streams[number],
                        crashpoints=armed(crashes[number]) if number < 2 else None,
                    )
                )
                for number in range(4)
            ]
            # When they have ended, one way or the other
            codes = [worker.wait(2 * DEADLINE_SECONDS) for worker in workers]
        assert codes[2:] == [0, 0]
        assert KILLED in codes[:2], "a run in which nobody died shows nothing"
        # Then every event can be finished, and was done once
        for event in events:
            site.recover(scenario, event, by_reconciler=bool(seed % 2))
            site.check(scenario, event, (seed, scenario.name, crashes))
        states = Counter(site.state(event) for event in events)
        assert states[State.COMMITTED] >= len(events) - 2
