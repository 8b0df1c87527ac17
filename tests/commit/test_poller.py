"""Sockets that strands wait for: each wait ends, and nothing keeps the loop awake that nobody waits for."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from functools import wraps
from typing import Any

import pytest

from oncegate.commit import greenlet_bridge, poller
from oncegate.commit.greenlet_bridge import READABLE, SocketWaiter

pytestmark = pytest.mark.skipif(
    not (greenlet_bridge.AVAILABLE and poller.AVAILABLE), reason="needs greenlet and epoll"
)
PATIENCE_SECONDS = 30.0


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Runs a test inside an event loop of its own."""

    @wraps(test)
    def run() -> None:
        asyncio.run(asyncio.wait_for(test(), PATIENCE_SECONDS))

    return run


@contextmanager
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        yield ours, theirs


def hear(ear: SocketWaiter, ours: socket.socket) -> bytes:
    assert ear.wait(ours.fileno(), PATIENCE_SECONDS) == READABLE
    return ours.recv(100)


async def turns(count: int) -> int:
    """Lets the loop go round; returns how often its sockets had to be looked at meanwhile."""
    room = poller.poller_of(asyncio.get_running_loop())
    found = 0
    for _ in range(count):
        await asyncio.sleep(0)
        found += len(room._poll.poll(0))
    return found


@in_loop
async def test_a_socket_is_heard_as_often_as_it_says_something() -> None:
    ear = SocketWaiter()
    with connected() as (ours, theirs):
        for word in (b"one", b"two", b"three"):
            heard = asyncio.ensure_future(greenlet_bridge.run(hear, ear, ours))
            await asyncio.sleep(0)
            theirs.send(word)
            assert await heard == word
        ear.close()


@in_loop
async def test_what_nobody_waits_for_does_not_keep_the_loop_awake() -> None:
    ear = SocketWaiter()
    with connected() as (ours, theirs):
        # Given a socket that was waited for
        theirs.send(b"one")
        await greenlet_bridge.run(hear, ear, ours)
        # When the other side says more, and nobody waits
        theirs.send(b"two")
        await turns(3)
        # Then the loop is left alone, and who waits next hears it all the same
        assert await turns(5) == 0
        assert await greenlet_bridge.run(hear, ear, ours) == b"two"
        ear.close()


@in_loop
async def test_a_wait_without_an_answer_ends() -> None:
    ear = SocketWaiter()
    with connected() as (ours, _):
        assert await greenlet_bridge.run(ear.wait, ours.fileno(), 0.01) == 0
        ear.close()


@in_loop
async def test_a_number_that_is_used_again_is_the_new_socket() -> None:
    """A connection that was lost without being left: the kernel has forgotten it."""
    first, second = SocketWaiter(), SocketWaiter()
    with connected() as (ours, theirs):
        theirs.send(b"one")
        await greenlet_bridge.run(hear, first, ours)
        number = ours.fileno()
    with connected() as (ours, theirs):
        assert ours.fileno() == number
        theirs.send(b"two")
        assert await greenlet_bridge.run(hear, second, ours) == b"two"
        first.close()  # too late, and not its socket any more
        theirs.send(b"three")
        assert await greenlet_bridge.run(hear, second, ours) == b"three"
        second.close()


@in_loop
async def test_a_closed_socket_that_a_forked_process_holds_does_not_keep_the_loop_awake() -> None:
    lost, kept = SocketWaiter(), SocketWaiter()
    with connected() as (other, their_other), connected() as (ours, theirs):
        # Given a socket whose copy lives on, and one that is waited for
        theirs.send(b"one")
        await greenlet_bridge.run(hear, lost, ours)
        copy = os.dup(ours.fileno())
        ours.close()
        waits = asyncio.ensure_future(greenlet_bridge.run(hear, kept, other))
        await asyncio.sleep(0)
        # When the other side of the closed one speaks
        theirs.send(b"two")
        await turns(5)
        # Then the loop has got rid of it, and the wait goes on
        assert await turns(5) == 0
        os.close(copy)
        their_other.send(b"three")
        assert await waits == b"three"
        kept.close()


def test_one_socket_serves_one_loop_after_the_other_and_no_room_is_left_behind() -> None:
    gc.collect()
    before = len(poller._rooms)
    ear = SocketWaiter()
    with connected() as (ours, theirs):
        for word in (b"one", b"two"):
            theirs.send(word)
            assert asyncio.run(greenlet_bridge.run(hear, ear, ours)) == word
        ear.close()
    gc.collect()
    assert len(poller._rooms) == before
