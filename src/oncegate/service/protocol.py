"""uvicorn's HTTP protocol with absolute deadlines and a limit on headers, which it does not have itself.

A request's headers must be complete within one time, counted from its first byte or, for the first request,
from the connection; its body within another. A slow sender is told 408 where it can still be told, and cut
off. Pipelined requests and idle connections keep uvicorn's own rules.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from oncegate.integrations.problems import Problem, ProblemKind

HEADERS_WITHIN_SECONDS: Final = 10.0
BODY_WITHIN_SECONDS: Final = 30.0
HEADER_BYTES_MAX: Final = 32 * 1024
HEADERS_MAX: Final = 100


def _last_words(reason: str, problem: Problem) -> bytes:
    """An answer as it goes over the wire when no application gives one; the connection ends with it."""
    lines = [f"HTTP/1.1 {problem.status} {reason}", "connection: close"]
    lines += [f"{name}: {value}" for name, value in problem.headers]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + problem.body


_TIMED_OUT: Final = _last_words(
    "Request Timeout", Problem(ProblemKind.TIMED_OUT, "send the whole request at once")
)
_TOO_LARGE: Final = _last_words(
    "Request Header Fields Too Large",
    Problem(ProblemKind.HEADERS_TOO_LARGE, "send fewer or shorter headers"),
)


class BoundedHttp(HttpToolsProtocol):
    """One connection within limits."""

    headers_within_seconds = HEADERS_WITHIN_SECONDS
    body_within_seconds = BODY_WITHIN_SECONDS
    header_bytes_max = HEADER_BYTES_MAX

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.access_log = False  # its lines would hold targets as they came, cursors included
        self._deadline: asyncio.TimerHandle | None = None
        self._bytes_before_body = 0  # received before the headers were complete
        self._header_bytes = 0
        self._is_reading = False
        self._is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Starts the clock for the first request."""
        super().connection_made(transport)
        self._within(self.headers_within_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the clock."""
        self._in_time()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Takes bytes; those of a request line or header that does not end count too."""
        if self._is_refused or self.transport.is_closing():
            return
        if not self._is_reading:
            self._bytes_before_body += len(data)
            if self._deadline is None:
                self._within(self.headers_within_seconds)
        super().data_received(data)
        if not self._is_reading and self._bytes_before_body > self.header_bytes_max:
            self._refuse(_TOO_LARGE)

    def on_message_begin(self) -> None:
        """A request has begun."""
        self._header_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Counts the target with the headers."""
        self._header_bytes += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Counts headers, and takes no more than so many."""
        self._header_bytes += len(name) + len(value)
        if len(self.headers) <= HEADERS_MAX:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """From here on the body's time counts."""
        if len(self.headers) > HEADERS_MAX or self._header_bytes > self.header_bytes_max:
            self._refuse(_TOO_LARGE)
            return
        self._is_reading, self._bytes_before_body = True, 0
        self._within(self.body_within_seconds)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Takes a part of the body, unless the request was refused."""
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is here."""
        self._is_reading, self._bytes_before_body = False, 0
        self._in_time()
        if not self._is_refused:
            super().on_message_complete()

    def _within(self, seconds: float) -> None:
        self._in_time()
        self._deadline = self.loop.call_later(seconds, self._too_late)

    def _in_time(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self._deadline = None
        self._refuse(_TIMED_OUT)

    def _refuse(self, answer: bytes) -> None:
        """Ends the connection, with an answer unless another one is under way."""
        self._in_time()
        self._is_refused = True
        if self.transport is None or self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(answer)
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()


def bounded(headers_within_seconds: float, body_within_seconds: float) -> type[BoundedHttp]:
    """The protocol with other times."""
    return type(
        "BoundedHttp",
        (BoundedHttp,),
        {"headers_within_seconds": headers_within_seconds, "body_within_seconds": body_within_seconds},
    )
