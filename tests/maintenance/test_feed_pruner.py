"""Published events go when they are older than the feed's retention, followers' deliveries before them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from oncegate import Gate
from oncegate.errors import CursorExpired
from oncegate.feed import Feed
from oncegate.maintenance import feed_pruner
from oncegate.maintenance.feed_pruner import FeedPruner
from oncegate.sender.addresses import AddressPolicy
from oncegate.sender.endpoint_registry import EndpointChange, followers
from oncegate.sender.endpoints import new_endpoint
from oncegate.sender.sender import SenderOnCommits
from oncegate.store import Acknowledgement, HeadsWanted
from oncegate.testing.clock import ManualClock

DAY = 86_400


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def gate(tmp_path: Path, clock: ManualClock) -> Gate:
    return Gate(f"sqlite:///{tmp_path}/ledger.db", clock=clock)


def _publish(gate: Gate, event_id: str) -> int:
    feed = Feed(gate)
    return feed.publish_sync(tenant="acme", event_id=event_id, key="k", data=1).seq


def _ids(gate: Gate) -> list[str]:
    return [event.id for event in Feed(gate).read_sync("new", tenant="acme", since="oldest").events]


def _pruner(gate: Gate) -> FeedPruner:
    return FeedPruner(gate.engine.store, gate.engine.clock, timedelta(days=30), followers=followers)


def test_old_events_go_and_slow_readers_are_told(gate: Gate, clock: ManualClock) -> None:
    """What is younger stays; the key's seq goes on counting."""
    with gate:
        feed = Feed(gate)
        for number in range(3):
            _publish(gate, f"e-{number}")
            clock.advance(DAY)
        slow = feed.read_sync("slow", tenant="acme", limit=1).next_cursor
        clock.advance(28 * DAY + 60)

        report = _pruner(gate).run_once()

        assert (report.events, report.is_complete) == (2, True)
        assert _ids(gate) == ["e-2"]
        with pytest.raises(CursorExpired):
            feed.read_sync("slow", tenant="acme", since=slow)
        assert _publish(gate, "e-3") == 4


def test_a_clock_that_leaps_ahead_is_not_believed(gate: Gate, clock: ManualClock) -> None:
    with gate:
        _publish(gate, "e-1")
        _pruner(gate).run_once()
        clock.step_wall(400 * DAY)
        assert _pruner(gate).run_once().events == 0
        assert _ids(gate) == ["e-1"]


def test_a_bounded_run_goes_on_next_time(
    gate: Gate, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_pruner, "STEP_EVENTS", 2)
    monkeypatch.setattr(feed_pruner, "STEPS_MAX", 2)
    with gate:
        for number in range(5):
            _publish(gate, f"e-{number}")
        clock.advance(31 * DAY)
        reports = [_pruner(gate).run_once() for _ in range(2)]
    assert [(one.events, one.is_complete) for one in reports] == [(4, False), (1, True)]


def test_a_lane_never_knows_an_id_that_the_feed_has_forgotten(gate: Gate, clock: ManualClock) -> None:
    """Given an event that was delivered; when it is forgotten and published anew; it is delivered anew."""
    with gate:
        sender = SenderOnCommits(
            gate.engine.commits, clock=clock, policy=AddressPolicy.of(allow_http=True, allow_loopback=True)
        )
        sender.endpoints.add(
            new_endpoint("team", "http://127.0.0.1:9/", follows="acme"), EndpointChange("a", "b")
        )
        _publish(gate, "e-1")
        assert _delivered(gate, clock) == ["e-1"]
        clock.advance(31 * DAY)

        report = _pruner(gate).run_once()

        assert (report.events, report.deliveries) == (1, 1)
        assert _publish(gate, "e-1") == 2
        assert _delivered(gate, clock) == ["e-1"]


def _delivered(gate: Gate, clock: ManualClock) -> list[str]:
    """Takes what is due for the endpoint and acknowledges it."""
    session = gate.engine.store.connect()
    try:
        with session.unit():
            found = session.lease_heads(HeadsWanted((("team", 10),), 1000, 7)).deliveries
            session.finish(
                [
                    Acknowledgement(d.lane_id, d.seq, d.fence, d.holder, d.event_id, clock.wall_ms())
                    for d in found
                ]
            )
        return [one.event_id for one in found]
    finally:
        session.close()
