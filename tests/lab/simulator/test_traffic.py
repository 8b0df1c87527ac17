"""Lanes, feed and rulings in the simulator: promises are kept, faults strike, and breaches are seen."""

from __future__ import annotations

import sqlite3
from collections import Counter
from dataclasses import replace

import pytest

from lab.simulator.checkers.violation import Violation
from lab.simulator.tally import Tally
from lab.simulator.traffic import worker as traffic_worker
from lab.simulator.traffic.checkers import check_traffic
from lab.simulator.traffic.ledgers import ledger_of_a_run
from lab.simulator.traffic.outcome import (
    expected_traffic,
    play_traffic,
    play_traffic_with_trace,
)
from lab.simulator.traffic.plan import (
    TRAFFIC_EVERY,
    Click,
    Emit,
    Publish,
    TrafficSchedule,
    make_traffic,
)
from lab.simulator.traffic.shrinking import smallest_traffic
from lab.simulator.traffic.world import TrafficWorld
from oncegate.lanes.leases import Leases
from oncegate.store import LogKind

SEEDS = range(TRAFFIC_EVERY, 120 * TRAFFIC_EVERY, TRAFFIC_EVERY)
A_LITTLE = TrafficSchedule(
    1, (Emit(0.1, "a"), Emit(0.2, "a"), Publish(0.1, "b"), Publish(0.3, "b"), Click(0.5, 0, True, "ann"))
)


@pytest.mark.slow
def test_schedules_keep_every_promise_and_nothing_is_left_to_chance():
    counts: Counter[str] = Counter()
    for seed in SEEDS:
        outcome = play_traffic(make_traffic(seed))
        assert outcome.violations == [], seed
        counts += outcome.counts

    assert [name for name in expected_traffic() if not counts[name]] == []


def test_same_seed_gives_the_same_trace():
    first, again = play_traffic(make_traffic(160)), play_traffic(make_traffic(160))

    assert first.digest == again.digest


def test_runs_without_traffic_do_not_count():
    assert "never happened: traffic: acknowledged" in list(Tally().gaps())


def test_a_breach_makes_a_campaign_fail_and_says_which_kind_it_was():
    outcome, _ = play_traffic_with_trace(A_LITTLE)
    outcome.violations = _ended_badly()
    tally = Tally()

    tally.add_traffic(16, outcome)

    assert tally.failed == 1
    assert tally.failures[16][0].startswith("traffic: I10")


def _ended_badly() -> list[Violation]:
    with ledger_of_a_run() as database:
        world = TrafficWorld(A_LITTLE, database)
        world.run()
        database.execute("UPDATE oncegate_delivery SET seq = 3 WHERE seq = 2")
        return check_traffic(world.evidence)


def _found(spoil) -> set[str]:
    with ledger_of_a_run() as database:
        world = TrafficWorld(A_LITTLE, database)
        world.run()
        assert check_traffic(world.evidence) == []
        spoil(world)
        return {violation.checker for violation in check_traffic(world.evidence)}


def _rows(database: sqlite3.Connection) -> list[str]:
    return list(database.iterdump())


def test_each_run_begins_with_the_same_ledger_whatever_the_one_before_left_in_it():
    # Given a ledger as a run finds it
    with ledger_of_a_run() as database:
        at_first = _rows(database)
    # When a run has been played in it and another has left its transaction open
    outcome = play_traffic(make_traffic(TRAFFIC_EVERY))
    assert sum(outcome.counts.values()) > 0
    with ledger_of_a_run() as database:
        database.execute("BEGIN")
        database.execute("DELETE FROM oncegate_meta")
    # Then the next finds the same
    with ledger_of_a_run() as database:
        assert _rows(database) == at_first


def test_a_ledger_in_which_a_run_came_to_grief_is_not_used_again():
    with pytest.raises(RuntimeError), ledger_of_a_run() as spoilt:
        raise RuntimeError("a mistake in a checker")

    with ledger_of_a_run() as database:
        assert database is not spoilt


def _sql(statement: str, *values):
    return lambda world: world.database.execute(statement, values)


def _arrive_early(world: TrafficWorld) -> None:
    world.evidence.arrived.append(replace(world.evidence.arrived[-1], head_seq=1))


def _send_under_an_old_fence(world: TrafficWorld) -> None:
    world.evidence.sent.append(replace(world.evidence.sent[-1], lane_fence=99))


@pytest.mark.parametrize(
    ("spoil", "checker"),
    [
        (_sql("UPDATE oncegate_delivery SET seq = 3 WHERE seq = 2"), "lanes_have_no_gap"),
        (_sql("DELETE FROM oncegate_delivery WHERE seq = 2"), "lanes_have_no_gap"),
        (lambda world: world.evidence.arrived.reverse(), "first_arrivals_are_in_order"),
        (_arrive_early, "nobody_overtakes"),
        (_send_under_an_old_fence, "one_in_flight"),
        (_sql("DELETE FROM oncegate_ack"), "deliveries_end_as_meant"),
        (lambda world: world.evidence.arrived.clear(), "deliveries_end_as_meant"),
        (lambda world: world.evidence.by_cursor.events.pop(), "readers_see_all_once_in_order"),
        (lambda world: world.evidence.by_cursor.events.reverse(), "readers_see_all_once_in_order"),
        (lambda world: world.evidence.by_ack.events.reverse(), "readers_see_all_once_in_order"),
        (
            lambda world: world.evidence.by_cursor.events.append(world.evidence.by_cursor.events[0]),
            "readers_see_all_once_in_order",
        ),
        (_sql("UPDATE oncegate_feed SET seq = 3 WHERE seq = 2"), "feed_has_all_once"),
        (_sql("DELETE FROM oncegate_feed WHERE seq = 2"), "feed_has_all_once"),
        (
            _sql(
                "INSERT INTO oncegate_log (entry, kind, at, actor) SELECT entry, ?, at, actor"
                " FROM oncegate_log WHERE kind = ?",
                LogKind.REJECTED,
                LogKind.APPROVED,
            ),
            "rulings_count_once",
        ),
        (lambda world: world.evidence.told.append(world.evidence.told[0]), "rulings_count_once"),
        (_sql("UPDATE oncegate_entry SET state = 3"), "rulings_count_once"),
        (lambda world: world.evidence.unsettled.append("something"), "all_settles"),
    ],
)
def test_checker_sees_what_it_is_there_for(spoil, checker):
    assert checker in _found(spoil)


def _first_breach(monkeypatch_done: str, seeds=range(1, 400)) -> tuple[TrafficSchedule, list]:
    for seed in seeds:
        schedule = make_traffic(seed)
        violations = play_traffic(schedule).violations
        if violations:
            return schedule, violations
    raise AssertionError(f"{monkeypatch_done}: nobody noticed")


@pytest.mark.slow
def test_engine_that_does_not_look_at_its_lease_is_caught_and_made_small(monkeypatch):
    """A stalled engine that goes on as if nothing had happened sends what another one has."""
    monkeypatch.setattr(Leases, "holds", lambda self, delivery, now: True)

    schedule, violations = _first_breach("leases are not looked at")

    assert "one_in_flight" in {violation.checker for violation in violations}
    small = smallest_traffic(schedule, violations)
    assert 0 < len(small.items) <= 4


@pytest.mark.slow
def test_reader_that_saves_its_cursor_first_is_caught(monkeypatch):
    """What it had not dealt with when it died is never read again."""
    honest = traffic_worker.TrafficWorker._keep

    def forgetful(self, reading, page):
        if self.number == 0 and page.events and self.world.rng.random() < 0.3:
            reading.cursor = page.next_cursor
            return
        honest(self, reading, page)

    monkeypatch.setattr(traffic_worker.TrafficWorker, "_keep", forgetful)

    _, violations = _first_breach("cursors are saved first", range(1, 30))

    assert {violation.invariant for violation in violations} & {"I12", "I2"}
