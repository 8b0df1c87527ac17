"""The sender's client and a receiver over real HTTP: a small ASGI application, served by uvicorn."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from oncegate.receiver import Receiver
from oncegate.sender.addresses import AddressPolicy
from oncegate.sender.exchange import Response
from oncegate.sender.http import HttpClient
from oncegate.sender.responses import Result, judge
from oncegate.sender.urls import EndpointUrl, parse_endpoint_url
from tests.receiver.requests import Inbox
from tests.support.gates import Ledger

POLICY = AddressPolicy(allow_http=True, allow_loopback=True)


def application(receiver: Receiver) -> Any:
    """A whole ASGI application around a receiver."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more and len(body) <= 1024 * 1024:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        found = await receiver.receive(scope["headers"], body)
        headers = [(name.encode(), value.encode()) for name, value in found.headers]
        await send({"type": "http.response.start", "status": found.status, "headers": headers})
        await send({"type": "http.response.body", "body": found.body})

    return app


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[EndpointUrl]:
    """Serves an application on a port of loopback."""
    sock = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="critical"))
    task = asyncio.create_task(server.serve([sock]))
    try:
        yield parse_endpoint_url(f"http://127.0.0.1:{sock.getsockname()[1]}/hooks", POLICY)
    finally:
        server.should_exit = True
        await task
        sock.close()


async def test_ordered_deliveries_over_http(ledger: Ledger) -> None:
    """Given a served receiver; when events are sent early, in turn and again; then each is applied once."""
    inbox, http = Inbox(ledger), HttpClient(POLICY)
    async with served(application(inbox.receiver)) as url:
        found = [await http.post(url, inbox.request(seq)) for seq in (2, 1, 2, 1)]
        tampered = await http.post(url, inbox.request(3).__class__(inbox.request(3).headers, b"{}"))
        await http.close()
    statuses = [response.status for response in found if isinstance(response, Response)]
    assert statuses == [425, 200, 200, 200]
    assert isinstance(tampered, Response)
    assert tampered.status == 401
    assert [judge(response).result for response in found] == [Result.FAILED, *[Result.DELIVERED] * 3]
    assert inbox.applied == [("k", 1), ("k", 2)]


async def test_many_lanes_at_once_are_each_in_order(ledger: Ledger) -> None:
    inbox, http = Inbox(ledger), HttpClient(POLICY)

    async def lane(url: EndpointUrl, key: str) -> None:
        for seq in range(1, 6):
            answer = await http.post(url, inbox.request(seq, key))
            assert isinstance(answer, Response)
            assert answer.status == 200

    async with served(application(inbox.receiver)) as url:
        await asyncio.gather(*(lane(url, f"key-{number}") for number in range(20)))
        await http.close()
    for number in range(20):
        assert [seq for key, seq in inbox.applied if key == f"key-{number}"] == [1, 2, 3, 4, 5]
