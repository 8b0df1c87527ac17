"""Replays on record: two people at once (B6, I20)."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import Any

from oncegate.commit.group_commit import GroupCommit
from oncegate.sender.operator_actions import OperatorActions
from oncegate.store import (
    Acknowledgement,
    HeadsWanted,
    Outgoing,
    ReplayWanted,
    Session,
)
from oncegate.stores.postgres import PostgresStore
from oncegate.testing import ManualClock
from tests.stores.postgres.test_read_committed import wait_until_blocked
from tests.support.gates import running


def past(session: Session, *keys: str) -> None:
    """Lanes with two delivered events each."""
    with session.unit():
        for key in keys:
            for number in (1, 2):
                event = Outgoing("orders", "acme", key, f"{key}-{number}", "t", b"{}", b"f" * 16, 1)
                session.enqueue([event])
    for _ in range(2):
        with session.unit():
            heads = session.lease_heads(HeadsWanted((("orders", 100),), 60_000, 7)).deliveries
            session.finish(
                [
                    Acknowledgement(one.lane_id, one.seq, one.fence, one.holder, one.event_id, 1)
                    for one in heads
                ]
            )


def plant(session: Session, **changes: Any) -> Any:
    """One step of a replay, in a unit of its own."""
    with session.unit():
        return session.replay(ReplayWanted("orders", 0xABC, "olga", "lost", 5, **changes))


def test_a_replay_is_not_planted_further_while_somebody_cancels_it(ledger_url: str) -> None:
    """Given a replay of two lanes, half planted; who plants waits for who cancels, and then ends."""
    store = PostgresStore(ledger_url, clock=ManualClock())
    with closing(store.connect()) as planter, closing(store.connect()) as person:
        past(planter, "A", "B")
        first = plant(planter, limit=1)
        with ExitStack() as threads, person.unit():
            assert person.cancel_replay(0xABC, "ada", "enough", 9) == 2
            rest = running(lambda: plant(planter, limit=1, after_lane=first.last_lane))
            answers = threads.enter_context(rest)
            wait_until_blocked(store)
        (step,) = answers
    assert (step.deliveries, step.is_cancelled) == (0, True)


def test_the_same_replay_asked_for_twice_at_once_is_one(ledger_url: str) -> None:
    """Given a form that is sent twice at the same moment; the second waits, and finds it done."""
    store, clock = PostgresStore(ledger_url, clock=ManualClock()), ManualClock()
    with closing(GroupCommit(store)) as commits, closing(store.connect()) as first:
        past(first, "A")
        with first.unit():
            lane = first.find_lane("orders", "acme", "A")
        assert lane is not None
        wanted = ReplayWanted("orders", 0xABC, "olga", "lost", 5, lane_id=lane.lane_id)
        with ExitStack() as threads, first.unit():
            assert first.replay(wanted).deliveries == 2
            answers = threads.enter_context(
                running(lambda: OperatorActions(commits, clock).replay_once(wanted))
            )
            wait_until_blocked(store)
        assert answers == [None]


def test_who_cancels_waits_for_who_plants_and_takes_all_of_it_back(ledger_url: str) -> None:
    """Given a step that is being planted; nothing of it stays behind a cancellation that came meanwhile."""
    store = PostgresStore(ledger_url, clock=ManualClock())
    with closing(store.connect()) as planter, closing(store.connect()) as person:
        past(planter, "A", "B")
        first = plant(planter, limit=1)

        def cancel() -> int:
            with person.unit():
                return person.cancel_replay(0xABC, "ada", "enough", 9)

        with ExitStack() as threads, planter.unit():
            wanted = ReplayWanted("orders", 0xABC, "olga", "lost", 5, limit=1, after_lane=first.last_lane)
            assert planter.replay(wanted).deliveries == 2
            answers = threads.enter_context(running(cancel))
            wait_until_blocked(store)
        assert answers == [4]
