"""`Idempotency-Key` for any ASGI application (IETF draft-ietf-httpapi-idempotency-key-header).

The whole response is gathered, recorded, and only then sent: an application that fails after its response,
as a dependency that commits on the way out may, is a failure here and not a 200. Must never call the
application for a key that is not reserved, and never send a 2xx that is not on record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from hashlib import sha256
from sys import maxsize
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from oncegate.errors import OncegateError
from oncegate.gate.once import AsyncOnce
from oncegate.integrations.middleware import Middleware, Passage
from oncegate.integrations.policy import (
    caller_or_problem,
    event_of,
    live_exchange,
)
from oncegate.integrations.problems import Problem
from oncegate.integrations.replies import Reply, ResponseBuffer, can_have_body, text_headers

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

_UNQUOTED: Final = "/!$&'()*+,;=:@"  # what stands in a path as it is (RFC 3986), beside letters and digits


def caller_by_authorization(scope: Scope) -> str | None:
    """Tells callers apart by their Authorization header, kept as a hash; None where there is none in it.

    The header is not checked: that is the application's own work. One who sends a wrong one finds only
    keys of those who send the same wrong one.
    """
    found = [value for name, value in scope["headers"] if name == b"authorization"]
    return sha256(found[0]).hexdigest()[:40] if len(found) == 1 and found[0].strip() else None


class IdempotencyKey(Middleware[Application, Scope]):
    """Middleware: each request with a key is carried out once, and its response is sent again.

    `caller` tells from the scope whose request it is; keys of different callers never meet. `applies`
    chooses requests beyond `methods`.

    A response from 500 on, or an exception, leaves the outcome unknown: the request never runs again by
    itself, unless `retry_on_5xx` declares such failures harmless (all of them, or a list of statuses), or
    the application raises `NotApplied`. `downstream` says what the application's effects can do about a
    repeat; with `uses_once` the application finds `once` in its scope ("oncegate.once") and promises that
    whatever it does outside goes through it. The key to pass on is in the scope as "oncegate.key".
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves a request."""
        if (
            scope["type"] != "http"
            or scope["method"] not in self._policy.methods
            or not self._applies(scope)
        ):
            await self._app(scope, receive, send)
            return
        key = self._policy.key_of([value for name, value in scope["headers"] if name == b"idempotency-key"])
        if key is None or (self._observes and self._is_refused(key, scope)):
            await self._app(scope, receive, send)
        elif isinstance(key, Problem):
            await _send(send, key)
        else:
            await self._guard(key, scope, receive, send)

    async def _guard(self, key: str, scope: Scope, receive: Receive, send: Send) -> None:
        caller = caller_or_problem(self._caller(scope))
        if isinstance(caller, Problem):
            await _send(send, caller)
            return
        limit = maxsize if self._observes else self._policy.body_bytes_max
        body = await _read_body(scope, receive, limit)
        if body is None:
            return  # the caller has gone before its request was complete
        if body.is_too_large:
            await _send(send, self._policy.too_large())
            return
        await _send(send, await self._admit(caller, _event(key, scope, body.body), scope, body.body))

    async def _admit(
        self, caller: str, event: dict[str, str], scope: Scope, body: bytes
    ) -> Reply | Problem:
        passage = Passage((scope, body), is_observed=self._observes)
        with passage:
            passage.conclude(await self._gate.admit(self._surface, event, tenant=caller))
        return passage.answer

    def _handler(self, uses_once: bool) -> Callable[..., Awaitable[Reply]]:
        async def run(event: Any, idempotency_key: str = "") -> Reply:
            return await self._run({"oncegate.key": idempotency_key})

        async def run_with_once(event: Any, once: AsyncOnce) -> Reply:
            return await self._run({"oncegate.key": once.key, "oncegate.once": once})

        return run_with_once if uses_once else run

    async def _run(self, additions: dict[str, Any]) -> Reply:
        exchange = live_exchange()
        scope, body = exchange.request
        recording = _Recording(body, maxsize if exchange.is_observed else self._policy.response_bytes_max)
        shown = {**scope, **additions, "extensions": _plain_extensions(scope)}
        try:
            await self._app(shown, recording.receive, recording.send)
        except Exception as error:
            if "oncegate.once" in additions and isinstance(error, OncegateError):
                raise  # what the gate itself said through `once` is for the gate to judge
            raise self._policy.failure(None, error) from error
        return self._policy.conclude(exchange, recording.reply())


def _event(key: str, scope: Scope, body: bytes) -> dict[str, str]:
    kinds = [value for name, value in scope["headers"] if name == b"content-type"]
    query = bytes(scope.get("query_string") or b"").decode("latin-1")
    content_type = b",".join(kinds).decode("latin-1")
    event = event_of(key, (scope["method"], scope["path"], query), content_type, body)
    raw_path = bytes(scope.get("raw_path") or b"").partition(b"?")[0].decode("latin-1")
    # /a%2Fb and /a/b are one path once decoded. The usual spelling says nothing that the path does not.
    if raw_path and raw_path != quote(scope["path"], _UNQUOTED, errors="replace"):
        event["raw_path"] = raw_path
    return event


async def _read_body(scope: Scope, receive: Receive, bytes_max: int) -> ResponseBuffer | None:
    """Reads the body up to the limit; None if the caller went away."""
    gathering = ResponseBuffer(bytes_max)
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        gathering.add(message.get("body", b""))
        if gathering.is_too_large or not message.get("more_body", False):
            return gathering


def _plain_extensions(scope: Scope) -> dict[str, Any]:
    """Extensions that let an application send something other than a status, headers and a body go."""
    return {name: value for name, value in (scope.get("extensions") or {}).items() if name == "tls"}


class _Recording:
    """Stands between the application and the server: gives the body once, gathers the response.

    That the caller has gone is not told: the response is wanted all the same, for when it asks again.
    """

    def __init__(self, body: bytes, bytes_max: int) -> None:
        self._body: bytes | None = body
        self._gathering = ResponseBuffer(bytes_max)
        self._status = 0
        self._headers: tuple[tuple[str, str], ...] = ()
        self._is_complete = asyncio.Event()

    async def receive(self) -> Message:
        """The request's body, and after the response the end."""
        body, self._body = self._body, None
        if body is not None:
            return {"type": "http.request", "body": body, "more_body": False}
        await self._is_complete.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Takes a part of the response."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = text_headers(message.get("headers", ()))
        elif message["type"] == "http.response.body":
            self._gathering.add(message.get("body", b""))
            if not message.get("more_body", False):
                self._is_complete.set()

    def reply(self) -> Reply | None:
        """The response, or None if it never became complete."""
        if not self._status or not self._is_complete.is_set():
            return None
        gathered = self._gathering
        return Reply(self._status, self._headers, gathered.body, gathered.is_too_large)


async def _send(send: Send, answer: Reply | Problem) -> None:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
    is_told = any(name.lower() in (b"content-length", b"transfer-encoding") for name, _ in headers)
    if not is_told and can_have_body(answer.status):
        headers.append((b"content-length", str(len(answer.body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
