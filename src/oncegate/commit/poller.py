"""The sockets that the strands of an event loop wait for: one epoll of their own, watched by the loop.

To register a socket with the loop for every wait, with a timer beside it, costs more than a quick server's
answer. Here a socket stays registered from its first wait until it is closed, and all that wait share one
timer. Used by `greenlet_bridge` only; where there is no epoll, the loop itself is asked. Must never let a
socket without a waiting task keep the loop awake.
"""

from __future__ import annotations

import asyncio
import select
from contextlib import suppress
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary, ref

AVAILABLE: Final = hasattr(select, "epoll")
LOOK_EVERY_SECONDS: Final = 1.0  # how late a wait may end that nothing answered


class Sleeper(Protocol):
    """Work that gives way until it is resumed."""

    def resume(self, ready: int) -> None: ...

    def give_way(self) -> int: ...


class WatchedSocket:
    """A socket's registration. It must end before the socket is closed."""

    __slots__ = ("fileno", "room")

    def __init__(self, room: Poller, fileno: int) -> None:
        self.room = room
        self.fileno = fileno

    def leave(self) -> None:
        """Ends the registration, from any thread."""
        self.room.leave(self)


class Poller:
    """Where the strands of one loop wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = ref(loop)
        self._is_timed = False
        self._places: dict[int, WatchedSocket] = {}
        self._waiting: dict[int, tuple[Sleeper, float]] = {}
        self._open(loop)

    def _open(self, loop: asyncio.AbstractEventLoop) -> None:
        self._poll = select.epoll()
        loop.add_reader(self._poll.fileno(), self._look)

    def serves(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether this is the room of a loop."""
        return self._loop() is loop

    def place(self, fileno: int) -> WatchedSocket:
        """Registers a socket; a number that was a closed socket's is this one's now."""
        place = self._places[fileno] = WatchedSocket(self, fileno)
        self._register(fileno)
        return place

    def _register(self, fileno: int) -> None:
        try:
            self._poll.register(fileno, select.EPOLLIN)
        except FileExistsError:
            return

    def wait(self, place: WatchedSocket, sleeper: Sleeper, seconds: float) -> int:
        """Gives way until the socket has something to read, or for so long; then 0."""
        fileno = place.fileno
        if self._places.get(fileno) is not place:
            self._places[fileno] = place
            self._register(fileno)
        loop = asyncio.get_running_loop()
        mine = self._waiting[fileno] = (sleeper, loop.time() + seconds)
        if not self._is_timed:
            self._time(loop)
        try:
            return sleeper.give_way()
        finally:
            if self._waiting.get(fileno) is mine:
                del self._waiting[fileno]

    def leave(self, place: WatchedSocket) -> None:
        """Forgets a socket, if its number is still its own."""
        if self._places.get(place.fileno) is place:
            with suppress(OSError, ValueError):  # the loop may be making its epoll anew, or be over
                self._drop(place.fileno)

    def _drop(self, fileno: int) -> None:
        self._places.pop(fileno, None)
        self._poll.unregister(fileno)

    def _look(self) -> None:
        """Something can be read: the tasks that wait for it go on."""
        for fileno, _ in self._poll.poll(0):
            found = self._waiting.get(fileno)
            if found is not None:
                found[0].resume(1)
            else:
                self._quieten(fileno)

    def _quieten(self, fileno: int) -> None:
        """No task waits for it: the other side has ended it, or a thread is using it."""
        try:
            self._drop(fileno)
        except OSError:
            self._renew()

    def _renew(self) -> None:
        """A closed socket that a forked process still holds is still reported; only this ends it."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._poll.fileno())
        self._poll.close()
        self._places.clear()
        self._open(loop)
        for fileno in self._waiting:
            self._register(fileno)

    def _time(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_timed = True
        loop.call_later(LOOK_EVERY_SECONDS, self._look_at_time)

    def _look_at_time(self) -> None:
        """Ends the waits that have lasted too long."""
        self._is_timed = False
        loop = asyncio.get_running_loop()
        now = loop.time()
        for fileno, found in list(self._waiting.items()):
            if found[1] <= now and self._waiting.get(fileno) is found:
                found[0].resume(0)
        if self._waiting and not self._is_timed:
            self._time(loop)


_rooms: WeakKeyDictionary[asyncio.AbstractEventLoop, Poller] = WeakKeyDictionary()


def poller_of(loop: Any) -> Poller:
    """The room of a loop."""
    room = _rooms.get(loop)
    if room is None:
        room = _rooms[loop] = Poller(loop)
    return room
