"""Requests and answers of the service: bodies within limits, JSON and problem documents out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from contextlib import AbstractContextManager
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import parse_qsl

import msgspec

from oncegate.errors import MalformedRequest
from oncegate.integrations.problems import Problem, ProblemKind
from oncegate.signatures import Headers

T = TypeVar("T")

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

JSON_HEADERS: Final = (("content-type", "application/json"), ("cache-control", "no-store"))
_JSON_BYTES: Final = tuple((name.encode(), value.encode()) for name, value in JSON_HEADERS)
PIECE_BYTES: Final = 64 * 1024  # of an answer, given to the connection at once
_encode: Final = msgspec.json.Encoder().encode


class ServiceResponse(msgspec.Struct, frozen=True):
    """A status, headers and a body, ready to be sent."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = JSON_HEADERS
    key: str | None = None  # for the log


class Gone(Exception):
    """The caller went away before its request was complete, or while it waited for an event."""


class RequestDenied(Exception):
    """A request is answered with a problem instead of being carried out."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


def method_not_allowed(*allowed: str) -> RequestDenied:
    """405, with what can be done here instead."""
    methods = ", ".join(allowed)
    detail, headers = f"this place takes {methods}", (("allow", methods),)
    return RequestDenied(Problem(ProblemKind.METHOD_NOT_ALLOWED, detail, more_headers=headers))


class ServiceRequest:
    """One request: its headers, its query, and its body when it is asked for."""

    def __init__(self, scope: Scope, receive: Receive, body_bytes_max: int) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.server: tuple[str, int | None] | None = scope.get("server")  # our own address
        self.headers = Headers(scope["headers"])
        self._query = bytes(scope.get("query_string") or b"")
        self._receive = receive
        self._body_bytes_max = body_bytes_max
        self._body: bytes | None = None
        self.caller: str | None = None  # the partner's name, once it is known
        self.tenant = ""  # the partner's, once it is known
        self.places: list[AbstractContextManager[None]] = []  # kept until the answer is taken

    def take_place(self, place: AbstractContextManager[None]) -> None:
        """Takes a place that is given back when the answer has been sent; raises Refused without one."""
        place.__enter__()
        self.places.append(place)

    def give_places_back(self) -> None:
        """The answer has been sent, or its client is gone."""
        while self.places:
            self.places.pop().__exit__(None, None, None)

    def query(self, *known: str) -> dict[str, str]:
        """The query's values; one that is not known, comes twice or is not UTF-8 is refused."""
        try:
            text = self._query.decode("ascii")
            pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=20)
        except ValueError:
            raise MalformedRequest("the query cannot be read") from None
        values = dict(pairs)
        if len(values) != len(pairs) or not set(values) <= set(known):
            raise MalformedRequest(f"the query may have, once each: {', '.join(known)}")
        return values

    async def body(self) -> bytes:
        """The whole body, read when it is first asked for; 413 beyond the limit, 415 where compressed."""
        if self._body is None:
            self._body = await self._read_body()
        return self._body

    async def _read_body(self) -> bytes:
        encoding = self.headers.find("content-encoding")
        if encoding is not None and encoding.lower() != "identity":
            raise RequestDenied(Problem(ProblemKind.ENCODING_UNSUPPORTED, "send the body as it is"))
        self._check_announced()
        parts, length = [], 0
        while True:
            message = await self._receive()
            if message["type"] != "http.request":
                raise Gone
            part = message.get("body", b"")
            length += len(part)
            if length > self._body_bytes_max:
                raise self._too_large()
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)

    async def unless_gone(self, work: Coroutine[Any, Any, T]) -> T:
        """Does what mostly waits, and leaves it when the caller goes away; its body is not read then."""
        doing, leaving = asyncio.create_task(work), asyncio.create_task(self._gone())
        try:
            await asyncio.wait((doing, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                raise Gone
            return doing.result()
        finally:
            doing.cancel()
            leaving.cancel()
            await asyncio.wait((doing, leaving))  # a place is given back once nobody works in it

    async def _gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def check_media_type(self) -> None:
        """JSON by any of its names; 415 for anything else."""
        check_media_type(self.headers)

    def _check_announced(self) -> None:
        """Refuses at once what says itself that it is too large."""
        announced = self.headers.find("content-length") or ""
        if announced.isascii() and announced.isdigit() and int(announced[:20]) > self._body_bytes_max:
            raise self._too_large()

    def _too_large(self) -> RequestDenied:
        return RequestDenied(
            Problem(ProblemKind.BODY_TOO_LARGE, f"at most {self._body_bytes_max} bytes are taken")
        )


def check_media_type(headers: Headers) -> None:
    """JSON by any of its names; 415 for anything else."""
    given = headers.find("content-type") or ""
    if given == "application/json":
        return
    kind = given.partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise RequestDenied(Problem(ProblemKind.MEDIA_TYPE_UNSUPPORTED, "send application/json"))


def json_answer(status: int, document: Any, *, key: str | None = None) -> ServiceResponse:
    """A JSON document; `key` is for the log."""
    return ServiceResponse(status, _encode(document), key=key)


def problem_answer(problem: Problem) -> ServiceResponse:
    """A problem document."""
    return ServiceResponse(problem.status, problem.body, problem.headers)


async def send_answer(send: Send, answer: ServiceResponse, *, close: bool = False) -> None:
    """Sends an answer; `close` ends the connection, as after a body that was not read to its end."""
    if answer.headers is JSON_HEADERS:
        headers = [*_JSON_BYTES, (b"content-length", b"%d" % len(answer.body))]
    else:
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
        if not any(name == b"content-length" for name, _ in headers):
            headers.append((b"content-length", b"%d" % len(answer.body)))
    if close:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send_in_pieces(send, {"type": "http.response.body", "body": answer.body})


async def send_in_pieces(send: Send, message: MutableMapping[str, Any]) -> None:
    """Sends a message, a large body in pieces: each waits until the peer has taken most of those before."""
    body = message.get("body", b"")
    if len(body) <= PIECE_BYTES:
        await send(message)
        return
    for at in range(0, len(body), PIECE_BYTES):
        await send({"type": "http.response.body", "body": body[at : at + PIECE_BYTES], "more_body": True})
    await send({**message, "body": b""})
