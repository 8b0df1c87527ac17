"""The short way through the server: plain webhooks are answered by the protocol itself.

A POST to a known surface, of a known length and without anything unusual about it, is most of what a
service gets. It needs no scope, no queue of messages and, where memory knows the answer, no task. All else
takes uvicorn's own way to the application. Must never be a way around a limit or a check: what is not
certainly plain goes the long way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from http import HTTPStatus
from typing import Any, ClassVar, Final

from msgspec import Struct

from oncegate.service.fastpath.handler import LargeBody, Webhooks
from oncegate.service.host_allow_list import Hosts
from oncegate.service.listeners import Listeners
from oncegate.service.messages import JSON_HEADERS, ServiceResponse
from oncegate.service.protocol import BoundedHttp
from oncegate.service.surfaces import Entrance
from oncegate.signatures import LoweredHeaders

LENGTH_DIGITS_MAX: Final = 12
_UNUSUAL: Final = frozenset({b"transfer-encoding", b"content-encoding", b"expect", b"upgrade"})


class _Nobody:
    """Stands for the application that waits for an exchange: there is none."""

    def set(self) -> None:
        """Does nothing."""


_NOBODY: Final = _Nobody()


class FastExchange(Struct, eq=False):
    """One request and its answer, with what uvicorn's own has where the protocol looks at it."""

    message_event: ClassVar = _NOBODY
    entrance: Entrance
    headers: LoweredHeaders
    keep_alive: bool
    parts: list[bytes] = []
    more_body: bool = True
    disconnected: bool = False
    response_started: bool = False
    response_complete: bool = False


class ResponseHeads:
    """Status line and headers of plain answers, made again when the server's own headers change."""

    def __init__(self) -> None:
        self._of: list[tuple[bytes, bytes]] | None = None
        self._fixed = b""
        self._plain = b""

    def head(self, answer: ServiceResponse, defaults: list[tuple[bytes, bytes]], keep_alive: bool) -> bytes:
        """Everything before the body."""
        if defaults is not self._of:
            self._of, self._fixed = defaults, _lines(defaults)
            self._plain = _status(200) + self._fixed + _lines(_encoded(JSON_HEADERS))
        if answer.status == 200 and answer.headers is JSON_HEADERS and keep_alive:
            return self._plain + b"content-length: %d\r\n\r\n" % len(answer.body)
        own = [pair for pair in _encoded(answer.headers) if pair[0] != b"content-length"]
        own.append((b"content-length", b"%d" % len(answer.body)))
        if not keep_alive:
            own.append((b"connection", b"close"))
        return _status(answer.status) + self._fixed + _lines(own) + b"\r\n"


class DirectHttp(BoundedHttp):
    """One connection, on which plain webhooks take the short way."""

    webhooks: Webhooks
    body_bytes_max: int
    heads: ResponseHeads
    hosts: Hosts
    listeners: Listeners

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._exchange: FastExchange | None = None
        self._entrances: dict[bytes, Entrance] = {}
        self._idle_look: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Webhooks come to the service's own listener only."""
        super().connection_made(transport)
        if not self.listeners.is_admin(self.server):
            self._entrances = self.webhooks.entrances

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the clock."""
        if self._idle_look is not None:
            self._idle_look.cancel()
            self._idle_look = None
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """A request has begun; what only the application needs is made when it is needed."""
        self._has_begun = True
        if not self._bytes_before_body:
            self._begin_behind()
        self.url, self.headers, self.expect_100_continue = b"", [], False

    def _begin_request(self) -> None:
        entrance = self._entrances.get(self.url)
        if entrance is not None:
            headers = LoweredHeaders(self.headers)
            if self._is_plain(headers):
                self._body_left = int(headers.raw[b"content-length"])
                self._exchange = FastExchange(entrance, headers, self.parser.should_keep_alive())
                self.cycle = self._exchange  # type: ignore[assignment]
                return
        self._exchange = None
        url, pairs, expects = self.url, self.headers, self.expect_100_continue
        self._begin_scope()
        self.url, self.expect_100_continue = url, expects
        self.headers.extend(pairs)
        super()._begin_request()

    def _is_plain(self, headers: LoweredHeaders) -> bool:
        """Whether nothing is unusual about a request; its body is as long as it says then."""
        parser, cycle = self.parser, self.cycle
        of = headers.sole if headers.has_repeats else headers.raw.get
        length, host = of(b"content-length"), of(b"host")
        return (
            length is not None
            and length.isdigit()
            and len(length) <= LENGTH_DIGITS_MAX
            and int(length) <= self.body_bytes_max
            and parser.get_method() == b"POST"
            and parser.get_http_version() == "1.1"
            and _UNUSUAL.isdisjoint(headers.raw)
            and (host in self.hosts.met or self.hosts.are_named(host))
            and (cycle is None or cycle.response_complete)
            and not self.flow.write_paused
        )

    def on_body(self, body: bytes) -> None:
        """Takes a part of the body."""
        if self._exchange is None:
            super().on_body(body)
        else:
            self._body_left -= len(body)
            if not self._is_refused:
                self._exchange.parts.append(body)

    def _end_request(self) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            super()._end_request()
            return
        exchange.more_body = False
        body = exchange.parts[0] if len(exchange.parts) == 1 else b"".join(exchange.parts)
        exchange.parts = []
        found = self.webhooks.take(exchange.entrance, exchange.headers, body)
        if isinstance(found, ServiceResponse):
            self._respond(exchange, found)
            return
        if isinstance(found, LargeBody):
            answer = self.webhooks.admit_large(found)
        else:
            answer = self.webhooks.finish(exchange.entrance, found)
        task = self.loop.create_task(self._answer(exchange, answer))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _answer(self, exchange: FastExchange, answer: Coroutine[Any, Any, ServiceResponse]) -> None:
        try:
            self._respond(exchange, await answer)
        except BaseException:
            exchange.response_complete = True
            self.transport.close()  # whoever waits must not wait for ever
            raise

    def _respond(self, exchange: FastExchange, answer: ServiceResponse) -> None:
        exchange.response_started = exchange.response_complete = True
        if exchange.disconnected or self.transport.is_closing():
            return
        head = self.heads.head(answer, self.server_state.default_headers, exchange.keep_alive)
        self.transport.write(head + answer.body)
        if not exchange.keep_alive:
            self.transport.close()
            self._unread.watch()
        if self.pipeline or self.flow.read_paused:
            self.on_response_complete()
            return
        self.server_state.total_requests += 1
        self._idle_since = self.loop.time()
        if self._idle_look is None:
            self._idle_look = self.loop.call_later(self.timeout_keep_alive, self._look_whether_idle)

    def _look_whether_idle(self) -> None:
        """Ends a connection on which nothing has come for long; one look for many requests."""
        self._idle_look = None
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if self._is_in_use() or left > 0:
            wait = left if left > 0 else self.timeout_keep_alive
            self._idle_look = self.loop.call_later(wait, self._look_whether_idle)
        else:
            self.timeout_keep_alive_handler()

    def _is_in_use(self) -> bool:
        is_waiting = self.cycle is not None and not self.cycle.response_complete
        return (
            is_waiting
            or self._has_begun
            or self._is_reading
            or bool(self._bytes_before_body or self._behind)
        )


def _status(status: int) -> bytes:
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode()


def _lines(pairs: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join(name + b": " + value + b"\r\n" for name, value in pairs)


def _encoded(pairs: tuple[tuple[str, str], ...]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs]
