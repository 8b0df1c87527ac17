"""How circuits stand is seen by other processes: when they open, while they rest, when they close (B5)."""

from __future__ import annotations

import asyncio

from oncegate.errors import StoreUnavailable
from oncegate.lanes import Delivered, RetryLater
from oncegate.lanes.circuit_status import CircuitView, read_circuits
from oncegate.lanes.engine import Engine
from oncegate.model.circuit import CircuitState
from tests.lanes.engine_site import Site
from tests.lanes.lane_site import ENDPOINT


def broken_engine(site: Site, engine: Engine | None = None) -> Engine:
    """An engine whose destination has just failed for six keys."""
    for number in range(6):
        site.fill(1, f"k{number}", first=site.clock.ticks_ms())
    site.answer = lambda delivery: RetryLater("500 says the receiver")
    made = engine or site.engine()
    asyncio.run(made.run_once())
    return made


def seen(site: Site) -> CircuitView | None:
    """What another process reads."""
    with site.store.look() as session:
        return read_circuits(session).get(ENDPOINT)


def test_an_open_circuit_is_seen_by_others_with_its_next_try(site: Site) -> None:
    """Since when, how long it rests, which error, and how fresh that is."""
    opened_at = site.clock.wall_ms()
    broken_engine(site)

    site.clock.advance(0.4)

    view = seen(site)
    assert view is not None
    assert (view.state, view.since_ms) == (CircuitState.OPEN, opened_at)
    assert (view.next_try_in_ms, view.told_ago_ms) == (600, 400)
    assert (view.openings, view.lanes, view.error) == (1, 6, "500 says the receiver")


def test_a_circuit_whose_rest_is_over_is_half_open(site: Site) -> None:
    """Nobody needs to say so: it is known from what was said."""
    broken_engine(site)
    site.clock.advance(1.0)
    view = seen(site)
    assert view is not None
    assert (view.state, view.next_try_in_ms) == (CircuitState.HALF_OPEN, 0)


def test_a_circuit_that_closes_is_seen_closed_since_then(site: Site) -> None:
    """And nothing is written about circuits that never opened."""
    engine = broken_engine(site)
    site.answer = lambda delivery: Delivered()
    site.clock.advance(10.0)

    asyncio.run(engine.run_once())

    view = seen(site)
    assert view is not None
    assert (view.state, view.next_try_in_ms, view.error) == (CircuitState.CLOSED, None, "")
    assert view.since_ms == site.clock.wall_ms()


def test_an_engine_that_died_is_not_quoted_for_long(site: Site) -> None:
    """One that lives repeats itself."""
    engine = broken_engine(site)
    since = site.clock.wall_ms()
    for _ in range(4):
        site.clock.advance(20.0)
        asyncio.run(engine.tell_circuits())
    view = seen(site)
    assert view is not None
    assert (view.since_ms, view.told_ago_ms) == (since, 0)

    site.clock.advance(60.0)

    assert seen(site) is None


def test_what_is_not_news_is_not_written_again(site: Site) -> None:
    """A circuit that stays as it is costs a write only once in a while."""
    engine = broken_engine(site)
    site.clock.advance(5.0)
    asyncio.run(engine.tell_circuits())
    view = seen(site)
    assert view is not None
    assert view.told_ago_ms == 5_000


def test_an_engine_that_stops_takes_its_open_circuit_down(site: Site) -> None:
    """Nobody rests any more, so nobody is said to."""
    engine = broken_engine(site)
    asyncio.run(engine.stop())
    assert seen(site) is None


def test_of_two_engines_the_one_that_is_worst_off_is_shown(site: Site) -> None:
    """One that has healed does not hide another that has not."""
    healed, broken = broken_engine(site), site.engine()
    site.answer = lambda delivery: Delivered()
    site.clock.advance(10.0)
    asyncio.run(healed.run_once())
    view = seen(site)
    assert view is not None
    assert view.state is CircuitState.CLOSED

    broken_engine(site, broken)

    view = seen(site)
    assert view is not None
    assert view.state is CircuitState.OPEN


def test_a_store_that_is_away_does_not_stop_the_telling(site: Site) -> None:
    """What could not be told is told at the next turn."""
    engine = broken_engine(site)
    site.answer = lambda delivery: Delivered()
    site.clock.advance(10.0)
    perform = site.commits.submit_async

    async def refuse(operation: object) -> object:
        if type(operation).__name__ == "PostNotice":
            raise StoreUnavailable("away")
        return await perform(operation)  # type: ignore[arg-type]

    site.commits.submit_async = refuse  # type: ignore[method-assign,assignment]
    asyncio.run(engine.run_once())
    before = seen(site)
    site.commits.submit_async = perform  # type: ignore[method-assign]
    asyncio.run(engine.tell_circuits())
    after = seen(site)

    assert before is not None
    assert after is not None
    assert (before.state, after.state) == (CircuitState.HALF_OPEN, CircuitState.CLOSED)
