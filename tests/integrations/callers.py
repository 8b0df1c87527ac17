"""Callers of an application under test: over the ASGI protocol itself, and over a real server's socket."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import uvicorn

from oncegate.testing.waiting import DEADLINE_SECONDS, wait_until

KEY = '"8e03978e-40d5"'


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def replayed(self) -> bool:
        return self.headers.get("idempotency-replayed") == "true"


async def call(
    app: Any,
    *,
    key: str | None = KEY,
    body: bytes | list[bytes] = b'{"item": 1}',
    method: str = "POST",
    path: str = "/orders",
    query: bytes = b"",
    raw_path: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Sends one request over the ASGI protocol; `body` may come in parts."""
    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
    if key is not None:
        raw.append((b"idempotency-key", key.encode("latin-1")))
    parts = [body] if isinstance(body, bytes) else body
    waiting = [
        {"type": "http.request", "body": part, "more_body": number < len(parts)}
        for number, part in enumerate(parts, start=1)
    ]
    got: list[Any] = []

    async def receive() -> Any:
        return waiting.pop(0) if waiting else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        got.append(message)

    scope = {"type": "http", "method": method, "path": path, "query_string": query, "headers": raw}
    if raw_path is not None:
        scope["raw_path"] = raw_path
    await app(scope, receive, send)
    if not got:
        return Answer(0)
    start = got[0]
    shown = {bytes(name).decode().lower(): bytes(value).decode() for name, value in start["headers"]}
    return Answer(start["status"], shown, b"".join(message.get("body", b"") for message in got[1:]))


def run(coroutine: Any) -> Any:
    """Runs one test's tasks with a bound."""

    async def bounded() -> Any:
        return await asyncio.wait_for(coroutine, DEADLINE_SECONDS)

    return asyncio.run(bounded())


@contextlib.contextmanager
def served(app: Any, **options: Any) -> Iterator[int]:
    """Serves an application with uvicorn on a free port of this machine; gives the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, log_level="critical", lifespan="auto", access_log=False, **options)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
        thread.start()
        try:
            wait_until(lambda: server.started, what="the server to start")
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(DEADLINE_SECONDS)
            assert not thread.is_alive()


def post(port: int, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
    """Posts over a socket."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_SECONDS)
    try:
        connection.request("POST", path, body, dict(headers))
        response = connection.getresponse()
        shown = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, shown, response.read())
    finally:
        connection.close()
