"""A receiver as an application of its own, to be mounted in one line: ASGI, WSGI, or a view of Django.

Reads no more of a body than a receiver takes. Django is imported where its view is made.
"""

from __future__ import annotations

import http
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any, Final, Protocol

from oncegate.errors import ConfigError
from oncegate.receiver.answers import Answer, answer
from oncegate.receiver.incoming import BODY_BYTES_MAX

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
StartResponse = Callable[..., Any]

_ONLY_POST: Final = Answer(
    405, (("allow", "POST"), ("content-type", "application/json")), b'{"error":"POST"}'
)
_DJANGO_HINT: Final = "this view needs Django: pip install django"


class Receives(Protocol):
    """What is mounted."""

    @property
    def is_async(self) -> bool:
        """Whether its handler is async."""

    async def receive(self, headers: Any, body: bytes) -> Answer:
        """Answers a request from a task."""

    def receive_sync(self, headers: Any, body: bytes) -> Answer:
        """Answers a request from a thread."""


class AsgiReceiver:
    """An ASGI application: `app.add_route("/stripe", receiver.asgi())` in Starlette and FastAPI."""

    def __init__(self, receiver: Receives) -> None:
        self._receiver = receiver

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await _live(receive, send)
        if scope["type"] != "http":
            raise ConfigError(f"webhooks come over http, not over {scope['type']}")
        if scope["method"] != "POST":
            return await _send(send, _ONLY_POST)
        body = await _body(receive)
        if body is not None:
            await _send(send, await self._receiver.receive(scope["headers"], body))
        return None


async def _live(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def _body(receive: Receive) -> bytes | None:
    """The body, or as much of it as shows that it is too large; None where its sender has gone."""
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > BODY_BYTES_MAX or not message.get("more_body", False):
            return b"".join(parts)


async def _send(send: Send, found: Answer) -> None:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in found.headers]
    headers.append((b"content-length", str(len(found.body)).encode()))
    await send({"type": "http.response.start", "status": found.status, "headers": headers})
    await send({"type": "http.response.body", "body": found.body})


class WsgiReceiver:
    """A WSGI application; a view of Flask may return it."""

    def __init__(self, receiver: Receives) -> None:
        self._receiver = receiver

    def __call__(self, environ: Mapping[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "POST":
            found = _ONLY_POST
        else:
            found = self._receiver.receive_sync(_wsgi_headers(environ), _wsgi_body(environ))
        status = f"{found.status} {http.HTTPStatus(found.status).phrase}"
        start_response(status, [*found.headers, ("content-length", str(len(found.body)))])
        return [found.body]


def _wsgi_headers(environ: Mapping[str, Any]) -> list[tuple[str, str]]:
    headers = [
        (name[5:].replace("_", "-").lower(), value)
        for name, value in environ.items()
        if name.startswith("HTTP_")
    ]
    return [*headers, ("content-type", environ.get("CONTENT_TYPE", ""))]


def _wsgi_body(environ: Mapping[str, Any]) -> bytes:
    """At most one byte more than is taken; without a length only where the server ends the body itself."""
    length = environ.get("CONTENT_LENGTH") or ""
    if length.isascii() and length.isdigit():
        return bytes(environ["wsgi.input"].read(min(int(length), BODY_BYTES_MAX + 1)))
    return (
        bytes(environ["wsgi.input"].read(BODY_BYTES_MAX + 1))
        if environ.get("wsgi.input_terminated")
        else b""
    )


def django_view(receiver: Receives) -> Callable[..., Any]:
    """A view for `path("stripe/", receiver.django())`; it needs no CSRF token: the signature says more.

    ATOMIC_REQUESTS does not apply to it: an outcome must be committed before it is answered.
    """
    try:
        from django.conf import settings
        from django.http import HttpResponse
    except ImportError:
        raise ConfigError(_DJANGO_HINT) from None

    def response(found: Answer) -> Any:
        headers = dict(found.headers)
        made = HttpResponse(found.body, status=found.status, content_type=headers.pop("content-type"))
        for name, value in headers.items():
            made[name] = value
        return made

    def body_of(request: Any) -> bytes:
        length = request.META.get("CONTENT_LENGTH") or "0"
        return bytes(request.read(BODY_BYTES_MAX + 1) if int(length) > BODY_BYTES_MAX else request.body)

    def view(request: Any) -> Any:
        if request.method != "POST":
            return response(_ONLY_POST)
        return response(receiver.receive_sync(dict(request.headers), body_of(request)))

    async def async_view(request: Any) -> Any:
        if request.method != "POST":
            return response(_ONLY_POST)
        return response(await receiver.receive(dict(request.headers), body_of(request)))

    chosen: Any = async_view if receiver.is_async else view
    chosen.csrf_exempt = True
    chosen._non_atomic_requests = set(settings.DATABASES) if settings.configured else set()
    return chosen  # type: ignore[no-any-return]


def greeted(document: dict[str, str]) -> Answer:
    """The answer to a provider that asks whether an address is ours."""
    return answer(200, document)
