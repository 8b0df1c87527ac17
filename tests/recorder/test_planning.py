"""Plans: order, moments and dates of a replay, and a recording as a schedule of the simulator."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lab.broken_gates import BROKEN_GATES
from lab.simulator.outcome import play
from lab.simulator.recorded import DELIVERIES_MAX, schedule_of
from oncegate.errors import ConfigError
from oncegate.recorder.planning import make_plan
from oncegate.recorder.recording import ArrivalLine, Header, Recording, SurfaceLine
from oncegate.recorder.summary import summarise

BEGAN = "2026-03-02T06:00:00Z"
BEGAN_MS = 1772431200000


def recording(*arrivals: tuple[int, str, str | None], surface: str = "s") -> Recording:
    """Arrivals as (milliseconds, id, time); another content is an id with a mark."""
    lines = []
    for number, (at_ms, ident, time) in enumerate(arrivals, start=1):
        payload: dict[str, Any] = {"id": ident, "meta": {"at": time}}
        lines.append(
            ArrivalLine(
                number,
                at_ms,
                surface,
                event=ident.rstrip("!"),
                content=ident,
                payload=msgspec.Raw(msgspec.json.encode(payload)),
            )
        )
    return Recording(Header(1, BEGAN), tuple(lines), {surface: SurfaceLine(surface, True, "meta.at")})


MANY = recording(*((n * 1000, f"e{n % 7}", "2026-03-02T06:00:00Z") for n in range(40)))


def times(plan: list[Any]) -> list[str]:
    return [one.payload["meta"]["at"] for one in plan]


def test_played_as_it_was_nothing_is_changed() -> None:
    plan = make_plan(MANY)
    assert [one.arrival for one in plan] == list(MANY.arrivals)
    assert [one.at_ms for one in plan] == [one.at_ms for one in MANY.arrivals]
    assert set(times(plan)) == {"2026-03-02T06:00:00Z"}


def test_a_seed_decides_the_order_and_moments_stay() -> None:
    plan, again, other = (make_plan(MANY, shuffle_seed=seed) for seed in (7, 7, 8))
    assert plan == again
    assert [one.arrival.n for one in plan] != [one.arrival.n for one in other]
    assert [one.at_ms for one in plan] == [one.at_ms for one in MANY.arrivals]
    assert sorted(one.arrival.n for one in plan) == list(range(1, 41))


@pytest.mark.parametrize("seed", range(20))
def test_all_arrivals_of_an_event_are_dated_alike_and_as_old_as_they_were(seed: int) -> None:
    """Shuffled, an event's first arrival is as long after its time as its first arrival was."""
    given = recording(
        (0, "a", "2026-03-02T05:59:58Z"),
        (600_000, "b", "2026-03-02T06:09:58Z"),
        (1_200_000, "a", "2026-03-02T05:59:58Z"),
        (1_800_000, "b", "2026-03-02T06:09:58Z"),
    )
    plan = make_plan(given, shuffle_seed=seed)
    for ident in "ab":
        own = [one for one in plan if one.payload["id"] == ident]
        assert len(set(times(own))) == 1
        from oncegate.model.timestamps import parse_timestamp

        occurred_ms = parse_timestamp(times(own)[0]).timestamp() * 1000
        assert BEGAN_MS + own[0].at_ms - occurred_ms == 2000


def test_for_another_clock_events_are_dated_by_when_they_will_be_sent() -> None:
    given = recording((0, "a", "2026-03-02T05:59:58Z"), (60_000, "b", "2026-03-02T06:00:58Z"))
    at_once = make_plan(given, starts_at_ms=BEGAN_MS + 10**9)
    assert times(at_once) == ["2026-03-13T19:46:38.000Z", "2026-03-13T19:46:38.000Z"]
    scaled = make_plan(given, starts_at_ms=BEGAN_MS + 10**9, speed=2)
    assert times(scaled) == ["2026-03-13T19:46:38.000Z", "2026-03-13T19:47:08.000Z"]


@pytest.mark.parametrize("time", ["yesterday", None, "9999-12-31T23:59:59Z"])
def test_a_time_that_cannot_be_moved_stays_as_it_is(time: str | None) -> None:
    """What was in quarantine for its time goes there again."""
    (one,) = make_plan(recording((0, "a", time)), starts_at_ms=BEGAN_MS + 10**12)
    assert one.payload["meta"]["at"] == time


def test_moments_never_go_backwards() -> None:
    """Also where the clock of the recording was set back."""
    plan = make_plan(recording((5000, "a", None), (1000, "b", None), (6000, "c", None)))
    assert [(one.payload["id"], one.at_ms) for one in plan] == [("a", 5000), ("b", 5000), ("c", 6000)]


def test_a_summary_classifies_repeats_as_the_gate_would() -> None:
    hour = 3_600_000
    given = recording((0, "a", None), (10, "a", None), (20, "a!", None), (2 * hour, "a", None))
    found = summarise(given)
    assert found.repeats == {"conflict": 1, "expected_replay": 1, "late_replay": 1}
    assert (found.arrivals, found.events) == (4, 1)
    assert found.last_at == "2026-03-02T08:00:00.000Z"


def test_the_simulator_delivers_the_same_events_at_the_same_moments() -> None:
    given = recording((1000, "a", None), (1020, "a", None), (9000, "b", None), (60_000, "a!", None))
    schedule = schedule_of(given, 5)
    assert [(one.at, one.event, one.changed) for one in schedule.deliveries] == [
        (0.0, 0, False),
        (0.02, 0, False),
        (8.0, 1, False),
        (59.0, 0, True),
    ]
    assert schedule == schedule_of(given, 5)
    assert play(schedule).violations == []


@pytest.mark.slow
def test_a_broken_gate_is_caught_by_a_recording() -> None:
    """Yesterday's traffic, with faults, against a gate that checks before it inserts."""
    given = recording(*((n // 3 * 10, f"e{n // 3}", None) for n in range(30)))
    broken = BROKEN_GATES["CheckThenInsert"]()
    assert any(play(schedule_of(given, seed), broken).violations for seed in range(1, 6))
    assert not any(play(schedule_of(given, seed)).violations for seed in range(1, 6))


def test_the_simulator_refuses_more_than_it_can_play() -> None:
    too_many = recording(*((n, "a", None) for n in range(DELIVERIES_MAX + 1)))
    with pytest.raises(ConfigError, match="more than the simulator plays"):
        schedule_of(too_many, 1)
    with pytest.raises(ConfigError, match="no arrival to play"):
        schedule_of(MANY, 1, surfaces=["other"])
