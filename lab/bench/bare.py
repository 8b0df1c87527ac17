"""The bare server of the HTTP measurement: reads the body, answers, and has no gate."""

from __future__ import annotations

from typing import Any, Final

_BODY: Final = b'{"replay":false}'
_HEADERS: Final = [(b"content-type", b"application/json"), (b"content-length", b"16")]


async def app(scope: Any, receive: Any, send: Any) -> None:
    """An ASGI application."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body", False):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": _BODY})
