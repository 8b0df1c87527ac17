"""Answers that nobody reads: a connection whose peer takes nothing for so long is ended.

Called by the protocol when an answer does not fit into the system's buffers, and when a connection is
closed before all of it was taken. Must never end one whose peer is only slow.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import sys
import termios
from contextlib import suppress
from typing import Final

_AT_ONCE: Final = struct.pack("ii", 1, 0)  # linger for no time: what is on its way is thrown away


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
