"""Answers that are not read: bounded in bytes, and in the time in which nothing of one is taken.

A large answer has room for its bytes until the peer has taken them; without room it is refused. The
protocol calls `UnreadAnswer` when an answer does not fit into the system's buffers, and when a connection
is closed before all of it was taken. Must never end a connection whose peer is only slow.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import sys
import termios
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from oncegate.integrations.problems import Problem, ProblemKind
from oncegate.service.messages import RequestDenied

TENANTS_SHARE: Final = 4  # one tenant has at most so small a part of the bytes
RETRY_SECONDS: Final = 1.0

_AT_ONCE: Final = struct.pack("ii", 1, 0)  # linger for no time: what is on its way is thrown away


class UnreadBytes:
    """The bytes of large answers that are being sent, altogether and of each tenant."""

    def __init__(self, total_max: int) -> None:
        self._total_max, self._tenant_max = total_max, total_max // TENANTS_SHARE
        self._tenants: Counter[str] = Counter()
        self._had_no_room: dict[str, int] = {}  # size of the last answer, until the tenant reads one
        self.total = 0
        self.refused = 0

    @contextmanager
    def entered(self, tenant: str, count: int) -> Iterator[None]:
        """Takes room until the answer is sent; one answer alone always has it."""
        if self._is_beyond(self.total, count, self._total_max):
            raise self._refusal(ProblemKind.OVERLOADED, "answers that wait to be read take all the room")
        self._check_tenant(tenant, count)
        self.total += count
        self._tenants[tenant] += count
        try:
            yield
        finally:
            self.total -= count
            self._tenants[tenant] -= count
            self._had_no_room.pop(tenant, None)
            if not self._tenants[tenant]:
                del self._tenants[tenant]

    def check(self, tenant: str) -> None:
        """Raises before an answer is made that has no more room than the one before it."""
        self._check_tenant(tenant, self._had_no_room.get(tenant, 0))

    def _check_tenant(self, tenant: str, count: int) -> None:
        if self._is_beyond(self._tenants[tenant], count, self._tenant_max):
            self._had_no_room[tenant] = count
            raise self._refusal(ProblemKind.TOO_MANY, "read the answers that you have asked for")

    @staticmethod
    def _is_beyond(taken: int, more: int, most: int) -> bool:
        return taken > 0 and taken + more > most

    def _refusal(self, kind: ProblemKind, detail: str) -> RequestDenied:
        self.refused += 1
        return RequestDenied(Problem(kind, f"{detail}; try again in a moment", RETRY_SECONDS))


class UnreadAnswer:
    """Looks at one connection now and then, while there is something that its peer has not taken."""

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, seconds: float
    ) -> None:
        self._transport, self._loop, self._seconds = transport, loop, seconds
        self._timer: asyncio.TimerHandle | None = None
        self._left = 0

    def watch(self) -> None:
        """Begins to look, if there is something to be taken."""
        if self._timer is None and self._transport.get_write_buffer_size():
            self._left = bytes_left(self._transport)
            self._timer = self._loop.call_later(self._seconds, self.look)

    def look(self) -> None:
        """Ends the connection, unless something was taken since the last look."""
        self.rest()
        if bytes_left(self._transport) == self._left:
            _cut(self._transport)
        else:
            self.watch()

    def rest(self) -> None:
        """Stops looking."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def bytes_left(transport: asyncio.Transport) -> int:
    """What the peer has not taken: here, and with the system, which may hold megabytes of it."""
    here = transport.get_write_buffer_size()
    try:
        held = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
    except (OSError, ValueError):  # the socket is closed, or is none that tells
        return here
    return here + int.from_bytes(held, sys.byteorder)


def _cut(transport: asyncio.Transport) -> None:
    """Closes at once; otherwise the system would go on offering what it holds."""
    with (
        suppress(OSError, ValueError),
        socket.socket(fileno=transport.get_extra_info("socket").fileno()) as same,
    ):
        try:
            same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        finally:
            same.detach()  # it is the transport's to close
    transport.abort()
