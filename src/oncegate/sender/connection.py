"""One HTTP/1.1 connection: one request at a time, and a response read within limits.

A request is written once and never again: what happens after it counts as an attempt, also on a connection
that the other side was about to close. Must never keep more of a response than the limit, and never take
unrequested bytes as an answer.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final, cast

from msgspec import Struct

from oncegate.errors import BadHeader, ConfigError
from oncegate.sender.exchange import FailureKind

BODY_BYTES_MAX: Final = 16 * 1024  # enough for an error message
HEAD_BYTES_MAX: Final = 16 * 1024
# Chunk sizes and trailers are not body; this ends a response that is made of them.
WIRE_BYTES_MAX: Final = 256 * 1024
INTERIM_MAX: Final = 8  # 1xx responses before the real one


class WireResponse(Struct, frozen=True):
    """A response as it came: complete, or cut at the limit."""

    status: int
    retry_after: str | None
    body: bytes
    is_cut: bool


class NoAnswer(Exception):
    """The connection gave no usable response."""

    def __init__(self, kind: FailureKind, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


def request_bytes(
    target: str, host: str, headers: tuple[tuple[str, str], ...], body: bytes | None
) -> bytes:
    """A POST, or without a body a GET, as it goes over the wire.

    A header that would start another line is refused.
    """
    lines = [f"{'GET' if body is None else 'POST'} {target} HTTP/1.1", f"host: {host}"]
    lines += [] if body is None else [f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers]
    text = "\r\n".join(lines)
    breaks = len(lines) - 1
    # Endpoints and events were checked when they were taken; this is the last place to notice a mistake.
    if text.count("\n") != breaks or text.count("\r") != breaks or "\0" in text or not text.isascii():
        raise BadHeader("a header or the address has a line break or a character outside ASCII")
    return f"{text}\r\n\r\n".encode("ascii") + (body or b"")


class HttpConnection(asyncio.Protocol):
    """A connection and the state of the response on it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
        self._loop = loop
        self._socket = sock
        self._parser: Any = _parser_class()(self)
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[WireResponse] | None = None
        self.idle_since = 0.0
        self.opened_at = loop.time()
        self._reset()

    def _reset(self) -> None:
        self._received = 0
        self._interim = 0
        self._begin_message()

    def _begin_message(self) -> None:
        self._has_head = False
        self._has_length = False
        self._retry_after: str | None = None
        self._body: list[bytes] = []
        self._body_bytes = 0

    def exchange(self, request: bytes) -> asyncio.Future[WireResponse]:
        """Sends a request; the future gets its answer or NoAnswer."""
        self._reset()
        self._waiter = waiter = self._loop.create_future()
        if self._transport is None or self._transport.is_closing():
            self.fail(FailureKind.CLOSED, "before the request was written")
        else:
            self._transport.write(request)
        return waiter

    @property
    def is_open(self) -> bool:
        """Whether the connection may serve another request, as far as is known."""
        return self._transport is not None and not self._transport.is_closing() and self._waiter is None

    def is_usable(self) -> bool:
        """Whether another request may be written: nothing came since the last answer, not even an end."""
        if not self.is_open:
            return False
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            return False
        return False  # an end, or bytes that nobody asked for

    def abort(self) -> None:
        """Drops the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def fail(self, kind: FailureKind, detail: str) -> None:
        """Gives up on the answer and drops the connection."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_exception(NoAnswer(kind, detail))
        self.abort()

    def _finish(self, *, is_cut: bool, keep: bool) -> None:
        waiter, self._waiter = self._waiter, None
        if not keep:
            self.abort()
        if waiter is not None and not waiter.done():
            body = b"".join(self._body)[:BODY_BYTES_MAX]
            waiter.set_result(WireResponse(self._status, self._retry_after, body, is_cut))

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Reads on in the response."""
        if self._waiter is None:
            self.abort()  # nobody asked
            return
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except Exception as error:  # noqa: BLE001  the parser's errors have no common class across versions
            self.fail(FailureKind.PROTOCOL, f"{type(error).__name__}: {error}")
            return
        if self._waiter is not None:
            self._check_limits()

    def _check_limits(self) -> None:
        if not self._has_head and self._received > HEAD_BYTES_MAX:
            self.fail(FailureKind.TOO_LARGE, f"more than {HEAD_BYTES_MAX} bytes of headers")
        elif self._body_bytes > BODY_BYTES_MAX or self._received > WIRE_BYTES_MAX:
            self._finish(is_cut=True, keep=False)

    def eof_received(self) -> None:
        """A body without a length ends here; anything else was cut off, and `connection_lost` says so."""
        if self._waiter is not None and self._has_head and not self._has_length:
            self._finish(is_cut=False, keep=False)

    def connection_lost(self, error: Exception | None) -> None:
        """Fails an answer that was still awaited."""
        self._transport = None
        if self._waiter is not None:
            when = "before any answer" if self._received == 0 else "in the middle of the answer"
            self.fail(FailureKind.CLOSED, when + (f": {error}" if error else ""))

    # What the parser calls.

    def on_message_begin(self) -> None:
        """A second response behind the first one was not asked for."""
        if self._waiter is None:
            self.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keeps what is of interest."""
        name = name.lower()
        if name == b"retry-after":
            self._retry_after = value.decode("latin-1")
        elif name in (b"content-length", b"transfer-encoding"):
            self._has_length = True

    def on_headers_complete(self) -> None:
        """Notes the status."""
        self._status: int = self._parser.get_status_code()
        self._has_head = True

    def on_body(self, body: bytes) -> None:
        """Keeps the beginning of the body."""
        if self._body_bytes <= BODY_BYTES_MAX:
            self._body.append(body)
        self._body_bytes += len(body)

    def on_message_complete(self) -> None:
        """Ends the exchange, unless this was only an interim response."""
        if self._waiter is None:
            return
        if self._status >= 200:
            is_cut = self._body_bytes > BODY_BYTES_MAX
            self._finish(is_cut=is_cut, keep=bool(self._parser.should_keep_alive()))
            return
        self._interim += 1
        if self._interim > INTERIM_MAX:
            self.fail(FailureKind.PROTOCOL, f"an interim response {self._status} instead of an answer")
        self._begin_message()


def check_parser() -> None:
    """Raises ConfigError where the HTTP parser is not installed."""
    _parser_class()


def _parser_class() -> Any:
    try:
        from httptools import HttpResponseParser
    except ImportError:
        raise ConfigError("sending needs the httptools package: pip install 'oncegate[sender]'") from None
    return HttpResponseParser
