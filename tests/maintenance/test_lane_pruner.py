"""The pruner of lanes: what was delivered goes after a while, dead letters and what waits never (I14)."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncegate.maintenance import lane_pruner
from oncegate.maintenance.lane_pruner import LanePruner
from oncegate.store import Acknowledgement, GivenUp, HeadsWanted, Outgoing, Policy, Session
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing import ManualClock

KEYS = ("a", "b", "c")
DAY_SECONDS = 24 * 3600


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> SqliteStore:
    return SqliteStore(tmp_path / "ledger.db", clock=clock)


def work(session: Session, clock: ManualClock, dead: str = "") -> None:
    """Enqueues two events of each key and delivers the first; one key's is a dead letter instead."""
    events = [
        Outgoing("endpoint", "", key, f"{key}-{n}", "t", b"{}", b"f", clock.wall_ms())
        for n in (1, 2) for key in KEYS
    ]  # fmt: skip
    with session.unit():
        session.enqueue(events)
    with session.unit():
        heads = session.lease_heads(HeadsWanted((("endpoint", 10),), 60_000, 7)).deliveries
        for head in heads:
            at = clock.wall_ms()
            lease = (head.lane_id, head.seq, head.fence, head.holder, head.event_id)
            if head.key == dead:
                session.dead_letter([GivenUp(*lease, at, "400", Policy.ADVANCE, "engine")])
            else:
                session.finish([Acknowledgement(*lease, at)])


def kept(store: SqliteStore) -> list[str]:
    with store.look() as reader:
        lanes = [reader.find_lane("endpoint", "", key) for key in KEYS]
        return [d.event_id for lane in lanes if lane for d in reader.deliveries(lane.lane_id, 1, 10)]


def test_delivered_events_go_after_their_time(store: SqliteStore, clock: ManualClock) -> None:
    """Seven days after the acknowledgement, not before; what waits and what is a dead letter stays."""
    session = store.connect()
    work(session, clock, dead="c")
    pruner = LanePruner(store, clock)

    clock.advance(7 * DAY_SECONDS - 1)
    assert (pruner.run_once().deliveries, len(kept(store))) == (0, 6)
    clock.advance(2)
    done = pruner.run_once()

    assert (done.deliveries, done.is_complete) == (2, True)
    assert kept(store) == ["a-2", "b-2", "c-1", "c-2"]
    session.close()


def test_long_walk_goes_on_at_the_next_run(
    store: SqliteStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run takes so many steps and says that there is more."""
    session = store.connect()
    work(session, clock)
    clock.advance(8 * DAY_SECONDS)
    monkeypatch.setattr(lane_pruner, "LANES_STEP", 1)
    monkeypatch.setattr(lane_pruner, "STEPS_MAX", 2)
    pruner = LanePruner(store, clock)

    runs = [pruner.run_once() for _ in range(2)]

    assert [(run.deliveries, run.is_complete) for run in runs] == [(2, False), (1, True)]
    session.close()


def test_clock_that_leaps_ahead_forgets_nothing(store: SqliteStore, clock: ManualClock) -> None:
    """A year at once is not believed: ids would be new again, and events sent twice (I15)."""
    session = store.connect()
    work(session, clock)
    pruner = LanePruner(store, clock)
    pruner.run_once()

    clock.step_wall(365 * DAY_SECONDS)

    assert pruner.run_once().deliveries == 0
    session.close()
