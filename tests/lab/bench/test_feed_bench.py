"""A compressed feed against real server processes: every event has one effect (A12, I1, I2)."""

from __future__ import annotations

from collections import Counter

import pytest

from lab.bench.feed import EVENTS, FeedBench, Report, make_feed


def play(days: float, seconds: float, **more: object) -> Report:
    """Plays a feed; on the embedded ledger with one process unless said otherwise."""
    given: dict[str, object] = {
        "processes": 1,
        "postgres": False,
        "seed": 7,
        "talk": lambda line: None,
    } | more
    return FeedBench(days=days, seconds=seconds, **given).run()  # type: ignore[arg-type]


def test_a_feed_is_the_same_for_the_same_seed_and_has_repeats() -> None:
    feed = make_feed(61.0, 60.0, seed=3)
    times = Counter(arrival.event_id for arrival in feed)
    assert feed == make_feed(61.0, 60.0, seed=3)
    assert len(times) == EVENTS
    assert 2 <= max(times.values()) <= 7
    assert feed == sorted(feed, key=lambda one: one.at_seconds)
    assert feed[0].at_seconds >= 0
    assert feed[-1].at_seconds <= 60.0


@pytest.mark.slow
def test_some_hours_of_a_feed_lose_and_double_nothing() -> None:
    report = play(0.2, 0.5)
    assert (report.lost, report.doubled, report.unanswered) == (0, 0, 0)
    assert report.deliveries > report.events
    assert report.replays >= report.deliveries - report.events - report.tries_again


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("days", "processes"), [(1.0, 1), (61.0, 1), (61.0, 3)])
def test_days_of_a_feed_in_a_minute_lose_and_double_nothing(days: float, processes: int) -> None:
    report = play(days, 60.0, processes=processes, postgres=processes > 1)
    assert (report.lost, report.doubled, report.unanswered) == (0, 0, 0), report
