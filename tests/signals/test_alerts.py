"""Alarms stay quiet on a steady week and are red within minutes on the incidents (A7-A9, D5, E5)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from oncegate.errors import ConfigError
from oncegate.lanes.circuit_status import CircuitView
from oncegate.model.circuit import CircuitState
from oncegate.model.states import State
from oncegate.signals.alarms import AlarmChange, AlarmNotice, Alarms, advance
from oncegate.signals.alerts import Signal, evaluate, worst
from oncegate.signals.definition import Level
from oncegate.signals.definitions import DEFINITIONS, REPEATS_HIGH, Thresholds
from oncegate.signals.snapshot import (
    DAY,
    HOUR,
    TEN_MINUTES,
    WEEK,
    Counts,
    Snapshot,
    Watcher,
    WatchWord,
    WorkerStatus,
)
from oncegate.store import DestinationState, DestinationView, Doubled, Unscanned, Waiting, What
from oncegate.store.feed import ReaderPosition
from oncegate.store.notices import WorkerWord
from oncegate.store.tallies import of_latency
from tests.signals import weeks
from tests.signals.weeks import BUSY, QUIET, WEEK_MINUTES, Recorded, with_incident

TWO_WEEKS = weeks.steady_week()
STEADY = Recorded(TWO_WEEKS)


def paging(snapshot: Snapshot, thresholds: Thresholds | None = None) -> set[tuple[str, str]]:
    return {one.place for one in evaluate(snapshot, thresholds) if one.level is Level.PAGE}


def first_page(recorded: Recorded, minutes: range) -> tuple[int, set[tuple[str, str]]]:
    for minute in minutes:
        found = paging(recorded.at(minute))
        if found:
            return minute, found
    raise AssertionError("nobody was called")


def snapshot(
    windows: dict[int, Counts] | None = None, waiting: tuple[Waiting, ...] = (), **more: Any
) -> Snapshot:
    by_length = {length: {"orders": counts} for length, counts in (windows or {}).items()}
    return Snapshot(1_780_000_000_000, 10**9, by_length, waiting, **more)


def counts(**seen: int) -> Counts:
    return Counts({What[name.upper()]: (count, 0) for name, count in seen.items()})


def of(found: list[Signal], name: str) -> Signal:
    return next(one for one in found if one.definition.name == name)


def test_the_recorded_week_is_what_its_script_makes() -> None:
    assert weeks.FILE.read_text("ascii") == weeks.pack(weeks.make_week())


@pytest.mark.slow
def test_nobody_is_called_in_a_steady_week() -> None:
    """Nights, weekends and a changing share of repeats: not one alarm, whenever one looks."""
    for minute in range(0, WEEK_MINUTES, 7):
        found = evaluate(STEADY.at(minute))
        assert worst(found) <= Level.OK, (minute, found[0])


@pytest.mark.slow
def test_the_monday_storm_calls_within_minutes() -> None:
    storm = with_incident(weeks.monday_storm)
    minute, found = first_page(storm, range(WEEK_MINUTES))
    assert found == {("repeat_ratio_high", QUIET)}
    assert 330 < minute <= 330 + 10


@pytest.mark.slow
def test_the_daylight_saving_incident_calls_within_minutes() -> None:
    """By the eighth of nineteen repeats at the latest, and long before Wednesday."""
    incident = with_incident(weeks.daylight_saving)
    begin = 6 * weeks.DAY + 87
    minute, found = first_page(incident, range(begin - weeks.DAY // 4, WEEK_MINUTES))
    assert found == {("repeat_ratio_high", QUIET)}
    assert begin < minute <= begin + 25


@pytest.mark.slow
def test_broken_key_derivation_calls_within_minutes_on_a_busy_feed() -> None:
    broken = with_incident(weeks.broken_keys)
    begin = 2 * weeks.DAY + 600
    minute, found = first_page(broken, range(begin - weeks.DAY // 4, WEEK_MINUTES))
    assert found == {("repeat_ratio_zero", BUSY)}
    assert begin < minute <= begin + 25


def test_broken_key_derivation_from_the_first_day_calls_too() -> None:
    """A feed that never had a repeat is held to the low end of normal."""
    thousand = {length: counts(fresh=1_000) for length in (HOUR, DAY, WEEK)}
    assert paging(snapshot(thousand)) == {("repeat_ratio_zero", "orders")}
    assert paging(snapshot(thousand), Thresholds(no_repeats=frozenset({"orders"}))) == set()
    fewer = {length: counts(fresh=999) for length in (HOUR, DAY, WEEK)}
    assert paging(snapshot(fewer)) == set()


def test_one_repeat_shows_that_keys_work() -> None:
    windows = {length: counts(fresh=5_000, replay=1) for length in (TEN_MINUTES, HOUR, DAY, WEEK)}
    assert of(evaluate(snapshot(windows)), "repeat_ratio_zero").level is Level.OK


@pytest.mark.parametrize(
    ("fresh", "replay", "level"),
    [(80, 20, Level.PAGE), (81, 19, Level.OK), (5, 7, Level.OK), (5, 8, Level.PAGE), (0, 8, Level.PAGE)],
)
def test_a_fifth_of_arrivals_known_already_calls(fresh: int, replay: int, level: Level) -> None:
    """Provided there were enough of them to be no chance."""
    found = of(evaluate(snapshot({TEN_MINUTES: counts(fresh=fresh, replay=replay)})), "repeat_ratio_high")
    assert found.level is level


def test_retries_that_were_asked_for_count_on_neither_side() -> None:
    """A7: an outage of ours pages nobody as a sender's fault, and hides no fault of a sender."""
    retries = {"retry": 500, "busy": 9_000, "awaited": 400, "recover": 100}
    outage = {length: counts(fresh=1_000, **retries) for length in (TEN_MINUTES, HOUR, DAY, WEEK)}
    assert paging(snapshot(outage)) == set()
    found = of(
        evaluate(snapshot({TEN_MINUTES: counts(fresh=80, replay=20, **retries)})), "repeat_ratio_high"
    )
    assert (found.level, found.detail) == (Level.PAGE, "20 of 100")


def waiting(state: State, age_seconds: float, reason: str = "", **more: int) -> Waiting:
    ticks = 10**9 - int(age_seconds * 1000)
    within = more.get("decide_within_ms")
    return Waiting(
        "orders", state, reason, more.get("count", 1), ticks, 0, more.get("lapsed", 0), within,
        more.get("tried_ms", 0),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("item", "name", "level"),
    [
        (waiting(State.IN_FLIGHT, 599), "in_flight_age", Level.OK),
        (waiting(State.IN_FLIGHT, 600), "in_flight_age", Level.PAGE),
        (waiting(State.RETRYABLE, 6000), "in_flight_age", Level.OK),
        (waiting(State.RETRYABLE, 2, tried_ms=6 * 3_600_000 - 1), "retried_for", Level.OK),
        (waiting(State.RETRYABLE, 2, tried_ms=6 * 3_600_000), "retried_for", Level.TICKET),
        (waiting(State.RETRYABLE, 2, tried_ms=72 * 3_600_000), "retried_for", Level.PAGE),
        (waiting(State.HELD, 1, "two_resources"), "resources_per_key", Level.PAGE),
        (waiting(State.HELD, 1, "in_doubt"), "waiting_for_person", Level.TICKET),
        (waiting(State.HELD, 4 * 3600 - 1), "overdue", Level.OK),
        (waiting(State.HELD, 4 * 3600), "overdue", Level.PAGE),
        (waiting(State.UNKNOWN, 4 * 3600), "overdue", Level.PAGE),
        (waiting(State.QUARANTINED, 4 * 3600), "overdue", Level.PAGE),
        (waiting(State.QUARANTINED, 1), "quarantines", Level.PAGE),
        (waiting(State.HELD, 1), "quarantines", Level.OK),
        (waiting(State.HELD, 899, decide_within_ms=900_000), "deadline_missed", Level.OK),
        (waiting(State.HELD, 901, decide_within_ms=900_000), "deadline_missed", Level.PAGE),
        (waiting(State.HELD, 4 * 3600), "deadline_missed", Level.OK),
        (waiting(State.IN_FLIGHT, 60, lapsed=4, count=9), "reserved_not_settled", Level.OK),
        (waiting(State.IN_FLIGHT, 60, lapsed=5, count=9), "reserved_not_settled", Level.TICKET),
        (waiting(State.IN_FLIGHT, 60, lapsed=100, count=100), "reserved_not_settled", Level.PAGE),
    ],
)
def test_what_is_open_is_judged_by_age_and_number(item: Waiting, name: str, level: Level) -> None:
    assert of(evaluate(snapshot(waiting=(item,))), name).level is level


def test_stuck_in_flight_is_red_after_ten_minutes() -> None:
    """In the middle of a steady week one key stays in flight."""
    began = 10**9 + 600 * 60_000
    for minute, expected in ((609, set()), (610, {("in_flight_age", BUSY)})):
        item = Waiting(BUSY, State.IN_FLIGHT, "", 1, began, 0, 1)
        assert paging(STEADY.at(minute, (item,))) == expected


@pytest.mark.parametrize(
    ("seen", "name", "level"),
    [
        ({What.RECONCILED: (20, 0)}, "reconciliations", Level.TICKET),
        ({What.RECONCILED: (12, 0), What.RECOVER: (8, 0)}, "reconciliations", Level.TICKET),
        ({52: (10, 0)}, "late_replays", Level.TICKET),
        ({52: (9, 0)}, "late_replays", Level.OK),
        ({55: (1, 0)}, "sender_bugs", Level.TICKET),
        ({51: (500, 0)}, "sender_bugs", Level.OK),
        ({of_latency(900): (999, 0), of_latency(2_000_000): (1, 0)}, "reservation_p99", Level.OK),
        ({of_latency(900): (98, 0), of_latency(2_000_000): (2, 0)}, "reservation_p99", Level.PAGE),
        ({What.LOST: (1, 0)}, "sightings_lost", Level.TICKET),
    ],
)
def test_counts_are_judged_by_their_limits(seen: dict, name: str, level: Level) -> None:
    windows = {TEN_MINUTES: Counts(seen), HOUR: Counts(seen | {What.FRESH: (1, 0)})}
    assert of(evaluate(snapshot(windows)), name).level is level


def test_a_signal_that_nothing_was_seen_to_tell_by_is_unknown_not_right() -> None:
    """I28: a silent surface, a scan that is behind, and a ledger where nothing arrives are not green."""
    silent = evaluate(snapshot({DAY: counts(fresh=9), HOUR: counts()}))
    assert of(silent, "repeat_ratio_high").level is Level.UNKNOWN
    quiet = [one for one in silent if one.level <= Level.OK]
    assert worst(quiet) is Level.UNKNOWN
    assert worst([]) is Level.UNKNOWN
    busy = evaluate(snapshot({HOUR: counts(fresh=9)}))
    assert worst(busy) is Level.OK
    behind = replace(snapshot({HOUR: counts(fresh=9)}), unscanned=Unscanned(1_780_000_000_000 - 3_600_000))
    assert of(evaluate(behind), "doubled").level is Level.UNKNOWN


def test_a_watch_that_is_gone_is_told_to_those_who_look() -> None:
    """Silent after three of its intervals; never seen is a ticket once the ledger is older than an hour."""
    windows = {HOUR: counts(fresh=1), DAY: counts(fresh=9)}
    for age_ms, level in ((200_000, Level.OK), (260_000, Level.TICKET), (900_000, Level.PAGE)):
        watcher = Watcher("host, process 7", age_ms, WatchWord(60_000))
        found = evaluate(replace(snapshot(windows), watchers=(watcher,)))
        assert of(found, "watch_absent").level is level
    assert of(evaluate(snapshot(windows)), "watch_absent").level is Level.TICKET


def test_limits_are_set_by_place_and_by_operators() -> None:
    """A surface's own over those of all; what an operator has set over both."""
    item = waiting(State.QUARANTINED, 60)
    plain, lenient = snapshot(waiting=(item,)), Thresholds(places={"orders": {"quarantines": (1, 10)}})
    assert of(evaluate(plain), "quarantines").level is Level.PAGE
    assert of(evaluate(plain, lenient), "quarantines").level is Level.TICKET
    watcher = Watcher("host, process 7", 1, WatchWord(60_000, lenient))
    seen = replace(plain, watchers=(watcher,))
    assert of(evaluate(seen), "quarantines").level is Level.TICKET
    decided = Thresholds(places={"orders": {"quarantines": (None, None)}})
    assert of(evaluate(replace(seen, decided=decided)), "quarantines").level is Level.OK
    with pytest.raises(ConfigError, match="no signal 'quarantine'"):
        Thresholds(places={"orders": {"quarantine": (1, 2)}})


@pytest.mark.parametrize(
    ("ahead_ms", "level"),
    [(29_999, Level.OK), (-30_000, Level.TICKET), (150_000, Level.PAGE), (-(10**9), Level.PAGE)],
)
def test_a_clock_that_differs_from_the_ledgers_is_told(ahead_ms: int, level: Level) -> None:
    assert of(evaluate(snapshot(clock_ahead_ms=ahead_ms)), "clock_offset").level is level


def test_an_empty_ledger_is_quiet() -> None:
    assert evaluate(snapshot()) == []


def test_limits_can_be_changed_and_a_mistyped_one_is_refused() -> None:
    item = waiting(State.IN_FLIGHT, 120)
    assert paging(snapshot(waiting=(item,)), Thresholds({"in_flight_age": (None, 60)})) == {
        ("in_flight_age", "orders")
    }
    with pytest.raises(ConfigError, match="no signal 'in_flight'"):
        Thresholds({"in_flight": (None, 60)})


@pytest.mark.parametrize("step", [-7200, -300, 300, 7200, 365 * 86_400])
def test_a_wall_clock_that_steps_raises_nothing(step: int) -> None:
    """Open entries are aged by the ledger's own time, and empty windows say nothing."""
    item = Waiting(BUSY, State.HELD, "approval", 1, 10**9 + 3_000 * 60_000 - 1000, 0, 0)
    calm = STEADY.at(3_000, (item,))
    minute = 3_000 + step // 60
    stepped = STEADY.at(minute).windows if minute < WEEK_MINUTES else {}
    moved = Snapshot(calm.now_ms + step * 1000, calm.now_ticks, stepped, calm.waiting)
    assert paging(moved) == set()


# --- alarms ---------------------------------------------------------------------------------------


def shares(*values: float) -> Iterator[list[Signal]]:
    for value in values:
        level = Level.PAGE if value >= 0.2 else Level.OK
        yield [Signal(REPEATS_HIGH, "orders", value, level, 0.2)]


def told(values: tuple[float, ...], minutes: float = 1.0) -> list[AlarmChange]:
    alarms: Alarms = {}
    found: list[AlarmNotice] = []
    for number, signals in enumerate(shares(*values)):
        alarms, notices = advance(alarms, signals, int(number * minutes * 60_000))
        found += notices
    return [notice.change for notice in found]


def test_an_alarm_is_raised_once_and_calms_once() -> None:
    assert told((0.01, 0.3, 0.4, 0.3, *[0.01] * 8)) == [AlarmChange.RAISED, AlarmChange.CALMED]


def test_a_value_around_its_limit_does_not_flap() -> None:
    assert told((0.19, 0.21) * 50) == [AlarmChange.RAISED]


def test_a_value_just_below_its_limit_is_not_calm() -> None:
    assert told((0.3, *[0.19] * 30)) == [AlarmChange.RAISED]
    assert told((0.3, *[0.15] * 30)) == [AlarmChange.RAISED, AlarmChange.CALMED]


def test_a_short_calm_is_none() -> None:
    assert told((0.3, 0.0, 0.0, 0.3, 0.0, 0.0, 0.3)) == [AlarmChange.RAISED]


def test_who_does_not_answer_is_reminded() -> None:
    """Every four hours, not every minute."""
    assert told((0.3,) * 25, minutes=20) == [AlarmChange.RAISED, AlarmChange.STILL, AlarmChange.STILL]


def test_worse_is_told_at_once() -> None:
    ticket = Signal(REPEATS_HIGH, "orders", 0.1, Level.TICKET, 0.1)
    page = Signal(REPEATS_HIGH, "orders", 0.3, Level.PAGE, 0.2)
    alarms, first = advance({}, [ticket], 0)
    alarms, second = advance(alarms, [page], 1000)
    assert [one.change for one in (*first, *second)] == [AlarmChange.RAISED, AlarmChange.WORSE]


@given(st.lists(st.floats(0, 1), max_size=200))
def test_whatever_comes_raises_and_calms_take_turns(values: list[float]) -> None:
    changes = [one for one in told(tuple(values)) if one is not AlarmChange.STILL]
    assert all(one is not other for one, other in pairwise(changes))
    assert changes.count(AlarmChange.RAISED) <= 1 + len(values) // 5


def test_one_change_that_ran_twice_calls() -> None:
    """Also on a surface of which nothing else is known any more."""
    found = of(evaluate(snapshot(doubled=(Doubled("orders", 1, 0),))), "doubled")
    assert (found.level, found.value, found.surface) == (Level.PAGE, 1, "orders")


def quiet_after(minutes: int, at_hour: int, day: int = 2) -> Snapshot:
    """A steady week that falls silent so many minutes before an hour of one of its days."""
    now = day * DAY + at_hour * 60
    minutes_of = {place: list(counts) for place, counts in TWO_WEEKS.items()}
    for counts in minutes_of.values():
        begin = WEEK + now + 1 - minutes
        counts[begin : WEEK + now + 1] = [0] * minutes
    return Recorded(minutes_of).at(now)


def test_a_busy_feed_that_falls_silent_calls_within_the_hour() -> None:
    """By its own past at this time of day."""
    assert ("arrivals_stopped", BUSY) not in paging(quiet_after(9, at_hour=10))
    assert ("arrivals_stopped", BUSY) in paging(quiet_after(60, at_hour=10))
    found = [one for one in evaluate(quiet_after(60, at_hour=10)) if one.surface == BUSY]
    assert "on each of 7 days" in of(found, "arrivals_stopped").detail


@pytest.mark.parametrize(
    ("age_seconds", "level"), [(9, Level.OK), (60, Level.OK), (61, Level.TICKET), (300, Level.PAGE)]
)
def test_a_worker_that_falls_silent_calls(age_seconds: int, level: Level) -> None:
    """It says every 15 s that it is there, and may miss a few of its own runs."""
    gone = WorkerStatus("host, process 7", age_seconds * 1000, WorkerWord(5_000, ("orders",)))
    found = of(evaluate(snapshot({DAY: counts(fresh=1)}, workers=(gone,))), "worker_absent")
    assert found.level is level


def test_a_surface_that_no_worker_ever_looked_after_is_told() -> None:
    """Once it has had arrivals for longer than an hour; another surface's worker does not count."""
    other = WorkerStatus("host, process 7", 1_000, WorkerWord(5_000, ("picks",)))
    old, new = {DAY: counts(fresh=2), HOUR: counts(fresh=1)}, {DAY: counts(fresh=1), HOUR: counts(fresh=1)}
    assert of(evaluate(snapshot(old, workers=(other,))), "worker_absent").level is Level.TICKET
    assert of(evaluate(snapshot(new)), "worker_absent").level is Level.OK


@pytest.mark.parametrize(("seconds", "level"), [(599, Level.OK), (600, Level.TICKET), (3600, Level.PAGE)])
def test_a_reader_of_the_feed_that_lags_is_told(seconds: int, level: Level) -> None:
    """By the age of what it has not acknowledged, under its own name."""
    reader = ReaderPosition("acme", "planner", 3, 0, 12, snapshot().now_ms - seconds * 1000)
    found = of(evaluate(snapshot(readers=(reader,))), "feed_lag")
    assert (found.level, found.surface, found.detail) == (level, "acme/planner", "12 unread")


@pytest.mark.parametrize(("seconds", "level"), [(59, Level.OK), (60, Level.TICKET), (900, Level.PAGE)])
def test_a_destination_that_fails_as_a_whole_is_told(seconds: int, level: Level) -> None:
    """By how long its circuit has not been closed, with the error."""
    since = snapshot().now_ms - seconds * 1000
    circuit = CircuitView(CircuitState.OPEN, since, 1, 1, 5, "no connection", "host", 1)
    found = of(
        evaluate(snapshot(destinations=(destination(0, None),), circuits={"shop": circuit})), "circuit_open"
    )
    assert (found.level, found.detail) == (level, "no connection")


def test_a_downstream_that_is_down_is_told_without_any_endpoint() -> None:
    """I26: the end of its retries is days away, and a person hears of it after a minute."""
    since = snapshot().now_ms - 61_000
    circuit = CircuitView(CircuitState.OPEN, since, 1, 1, 5, "refused", "host", 1)
    found = of(evaluate(snapshot(circuits={"downstream bank": circuit})), "circuit_open")
    assert (found.level, found.surface, found.detail) == (Level.TICKET, "downstream bank", "refused")


def test_every_signal_says_what_it_means_and_what_to_do() -> None:
    for one in DEFINITIONS:
        assert one.meaning
        assert one.action
        assert one.query
        assert one.ticket is not None or one.page is not None


def destination(blocked: int, since_ms: int | None) -> DestinationView:
    """A destination with so many blocked keys."""
    return DestinationView(
        "shop", DestinationState.ACTIVE, None, None, 0, 1, 0, blocked, 40, 1, blocked,
        oldest_blocked_at_ms=since_ms,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("blocked", "hours", "count_level", "age_level"),
    [
        (0, None, Level.OK, Level.OK),
        (1, 1, Level.TICKET, Level.OK),
        (1, 4, Level.TICKET, Level.PAGE),
        (100, 1, Level.PAGE, Level.OK),
    ],
)
def test_blocked_keys_are_a_signal_of_their_destination(
    blocked: int, hours: int | None, count_level: Level, age_level: Level
) -> None:
    """One waits for somebody; many at once, or one for long, call somebody."""
    since = None if hours is None else snapshot().now_ms - hours * 3_600_000
    found = evaluate(snapshot(destinations=(destination(blocked, since),)))
    count, age = of(found, "lanes_blocked"), of(found, "lane_blocked_age")
    assert (count.value, count.level, count.surface) == (blocked, count_level, "shop")
    assert (age.value, age.level) == ((hours or 0) * 3600, age_level)
    assert "oncegate lanes blocked --endpoint shop" in count.action
    assert count.detail == ("40 events not delivered" if blocked else "")


@pytest.mark.parametrize(("seconds", "level"), [(None, Level.OK), (599, Level.OK), (600, Level.TICKET)])
def test_events_that_are_not_delivered_for_long_are_a_signal(seconds: int | None, level: Level) -> None:
    """Whether nobody delivers or nobody takes them."""
    since = None if seconds is None else snapshot().now_ms - seconds * 1000
    late = replace(destination(0, None), oldest_created_at_ms=since)
    found = of(evaluate(snapshot(destinations=(late,))), "delivery_age")
    assert (found.value, found.level) == (seconds or 0, level)


def test_scan_that_is_an_hour_behind_says_what_it_waits_for() -> None:
    behind = Unscanned(1_780_000_000_000 - 3_600_000, "process 4711")
    found = of(evaluate(snapshot(unscanned=behind)), "content_scan_behind")
    assert found.level is Level.TICKET
    assert "4711" in found.detail
    assert not [one for one in evaluate(snapshot()) if one.definition.name == "content_scan_behind"]
