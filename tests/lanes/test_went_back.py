"""I23: a ledger that goes back in time while an engine delivers: no outcome lands on another event."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from oncegate.lanes import Dead, Delivered, RetryLater
from oncegate.sender.operator_actions import HeadJob, LaneDecision, LaneVerb, OperatorActions, plan_heads
from oncegate.store import Delivery, LaneFilter, LaneState, Store
from oncegate.stores.postgres import PostgresStore
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing import ManualClock
from oncegate.testing.postgres import PostgresServer
from tests.lanes.engine_site import Site
from tests.lanes.lane_site import ENDPOINT, lease, outgoing
from tests.stores.postgres.test_standby import Pair
from tests.stores.test_replaced_files import copied, moved

OUTCOMES = {"delivered": Delivered("200"), "retry": RetryLater("500"), "dead": Dead("400")}


def deliver(site: Site, go_back: Callable[[], None], restored: Store, outcome: Any) -> Delivery:
    """Delivers an event; meanwhile the ledger goes back, and another event has its seq and fence there."""
    taken: list[Delivery] = []

    def answer(delivery: Delivery) -> Any:
        go_back()
        with closing(restored.connect()) as session:
            with session.unit():
                session.enqueue([outgoing("another", "k")])
            taken.extend(lease(session))
        return outcome

    site.fill(1, first=2)
    site.answer = answer
    asyncio.run(site.engine().run_once())
    (ours,), (another,) = site.arrived[1:], taken
    assert (ours.lane_id, ours.seq, ours.fence) == (another.lane_id, another.seq, another.fence)
    assert (ours.event_id, another.event_id) == ("k-2", "another")
    return another


def assert_untouched(store: Store, another: Delivery) -> None:
    """The other event is still leased, and nothing is recorded for it."""
    with store.look() as reader:
        (view,) = reader.deliveries(another.lane_id, 2, 10)
        lane = reader.find_lane(ENDPOINT, "", "k")
    assert (view.event_id, view.acknowledged_at_ms, view.is_dead) == ("another", None, False)
    assert lane is not None
    assert (lane.state, lane.head_seq, lane.attempts, lane.error) == (LaneState.LEASED, 2, 0, None)


@pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=OUTCOMES)
def test_outcome_does_not_land_on_the_event_that_a_restored_file_has_under_the_same_numbers(
    tmp_path: Path, outcome: Any
) -> None:
    """Given a copy of the file with one event delivered; when it takes the file's place while the second
    event is under way, the outcome of that one is recorded nowhere."""
    path, clock = tmp_path / "ledger.db", ManualClock()
    site, restored = Site(SqliteStore(path, clock=clock), clock), SqliteStore(path, clock=clock)
    with closing(site.commits):
        site.fill(1)
        asyncio.run(site.engine().run_once())
        copy = copied(path)
        another = deliver(site, lambda: moved(copy, path), restored, outcome)
    assert_untouched(restored, another)


@pytest.mark.slow
def test_outcome_does_not_land_on_the_event_that_a_promoted_standby_has_under_the_same_numbers() -> None:
    """Given a standby that is away while the second event is added; when it takes over while that event is
    under way, the acknowledgement is recorded nowhere."""
    with ExitStack() as stack:
        primary, standby = stack.enter_context(PostgresServer()), PostgresServer()
        stack.callback(standby.remove)
        pair, clock = Pair(primary, standby), ManualClock()
        site = Site(PostgresStore(pair.either, clock=clock), clock)
        stack.callback(site.commits.close)
        restored = PostgresStore(pair.either, clock=clock)

        def fail_over() -> None:
            primary.stop(signal.SIGQUIT)
            standby.start()
            pair.fail_over()

        site.fill(1)
        asyncio.run(site.engine().run_once())
        pair.wait_until_replayed()
        standby.stop()
        another = deliver(site, fail_over, restored, Delivered("200"))
        assert_untouched(restored, another)


def test_order_to_many_lanes_leaves_a_lane_that_has_another_name_now(site: Site) -> None:
    """A plan was made before the ledger went back; another lane has the number of one of its lanes."""
    site.fill(1, "a")
    site.fill(1, "b")
    site.answer = lambda delivery: Dead("400")
    asyncio.run(site.engine().run_once())
    with site.store.look() as reader:
        plan = plan_heads(reader, LaneVerb.SKIP, LaneFilter(ENDPOINT))
    (lane, seq, _), kept = plan.heads
    of_another = replace(plan, heads=((lane, seq, bytes(8)), kept))

    progress = HeadJob(
        OperatorActions(site.commits, site.clock), of_another, LaneDecision("olga", "gone")
    ).run()

    assert (progress.done, progress.changed) == (1, 1)
    assert sorted((site.lane("a").head_seq, site.lane("b").head_seq)) == [1, 2]
