"""Blocking code inside an event loop: a greenlet yields to the loop whenever it waits.

The stores are blocking code, one copy for threads and tasks. Where their driver can say what it waits for,
a task need not hand them to a thread: `run` runs them in a greenlet of the loop's own thread. `wait_for`
and `run_in_thread` switch back to the loop until the socket is ready or the other thread is done. The
reasons are in docs/decisions.

Used by the group commit, the drivers of flows and the stores' drivers. Must never be waited in without a
limit, and never hold up the loop: what cannot give way goes `run_in_thread`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import copy_context
from types import TracebackType
from typing import Any, Final, ParamSpec, Protocol, TypeVar

from oncegate.commit import poller

try:
    from greenlet import getcurrent, greenlet
except ImportError:  # threads do it then
    greenlet = None

AVAILABLE: Final = greenlet is not None

P = ParamSpec("P")
T = TypeVar("T")
READABLE: Final = 1
WRITABLE: Final = 2
LOOK_SECONDS: Final = 0.001
RESTING_MAX: Final = 64


class GreenletAbandoned(Exception):
    """The event loop has gone while a strand waited: what it waited for never comes."""


if AVAILABLE:

    class _Strand(greenlet):  # type: ignore[misc]
        """Blocking work on the thread of an event loop; kept for other work when that has ended."""

        loop: asyncio.AbstractEventLoop | None
        work: Callable[[], None] | None
        gr_context: Any

        def run(self) -> None:
            """Does one piece of work after the other, and rests in between."""
            while self.work is not None:
                self.work()
                self.work = self.loop = self.gr_context = None  # a strand at rest keeps nothing alive
                if len(_resting.strands) < RESTING_MAX:
                    _resting.strands.append(self)
                    self.give_way()

        def resume(self, ready: int) -> None:
            """Goes on where it waits; called by the loop."""
            self.parent = getcurrent()
            self.switch(ready)

        def give_way(self) -> int:
            """Lets the loop go on until this greenlet is resumed."""
            parent = self.parent
            if parent is None:
                raise GreenletAbandoned("the event loop has ended")
            ready: int = parent.switch()
            return ready


class _Resting(threading.local):
    """Idle greenlets of one thread. Creating one takes longer than a quick server's answer."""

    def __init__(self) -> None:
        self.strands: list[Any] = []


_resting: Final = _Resting()


def in_greenlet() -> bool:
    """Whether the caller is blocking code that an event loop runs."""
    return AVAILABLE and isinstance(getcurrent(), _Strand)


def start(work: Callable[[], None]) -> None:
    """Begins work on a strand of the running loop; returns when it first waits, or ends."""
    strand = _resting.strands.pop() if _resting.strands else _Strand()
    strand.loop = asyncio.get_running_loop()
    strand.work = work
    strand.gr_context = copy_context()
    strand.parent = getcurrent()
    strand.switch()


async def run(function: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
    """Runs blocking work for a task. A task that is cancelled leaves the work to itself."""
    done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def work() -> None:
        try:
            answer = function(*arguments, **keywords)
        except BaseException as error:  # noqa: BLE001  the task is told, whatever it is
            if not done.done():
                done.set_exception(error)
        else:
            if not done.done():
                done.set_result(answer)

    start(work)
    return await done


def wait_for(fileno: int, wanted: int, seconds: float) -> int:
    """Gives way until a socket is readable or writable; returns which, or 0 after the time."""
    strand: Any = getcurrent()
    loop = strand.loop
    timer = loop.call_later(seconds, strand.resume, 0)
    try:
        if wanted & READABLE:
            loop.add_reader(fileno, strand.resume, READABLE)
        if wanted & WRITABLE:
            loop.add_writer(fileno, strand.resume, WRITABLE)
        return int(strand.give_way())
    finally:
        timer.cancel()
        if not loop.is_closed():
            loop.remove_reader(fileno)
            if wanted & WRITABLE:
                loop.remove_writer(fileno)


class SocketWaiter:
    """Kept by a connection to wait for its socket often. Close this before the socket."""

    __slots__ = ("_place",)

    def __init__(self) -> None:
        self._place: poller.WatchedSocket | None = None

    def wait(self, fileno: int, seconds: float) -> int:
        """Gives way until the socket is readable; 0 after the time."""
        if not poller.AVAILABLE:
            return wait_for(fileno, READABLE, seconds)
        strand: Any = getcurrent()
        place = self._place
        if place is None or place.fileno != fileno or not place.room.serves(strand.loop):
            self.close()
            place = self._place = poller.poller_of(strand.loop).place(fileno)
        return place.room.wait(place, strand, seconds)

    def close(self) -> None:
        """Ends the waiting."""
        place, self._place = self._place, None
        if place is not None:
            place.leave()


def pause() -> None:
    """Gives way for a moment."""
    strand: Any = getcurrent()
    strand.loop.call_later(LOOK_SECONDS, strand.resume, 0)
    strand.give_way()


class Closable(Protocol):
    """Something that is open until it is closed."""

    def close(self) -> object:
        """Closes it."""


C = TypeVar("C", bound=Closable)


def run_in_thread(function: Callable[[], C]) -> C:
    """Opens what cannot give way while it is opened: here, or for a strand in a thread of its own."""
    if not in_greenlet():
        return function()
    strand: Any = getcurrent()
    answers: list[C] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            answers.append(function())
        except BaseException as error:  # noqa: BLE001  raised in the strand
            errors.append(error)
        try:
            strand.loop.call_soon_threadsafe(strand.resume, 0)
        except RuntimeError:  # the loop has been closed; nobody waits any more
            for answer in answers:
                answer.close()

    threading.Thread(target=work, name="oncegate-aside", daemon=True).start()
    strand.give_way()
    if errors:
        raise errors[0]
    return answers[0]


class Exclusive:
    """A lock for threads and strands alike. A strand that waits for it gives way.

    It knows the event loop that it was made in: what it guards is that loop's, if there was one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._strand: Any = None
        self.loop = _running_loop()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._wait()
        is_ours = AVAILABLE and isinstance(current := getcurrent(), _Strand)
        self._strand = current if is_ours else None

    def _wait(self) -> None:
        if not in_greenlet():
            self._lock.acquire()
            return
        while not self._lock.acquire(blocking=False):
            pause()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._strand = None
        self._lock.release()

    def can_be_had(self) -> bool:
        """False if it is held by a strand that cannot go on before the caller has ended."""
        strand = self._strand
        if strand is None or in_greenlet():
            return True
        return strand.loop.is_running() and strand.loop is not _running_loop()

    def run_if_stranded(self, function: Callable[[], None]) -> bool:
        """Runs it if the loop is over, and no thread is inside: a strand that is inside never goes on."""
        if self.loop is None or not self.loop.is_closed():
            return False
        is_free = self._lock.acquire(blocking=False)
        if not is_free and self._strand is None:
            return False
        try:
            function()
        finally:
            if is_free:
                self._lock.release()
        return True


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
