"""A running service on a real socket, and callers that speak HTTP themselves where a library would not."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec

from oncegate.service.application import Service
from oncegate.service.partners import PartnerBook, PartnerRole
from oncegate.service.serving import make_server
from oncegate.service.settings import (
    DownstreamSettings,
    NetworkSettings,
    ServerSettings,
    Settings,
    SignatureScheme,
    SurfaceSettings,
)
from oncegate.testing.waiting import DEADLINE_SECONDS, wait_until
from oncegate.wiring import Gate
from tests.support.serving import running_server

SECRET = "a-secret-of-sufficient-length"
HOOKS = SurfaceSettings(key="{id}", signature=SignatureScheme.BEARER, secrets=("$HOOKS",), tenant="acme")
BEARER = {"authorization": f"Bearer {SECRET}", "content-type": "application/json"}


class Answer(msgspec.Struct):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)

    @property
    def problem(self) -> str:
        assert self.headers["content-type"] == "application/problem+json"
        return str(self.document["type"]).removeprefix("urn:oncegate:problem:")


class Site:
    """A service on a free port, with two partners of two tenants."""

    def __init__(self, folder: Path, settings: Settings, gate: Gate | None = None) -> None:
        self.gate = gate or Gate(f"sqlite:///{folder}/ledger.db")
        self.book = PartnerBook(self.gate.engine.commits, self.gate.engine.clock)
        self.token, self.other = self._token("exec-1", "acme"), self._token("exec-9", "other")
        self.service = Service(self.gate, settings, self.book, {"HOOKS": SECRET})
        self.port = 0

    def _token(self, name: str, tenant: str) -> str:
        known = name in self.book.partners
        return self.book.rotate(name) if known else self.book.add(name, tenant, list(PartnerRole))

    @contextlib.contextmanager
    def serving(self) -> Iterator[Site]:
        server = make_server(self.service)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
            thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
            thread.start()
            try:
                wait_until(lambda: server.started or not thread.is_alive(), what="the server")
                yield self
            finally:
                server.should_exit = True
                thread.join(DEADLINE_SECONDS)
                self.gate.close()
                assert not thread.is_alive()

    def call(
        self, method: str, path: str, body: bytes | Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One request; a body that is no bytes is sent as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_SECONDS)
        raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        try:
            connection.request(method, path, raw, dict(headers or {}))
            response = connection.getresponse()
            shown = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, shown, response.read())
        finally:
            connection.close()

    def hook(self, event: Any, **headers: str) -> Answer:
        """A webhook with the right secret."""
        return self.call("POST", "/in/hooks", event, {**BEARER, **headers})

    def partner(self, method: str, path: str, body: Any = None, token: str | None = None) -> Answer:
        """A partner's call."""
        headers = {"authorization": f"Bearer {token or self.token}", "content-type": "application/json"}
        return self.call(method, path, body, headers)

    def raw(self, data: bytes, seconds: float = DEADLINE_SECONDS) -> bytes:
        """Sends bytes as they are and reads to the end of the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=seconds) as connection:
            connection.sendall(data)
            return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    """Reads until the other side closes."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


def settings(**changes: Any) -> Settings:
    """Settings for this machine, with one surface."""
    server = ServerSettings(**{"port": 0, "drain_within": "5s", **changes.pop("server", {})})
    network = NetworkSettings(allow_http=True, allow_loopback=True)
    given: dict[str, Any] = {"surfaces": {"hooks": HOOKS}, **changes}
    return Settings(server=server, network=network, **given)


class TeamHandler:
    """The team's own handler, on a socket of its own: answers as it is told and remembers what came."""

    def __init__(self) -> None:
        self.got: list[tuple[str, bytes]] = []
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []  # of every call
        self.owned: dict[str, bytes] = {}  # what a key owns, for probes
        self.status, self.body = 200, b'{"slot": 7}'
        self.hold = threading.Event()
        self.hold.set()

    @contextlib.contextmanager
    def serving(self) -> Iterator[str]:
        from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

        team = self

        class Handle(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                team.headers.append({name.lower(): text for name, text in self.headers.items()})
                team.got.append((self.headers["idempotency-key"], body))
                team.hold.wait(DEADLINE_SECONDS)
                if not team.status:
                    self.close_connection = True  # gone without a word
                    return
                self.send_response(team.status)
                self.send_header("content-length", str(len(team.body)))
                self.end_headers()
                self.wfile.write(team.body)

            def do_GET(self) -> None:
                key = unquote(self.path.rpartition("/")[2])
                team.asked.append(key)
                body = team.owned.get(key, b"")
                self.send_response(200 if key in team.owned else 404)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        with running_server(ThreadingHTTPServer(("127.0.0.1", 0), Handle)) as port:
            yield f"http://127.0.0.1:{port}/bookings"


def forwarding(url: str, surface: Mapping[str, Any] | None = None, **downstream: Any) -> Settings:
    """Settings whose surface brings events to a handler."""
    hooks = msgspec.structs.replace(HOOKS, forward="team", **(surface or {}))
    return settings(
        surfaces={"hooks": hooks}, downstreams={"team": DownstreamSettings(url=url, **downstream)}
    )
