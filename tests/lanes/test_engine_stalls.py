"""Engines that stand still, are stopped or have their destinations changed at a bad moment (I10, I18)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from oncegate.commit.lane_operations import Finish
from oncegate.lanes import Delivered, Destination, Engine
from oncegate.lanes.destinations import Traffic
from oncegate.store import Delivery, LaneState
from oncegate.testing import ArmedCrashPoints
from oncegate.testing.waiting import DEADLINE_SECONDS
from tests.lanes.engine_site import Site
from tests.lanes.lane_site import ENDPOINT
from tests.support.gates import until


def engine_with(site: Site, point: str, action: Callable[[str], None]) -> Engine:
    """An engine to which something happens at a named point, once."""
    destination = Destination(ENDPOINT, site.deliver)
    return Engine(
        site.commits, [destination], clock=site.clock, crashpoints=ArmedCrashPoints(point, action)
    )


@pytest.mark.parametrize("point", ["lane.lease.after", "lane.deliver.before"])
def test_nothing_is_sent_under_a_lease_that_is_over(site: Site, point: str) -> None:
    """Somebody else may be further on by then: the head is leased anew before it goes."""
    site.fill(2)
    engine = engine_with(site, point, lambda name: site.clock.advance(61))

    asyncio.run(engine.run_once())

    assert [(delivery.seq, delivery.fence) for delivery in site.arrived] == [(1, 2), (2, 3)]


def test_stopping_while_heads_are_being_leased_gives_them_back(site: Site) -> None:
    """What the ledger leases to an engine that is being stopped waits for no lease to lapse."""
    site.fill(1)

    async def scenario() -> None:
        engine = site.engine()
        await engine.start()
        await asyncio.sleep(0)  # the first look has asked for heads
        await engine.stop()

    asyncio.run(scenario())

    assert (site.arrived, site.lane().state, site.lane().attempts) == ([], LaneState.WAITING, 0)
    asyncio.run(site.engine().run_once())
    assert [delivery.fence for delivery in site.arrived] == [2], "it was leased before"


def noting_endless_waits(begun: asyncio.Event) -> Callable[..., Any]:
    """`asyncio.wait` as it is, which also tells when somebody begins to wait without a limit."""
    wait = asyncio.wait

    async def noting(tasks: Any, **options: Any) -> Any:
        if options.get("timeout") is None:
            begun.set()
        return await wait(tasks, **options)

    return noting


def test_stopping_while_an_acknowledgement_is_recorded_lets_it_be_recorded(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an acknowledgement on its way, with no grace left; when the engine is stopped, it is recorded
    to the end, and the event that came back with it is not sent but is ready for others at once."""
    site.fill(2)
    real = site.commits.submit_async

    async def scenario() -> None:
        on_its_way, may_go = asyncio.Event(), asyncio.Event()

        async def slow(operation: Any) -> Any:
            if isinstance(operation, Finish):
                on_its_way.set()
                await may_go.wait()
            return await real(operation)

        monkeypatch.setattr(site.commits, "submit_async", slow)
        engine = site.engine()
        await engine.start()
        await on_its_way.wait()
        waits = asyncio.Event()
        monkeypatch.setattr(asyncio, "wait", noting_endless_waits(waits))
        stopping = asyncio.create_task(engine.stop(grace_seconds=0))
        stopping.add_done_callback(lambda _: waits.set())
        await asyncio.wait_for(waits.wait(), DEADLINE_SECONDS)
        assert not stopping.done(), "it has not waited for the record"
        may_go.set()
        await stopping
        assert engine.in_flight == 0

    asyncio.run(scenario())

    assert [delivery.seq for delivery in site.arrived] == [1]
    assert (site.lane().head_seq, site.lane().state) == (2, LaneState.WAITING)


def test_head_of_a_destination_that_was_removed_meanwhile_is_given_back(site: Site) -> None:
    """Leased but not begun: whoever serves the destination now need not wait for the lease."""
    site.fill(1)
    engine = engine_with(site, "lane.lease.after", lambda name: engine.remove(ENDPOINT))

    asyncio.run(engine.run_once())

    assert (site.arrived, site.lane().state) == ([], LaneState.WAITING)


def test_changed_destination_counts_from_the_next_event_on(site: Site) -> None:
    """Removed and added anew while a lane is under way: what follows goes by the new settings."""
    site.fill(3)
    later: list[int] = []

    async def deliver(delivery: Delivery) -> Any:
        later.append(delivery.seq)
        return Delivered()

    def change(delivery: Delivery) -> Delivered:
        engine.remove(ENDPOINT)
        engine.add(Destination(ENDPOINT, deliver))
        return Delivered()

    site.answer = change
    engine = site.engine()
    asyncio.run(engine.run_once())

    assert (site.seqs(), later) == ([1], [2, 3])


def test_what_is_in_flight_under_former_settings_counts(site: Site) -> None:
    """Changing an endpoint again and again never has more in flight there than it takes."""
    destination = Destination(ENDPOINT, site.deliver, concurrency=2)
    first = Traffic(destination, 0)
    first.begin()
    second = Traffic(destination, 0, first)
    second.begin()
    third = Traffic(destination, 0, second)

    assert third.room(0) == 0
    first.end()
    assert third.room(0) == 1
    second.end()
    assert (third.room(0), third.in_flight) == (2, 0)


def test_fault_of_ours_does_not_end_the_engine(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever is raised while it looks is told, and it looks again: nothing is left lying for ever."""
    site.fill(1)
    numbers = iter(range(1, 1_000))

    def token() -> int:
        if (number := next(numbers)) == 2:
            raise ValueError("a fault")
        return number

    async def scenario() -> None:
        destination = Destination(ENDPOINT, site.deliver)
        async with Engine(site.commits, [destination], clock=site.clock, new_token=token):
            await until(lambda: site.arrived)

    asyncio.run(scenario())

    assert site.seqs() == [1]
    assert "a fault" in caplog.text
