"""A service's feed over HTTP as a source for `consume`: reads and acknowledges with a partner's token.

Being unreachable, overloaded or restarted is waited out for a while; repeating is safe, since reading
changes nothing and an acknowledgement only ever moves forward. Must never send the token in clear unless
told to, and never follow a redirect with it.
"""

from __future__ import annotations

import asyncio
import http.client
import ssl
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import msgspec

from oncegate.clock import Clock, SystemClock
from oncegate.errors import ConfigError, CursorExpired, CursorRefused, NotAuthentic, StoreUnavailable
from oncegate.feed.values import Ack, Page
from oncegate.model.durations import parse_duration

ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
TIMEOUT_SECONDS: Final = 30.0  # beyond what a long poll waits
PAUSE_SECONDS: Final = 0.2
PAUSE_SECONDS_MAX: Final = 5.0
WAIT_SECONDS_MAX: Final = 30.0  # what the service takes
_LATER: Final = frozenset({408, 429, 500, 502, 503, 504})


class HttpSource:
    """The feed of one partner at one service, such as `HttpSource("https://wes.example", token)`."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        prefix: str = "/wes/v1",
        patience: str | timedelta = "5m",
        allow_http: bool = False,
        clock: Clock | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
            raise ConfigError("the service's address is written https://host or https://host/path")
        is_here = parts.hostname in ("localhost", "127.0.0.1", "::1")
        if parts.scheme == "http" and not (allow_http or is_here):
            raise ConfigError("a token over http can be read by others; use https, or say allow_http=True")
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, parts.port
        self._path = parts.path.rstrip("/") + prefix
        self._headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        self._patience_ms = parse_duration(patience) // timedelta(milliseconds=1)
        self._clock = clock or SystemClock()

    async def read(self, since: str | None, limit: int, wait_seconds: float) -> Page:
        """Reads the events after a cursor; None means after the last acknowledged."""
        wait = int(min(max(wait_seconds, 0), WAIT_SECONDS_MAX))
        query = {"limit": str(limit), "wait": str(wait)} | ({} if since is None else {"since": since})
        return _page(await self._asked("GET", f"/dispatch/pending?{urlencode(query)}", None, wait))

    async def ack(self, cursor: str) -> Ack:
        """Acknowledges everything up to a cursor."""
        body = msgspec.json.encode({"cursor": cursor})
        return _ack(await self._asked("POST", "/dispatch/ack", body, 0))

    async def _asked(self, method: str, path: str, body: bytes | None, wait: int) -> bytes:
        """Asks until there is an answer, or patience is at its end."""
        ends_at, pause = self._clock.ticks_ms() + self._patience_ms, PAUSE_SECONDS
        while True:
            try:
                status, answer = await asyncio.to_thread(self._ask, method, path, body, wait)
                told = f"it answered {status}"
                if status not in _LATER:
                    return _judged(status, answer)
            except (OSError, http.client.HTTPException) as error:
                told = type(error).__name__
            if self._clock.ticks_ms() >= ends_at:
                raise StoreUnavailable(f"the service at {self._host} cannot be reached: {told}")
            await self._clock.pause_async(pause)
            pause = min(pause * 2, PAUSE_SECONDS_MAX)

    def _ask(self, method: str, path: str, body: bytes | None, wait: int) -> tuple[int, bytes]:
        connection = self._connection(TIMEOUT_SECONDS + wait)
        try:
            connection.request(method, self._path + path, body, self._headers)
            response = connection.getresponse()
            answer = response.read(ANSWER_BYTES_MAX + 1)
            if len(answer) > ANSWER_BYTES_MAX:
                raise http.client.HTTPException("the answer is too large")
            return response.status, answer
        finally:
            connection.close()

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        if not self._secure:
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=context)

    def __repr__(self) -> str:
        return f"HttpSource({self._host!r})"


_page: Final = msgspec.json.Decoder(Page).decode
_ack: Final = msgspec.json.Decoder(Ack).decode


def _judged(status: int, answer: bytes) -> bytes:
    """The answer, or the error that it tells of."""
    if status == 200:
        return answer
    detail = _detail(answer)
    if status in (401, 403):
        raise NotAuthentic(f"the service refused the token: {detail}")
    if status == 410:
        raise CursorExpired(detail)
    if status == 400:
        raise CursorRefused(detail)
    raise ConfigError(f"the service answered {status}: {detail}; is its address and prefix right?")


def _detail(answer: bytes) -> str:
    try:
        document: Any = msgspec.json.decode(answer)
        return str(document["detail"])[:300]
    except (msgspec.MsgspecError, ValueError, KeyError, TypeError):
        return "no reason given"
