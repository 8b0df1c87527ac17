"""Strands: blocking work in an event loop, done one after the other by the same few (I5)."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from contextvars import ContextVar
from typing import Any

import pytest

from oncegate.commit import greenlet_bridge
from oncegate.testing.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.skipif(not greenlet_bridge.AVAILABLE, reason="greenlet is not installed")
whose: ContextVar[Any] = ContextVar("whose", default=None)


class Thing:
    """Something that can be seen to be gone."""


def current() -> Any:
    from greenlet import getcurrent

    return getcurrent()


def test_strand_is_used_again_in_the_context_of_whoever_asks() -> None:
    """When two pieces of work follow each other, then one strand does both, each as its caller's."""

    async def asked(name: str) -> tuple[Any, Any]:
        whose.set(name)
        return await greenlet_bridge.run(lambda: (whose.get(), id(current())))

    async def main() -> list[tuple[Any, Any]]:
        tasks = [asyncio.create_task(asked(name)) for name in ("Ada", "Ben")]
        return [await task for task in tasks]

    (ada, first), (ben, second) = asyncio.run(main())

    assert (ada, ben) == ("Ada", "Ben")
    assert first == second


def test_work_that_waits_is_not_in_the_way_of_other_work() -> None:
    """Given work that waits; when more is asked for, then another strand does it."""

    async def main() -> list[int]:
        def waits() -> int:
            greenlet_bridge.pause()
            return id(current())

        return await asyncio.gather(*(greenlet_bridge.run(waits) for _ in range(3)))

    assert len(set(asyncio.run(main()))) == 3


def test_strand_at_rest_keeps_nothing_of_its_work() -> None:
    """When work has ended and its loop is closed, then neither of them, nor its context, stays alive."""
    seen: list[weakref.ref[Any]] = []

    async def main() -> None:
        thing, secret = Thing(), Thing()
        seen.extend(map(weakref.ref, (thing, secret, asyncio.get_running_loop())))
        whose.set(secret)

        def waits() -> Thing:
            greenlet_bridge.pause()
            return thing

        await greenlet_bridge.run(waits)

    asyncio.run(main())
    gc.collect()

    assert [one() for one in seen] == [None, None, None]


def test_work_that_fails_is_told_and_others_go_on() -> None:
    """When work raises, then its caller is told, and whoever comes next is served."""

    async def main() -> int:
        with pytest.raises(ZeroDivisionError):
            await greenlet_bridge.run(lambda: 1 // 0)
        return await greenlet_bridge.run(lambda: 1)

    assert asyncio.run(main()) == 1


def test_each_thread_has_strands_of_its_own() -> None:
    """When loops in several threads ask for work, then each is served, also by threads that begin later."""
    answers: list[int] = []

    async def main() -> int:
        def work() -> int:
            greenlet_bridge.pause()
            return threading.get_ident()

        found = await asyncio.gather(*(greenlet_bridge.run(work) for _ in range(5)))
        return len(set(found))

    def serve() -> None:
        answers.append(asyncio.run(main()))

    for _ in range(2):
        threads = [threading.Thread(target=serve) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)

    assert answers == [1] * 6


def test_what_is_opened_aside_for_a_loop_that_is_over_is_closed() -> None:
    """Given a loop that ends while a connection is opened for it; then nobody keeps the connection."""
    opening, loop_is_over, closed = threading.Event(), threading.Event(), threading.Event()

    class Connection:
        def close(self) -> None:
            closed.set()

    def opened() -> Connection:
        opening.set()
        assert loop_is_over.wait(DEADLINE_SECONDS)
        return Connection()

    async def main() -> None:
        task = asyncio.create_task(greenlet_bridge.run(lambda: greenlet_bridge.run_in_thread(opened)))
        await asyncio.to_thread(opening.wait, DEADLINE_SECONDS)
        task.cancel()

    thread = threading.Thread(target=lambda: asyncio.run(main()))  # what it leaves is never unwound
    thread.start()
    thread.join(DEADLINE_SECONDS)
    loop_is_over.set()

    assert closed.wait(DEADLINE_SECONDS)
