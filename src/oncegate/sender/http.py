"""The guarded HTTP client: one call is one request, to an address that may be called, within limits.

It follows no redirect, reads no proxy or netrc from the environment, and never sends a request twice: a
kept connection that turns out to be closed before anything was written is replaced; after that, whatever
happens is the result of the attempt. Every call returns an `Exchange`; only a mistake of the program
raises.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from datetime import timedelta
from typing import Final

from msgspec import Struct

from oncegate.clock import Clock, SystemClock, from_wall_ms
from oncegate.errors import UsageError
from oncegate.sender.addresses import AddressPolicy
from oncegate.sender.connection import HttpConnection, NoAnswer, WireResponse, request_bytes
from oncegate.sender.connector import ConnectProgress, Dialer, Resolve, SystemResolver
from oncegate.sender.exchange import Exchange, FailureKind, NoResponse, Phase, Response
from oncegate.sender.request_builder import Request
from oncegate.sender.responses import parse_retry_after
from oncegate.sender.urls import EndpointUrl

DEADLINE: Final = timedelta(seconds=15)  # for one attempt, from resolving to the last byte


class Limits(Struct, frozen=True):
    """How much the client does at once, and how long it keeps connections.

    Servers commonly close idle connections after 5 s or more, so that 4 s rarely meets a closing one. A
    connection is not kept for ever, so that a name which moves is noticed.
    """

    in_flight_max: int = 512
    per_origin_max: int = 64
    idle_max: timedelta = timedelta(seconds=4)
    age_max: timedelta = timedelta(minutes=5)


class _Origin:
    """The connections of one origin: those kept, and room for more."""

    __slots__ = ("idle", "room", "users")

    def __init__(self, per_origin_max: int) -> None:
        self.idle: deque[HttpConnection] = deque()
        self.room = asyncio.Semaphore(per_origin_max)
        self.users = 0


class HttpClient:
    """Sends requests from the tasks of one event loop."""

    def __init__(
        self,
        policy: AddressPolicy | None = None,
        *,
        limits: Limits | None = None,
        tls: ssl.SSLContext | None = None,
        resolve: Resolve | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._limits = limits or Limits()
        self._clock = clock or SystemClock()
        self._own_resolver = SystemResolver() if resolve is None else None
        self._dialer = Dialer(policy or AddressPolicy(), tls, resolve or self._own_resolver)  # type: ignore[arg-type]
        self._origins: dict[tuple[str, str, int], _Origin] = {}
        self._room = asyncio.Semaphore(self._limits.in_flight_max)
        self._idle_seconds = self._limits.idle_max.total_seconds()
        self._age_seconds = self._limits.age_max.total_seconds()
        self._sweeping: asyncio.TimerHandle | None = None
        self._closed = False

    async def post(self, url: EndpointUrl, request: Request, *, deadline: timedelta = DEADLINE) -> Exchange:
        """Sends one request and tells what came of it.

        Waiting for room is not part of the deadline: it says nothing about the endpoint. Room at the
        endpoint comes first, so that a slow one does not hold the room of others.
        """
        wire = request_bytes(url.target, url.host_header, request.headers, request.body)
        return await self._exchange(url, wire, deadline)

    async def get(
        self, url: EndpointUrl, headers: tuple[tuple[str, str], ...] = (), *, deadline: timedelta = DEADLINE
    ) -> Exchange:
        """Asks once and tells what came of it; as `post`."""
        return await self._exchange(
            url, request_bytes(url.target, url.host_header, headers, None), deadline
        )

    async def _exchange(self, url: EndpointUrl, wire: bytes, deadline: timedelta) -> Exchange:
        if self._closed:
            raise UsageError("the client is closed")
        origin = self._origins.get(url.origin)
        if origin is None:
            origin = self._origins[url.origin] = _Origin(self._limits.per_origin_max)
        origin.users += 1
        try:
            async with origin.room, self._room:
                return await self._attempt(url, origin, wire, deadline.total_seconds())
        finally:
            origin.users -= 1
            self._forget_unused(url, origin)

    async def _attempt(self, url: EndpointUrl, origin: _Origin, wire: bytes, seconds: float) -> Exchange:
        loop = asyncio.get_running_loop()
        started, progress = loop.time(), ConnectProgress()
        try:
            connection = self._kept(origin, started)
            if connection is None:
                async with asyncio.timeout(seconds):
                    connection = await self._dialer.dial(url, progress)
            progress.phase = Phase.ANSWER
            answer = await _ask(loop, connection, wire, started + seconds)
        except NoAnswer as failure:
            return self._none(failure.kind, failure.detail, progress, started)
        except TimeoutError:
            return self._none(
                FailureKind.TIMEOUT, f"{url.host}: nothing within {seconds:g} s", progress, started
            )
        self._keep(origin, connection)
        return self._response(answer, started)

    def _none(
        self, kind: FailureKind, detail: str, progress: ConnectProgress, started: float
    ) -> NoResponse:
        was_sent = progress.phase is Phase.ANSWER
        return NoResponse(kind, progress.phase, detail[:300], _since(started), was_sent)

    def _response(self, answer: WireResponse, started: float) -> Response:
        retry_after = None
        if answer.retry_after is not None:
            retry_after = parse_retry_after(answer.retry_after, from_wall_ms(self._clock.wall_ms()))
        return Response(answer.status, _since(started), retry_after, answer.body, answer.is_cut)

    def _kept(self, origin: _Origin, now: float) -> HttpConnection | None:
        """The connection that was used last, if it is still good; nothing is written to find out."""
        while origin.idle:
            connection = origin.idle.pop()
            if self._is_fresh(connection, now) and connection.is_usable():
                return connection
            connection.abort()
        return None

    def _is_fresh(self, connection: HttpConnection, now: float) -> bool:
        is_young = now - connection.opened_at < self._age_seconds
        return is_young and now - connection.idle_since < self._idle_seconds

    def _keep(self, origin: _Origin, connection: HttpConnection) -> None:
        if self._closed or not connection.is_open:
            connection.abort()
            return
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        origin.idle.append(connection)
        if self._sweeping is None:
            self._sweeping = loop.call_later(self._idle_seconds, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Closes connections that were not used for a while."""
        now, self._sweeping = loop.time(), None
        for key, origin in list(self._origins.items()):
            while origin.idle and not (origin.idle[0].is_open and self._is_fresh(origin.idle[0], now)):
                origin.idle.popleft().abort()
            if not origin.idle and not origin.users:
                del self._origins[key]
        if any(origin.idle for origin in self._origins.values()):
            self._sweeping = loop.call_later(self._idle_seconds, self._sweep, loop)

    def _forget_unused(self, url: EndpointUrl, origin: _Origin) -> None:
        if not origin.users and not origin.idle:
            self._origins.pop(url.origin, None)

    async def close(self) -> None:
        """Drops kept connections; requests under way end by themselves."""
        self._closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        for origin in self._origins.values():
            while origin.idle:
                origin.idle.pop().abort()
        if self._own_resolver is not None:
            self._own_resolver.close()
        await asyncio.sleep(0)  # lets the transports say goodbye


async def _ask(
    loop: asyncio.AbstractEventLoop, connection: HttpConnection, wire: bytes, until: float
) -> WireResponse:
    waiter = connection.exchange(wire)
    timer = loop.call_at(until, connection.fail, FailureKind.TIMEOUT, "no complete answer in time")
    try:
        return await waiter
    except asyncio.CancelledError:
        connection.abort()  # the answer, if one comes, must not meet the next request
        raise
    finally:
        timer.cancel()


def _since(started: float) -> timedelta:
    return timedelta(seconds=asyncio.get_running_loop().time() - started)
