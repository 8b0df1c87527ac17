"""Requests that are pipelined: behind one without an answer they stay bytes, and the socket is not read.

The parser has no brake: it makes objects of every request in the bytes that it is given, and a small one
becomes a hundred times its size. So it is given no more than one request at a time. Where a request may end
is seen in its bytes: the end of its head, of its last chunk, or its announced length. Must never give the
parser bytes behind a request that waits for its answer.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

PIPELINED_BYTES_MAX: Final = 512 * 1024  # on one connection; twice what one read gives
TURN_MAX: Final = 8  # pipelined requests that are looked at in one turn of the loop
END_OF_HEAD: Final = b"\r\n\r\n"  # also the end of a body in chunks


class Pipelines:
    """The connections of one event loop with pipelined requests to look at: a few in each of its turns."""

    def __init__(self) -> None:
        self._ready: deque[PipelinedHttp] = deque()
        self._is_due = False

    def add(self, connection: PipelinedHttp) -> None:
        """One more has a request to look at."""
        self._ready.append(connection)
        self._go_on_later()

    def _go_on_later(self) -> None:
        if self._ready and not self._is_due:
            self._is_due = True
            self._ready[0].loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_due = False
        try:
            for _ in range(min(TURN_MAX, len(self._ready))):
                self._ready.popleft().read_on()
        finally:
            self._go_on_later()


class PipelinedHttp(HttpToolsProtocol):
    """One connection, on which one request after the other becomes objects."""

    pipelines = Pipelines()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._is_reading = False  # a body
        self._is_over = False  # a request, which has come to its end with what was read last
        self._is_refused = False
        self._body_left = 0  # bytes of a body that have not come; below zero where its head does not say
        self._behind = b""  # not looked at before the request in front has its answer
        self._behind_at = 0  # where it begins in there

    def data_received(self, data: bytes) -> None:
        """Takes bytes, unless a request has come whole and waits for its answer: then they wait too."""
        if self._is_refused or self.transport.is_closing():
            return
        if self._behind or self._is_carried_out():
            self._wait_behind(data)
        elif not self._is_reading and data.find(END_OF_HEAD) == data.rfind(END_OF_HEAD):
            self._feed(data)  # as a rule: it cannot hold more than one whole request
        else:
            self._take(data, 0)

    def _take(self, data: bytes, at: int) -> None:
        """Reads piece by piece, and no further than to the end of one request."""
        rest = memoryview(data)
        while at < len(data):
            end = self._end_of_piece(data, at)
            self._is_over = False
            if not self._feed(rest[at:end]):
                return
            at = end
            if self._is_over and at < len(data):
                self._wait_behind(data, at)
                if not self._is_carried_out():
                    self.pipelines.add(self)
                return

    def _end_of_piece(self, data: bytes, at: int) -> int:
        if self._is_reading and self._body_left > 0:
            return min(len(data), at + self._body_left)
        end = data.find(END_OF_HEAD, at)
        return len(data) if end < 0 else end + len(END_OF_HEAD)

    def _wait_behind(self, data: bytes, at: int = 0) -> None:
        if self._behind:
            data, at = self._behind[self._behind_at :] + data[at:], 0
        self._behind, self._behind_at = data, at  # with what was read before: copies would cost more
        self.flow.pause_reading()
        self._has_bytes_behind()

    def _go_on_behind(self) -> None:
        """After an answer: looks at the next request in a later turn of the loop, which others share."""
        if self._behind:
            self.flow.pause_reading()
            self.pipelines.add(self)

    def read_on(self) -> None:
        """Looks at the next request, if the one before it has its answer."""
        if not self._behind or self._is_carried_out() or self.transport.is_closing():
            return
        data, self._behind = self._behind, b""
        self._arrived()
        self._take(data, self._behind_at)
        if not self._behind and not self._is_refused:
            self.flow.resume_reading()

    def _is_carried_out(self) -> bool:
        """Whether a request has come whole and waits for its answer."""
        cycle = self.cycle
        return cycle is not None and not cycle.response_complete and not cycle.more_body

    def _feed(self, data: bytes | memoryview) -> bool:
        """Gives bytes to the parser; whether the connection goes on."""
        raise NotImplementedError

    def _has_bytes_behind(self) -> None:
        """Bounds what waits."""
        raise NotImplementedError

    def _arrived(self) -> None:
        """Nothing waits any more."""
        raise NotImplementedError
