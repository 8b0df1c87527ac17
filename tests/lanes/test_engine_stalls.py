"""Engines that stand still, are stopped or have their destinations changed at a bad moment (I10, I18)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from oncegate.lanes import Delivered, Destination, Engine
from oncegate.lanes.destinations import Traffic
from oncegate.store import Delivery, LaneState
from oncegate.testing import ArmedCrashPoints
from tests.lanes.engine_site import Site
from tests.lanes.lane_site import ENDPOINT
from tests.support import until


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
