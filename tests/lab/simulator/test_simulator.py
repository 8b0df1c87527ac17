"""The simulator: the production gate keeps its promises under seeded faults; the runs count (D7, I21)."""

from __future__ import annotations

from collections import Counter

import pytest

from lab.simulator.campaign import campaign, play_seeds
from lab.simulator.minimise import minimise
from lab.simulator.outcome import play, play_with_trace
from lab.simulator.schedule import Delivery, Event, Fate, Fault, FaultKind, Schedule, describe
from lab.simulator.tally import Tally, expected_counts
from lab.simulator.workload import make_schedule

# test_near.py plays the seeds before these; half as many are enough that every fault and crash point fires.
FIRST, FIXED_SET = 601, 900


@pytest.fixture(scope="module")
def fixed_set() -> Tally:
    return campaign(FIRST, goes_on=lambda _: True, schedules_max=FIXED_SET)


@pytest.mark.slow
def test_fixed_set_of_schedules_keeps_every_promise(fixed_set):
    assert fixed_set.failures == {}
    assert fixed_set.schedules == FIXED_SET


def test_fixed_set_counts_because_everything_fired_and_progress_was_made(fixed_set):
    assert list(fixed_set.gaps()) == []


@pytest.mark.slow
def test_same_seed_gives_the_same_trace_whatever_ran_before():
    seeds = range(60)
    forwards = {seed: play(make_schedule(seed)).digest for seed in seeds}
    backwards = {seed: play(make_schedule(seed)).digest for seed in reversed(seeds)}

    assert forwards == backwards
    assert len(set(forwards.values())) > len(seeds) * 0.9, "and different seeds give different traces"


def test_schedule_survives_being_written_on_one_line():
    for seed in range(50):
        schedule = make_schedule(seed)

        line = schedule.encode()

        assert "\n" not in line
        assert Schedule.decode(line) == schedule
        assert len(describe(schedule)) == len(schedule.items)


def test_workload_has_every_kind_of_arrival():
    schedules = [make_schedule(seed) for seed in range(300)]
    deliveries = [item for schedule in schedules for item in schedule.deliveries]
    repeats = Counter(len(schedule.deliveries) - len(schedule.events) for schedule in schedules)

    assert any(item.changed for item in deliveries), "near-duplicates"
    assert any(item.at > 86_400 for item in deliveries), "late replays"
    assert any(repeats[count] for count in (2, 3, 4)), "bursts of duplicates"
    assert {event.fate for schedule in schedules for event in schedule.events} == set(Fate)
    assert {fault.kind for schedule in schedules for fault in schedule.faults} == set(FaultKind)


def test_quiet_schedule_runs_once_and_replays():
    event = Event("book", "x", ("a", "b"))
    schedule = Schedule(1, (event,), tuple(Delivery(float(at), 0) for at in range(5)))

    outcome = play(schedule)

    assert outcome.violations == []
    assert (outcome.effects, outcome.committed) == (1, 1)
    assert outcome.counts == {"answer: run": 1, "answer: replay": 4}


def test_crash_after_the_effect_is_recovered_without_a_second_effect():
    for surface in ("book", "print", "trip", "pay"):
        event = Event(surface, "x", ("a", "b"))
        crash = Fault(FaultKind.CRASH_AT_POINT, name="effect.after", seconds=0.5)

        outcome, trace = play_with_trace(Schedule(1, (event,), (Delivery(1.0, 0),), (crash,)))

        assert outcome.violations == []
        assert outcome.committed == 1
        assert any(words[1] == "crash" for words in trace)


def test_dead_worker_does_nothing_any_more():
    event = Event("book", "x", ("a", "b"))
    crash = Fault(FaultKind.CRASH_AT_POINT, name="reserve.after", seconds=7_200.0)

    _, trace = play_with_trace(Schedule(1, (event,), (Delivery(1.0, 0, worker=1),), (crash,)))

    crashed = next(words[2] for words in trace if words[1] == "crash")
    died = next(place for place, words in enumerate(trace) if words[1] == "crash")
    assert all(crashed not in words for words in trace[died + 1 :])


def test_run_in_which_nothing_happened_does_not_count():
    tally = play_seeds(1, 3)
    tally.committed = 0

    gaps = list(tally.gaps())

    assert any("only 0 events" in gap for gap in gaps)
    assert any("never happened" in gap for gap in gaps)
    assert set(expected_counts()) - set(tally.counts)


def test_minimiser_leaves_what_is_needed():
    schedule = make_schedule(5)
    needed = (schedule.deliveries[0], schedule.faults[0])

    small = minimise(schedule, lambda candidate: set(needed) <= set(candidate.items))

    assert small.items == needed
