"""Surfaces behind HTTP that observe or are paused: what applications and callers see."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oncegate import Gate
from oncegate.asgi import IdempotencyKey
from oncegate.commit.registry_operations import ChangeDocument
from oncegate.model.surface_decisions import KIND, SurfaceDecisions, SurfaceMode
from oncegate.receiver import Receiver
from oncegate.signatures.keys import read_signing_key
from oncegate.signatures.signing import sign
from oncegate.store import DocumentChange
from oncegate.wsgi import IdempotencyKey as WsgiIdempotencyKey
from tests.integrations.callers import KEY, call, run


@pytest.fixture
def gate(tmp_path: Path) -> Any:
    with Gate(f"sqlite:///{tmp_path / 'ledger.db'}") as found:
        yield found


def pause(gate: Gate, surface: str) -> None:
    """Decides that a surface is paused, and has this process obey."""
    body = SurfaceDecisions(SurfaceMode.PAUSED).encoded()
    gate.engine.commits.submit(ChangeDocument(DocumentChange(KIND, surface, 0, body, 1, "ann", "why")))
    gate.engine._context.decided.read()


class Shop:
    """Answers with what it got, which may be large."""

    def __init__(self) -> None:
        self.orders: list[bytes] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = (await receive())["body"]
        self.orders.append(body)
        await send({"type": "http.response.start", "status": 201, "headers": []})
        await send({"type": "http.response.body", "body": body})

    def wsgi(self, environ: Any, start_response: Any) -> list[bytes]:
        body = environ["wsgi.input"].read()
        self.orders.append(body)
        start_response("201 Created", [])
        return [body]


def test_an_application_that_is_observed_sees_every_request(gate: Gate) -> None:
    shop = Shop()
    app = IdempotencyKey(
        shop, gate=gate, caller=lambda scope: "anna", mode="observe", body_bytes_max=4, response_bytes_max=4
    )
    large = b"more than is kept"
    for headers in (
        {"idempotency-key": KEY},
        {"idempotency-key": KEY},
        {},
        {"idempotency-key": "no quotes"},
    ):
        answer = run(call(app, headers=headers, body=large, key=None))
        assert (answer.status, answer.body) == (201, large)
    assert len(shop.orders) == 4


def test_a_paused_application_is_not_called(gate: Gate) -> None:
    shop = Shop()
    app = IdempotencyKey(shop, gate=gate, caller=lambda scope: "anna")
    pause(gate, "http")
    answer = run(call(app, body=b"1"))
    assert (answer.status, answer.headers["retry-after"]) == (503, "30")
    assert json.loads(answer.body)["type"] == "urn:oncegate:problem:paused"
    assert not shop.orders


def test_wsgi_applications_are_observed_too(gate: Gate) -> None:
    from io import BytesIO

    shop, started = Shop(), []
    app = WsgiIdempotencyKey(shop.wsgi, gate=gate, caller=lambda environ: "anna", mode="observe")
    for key in (KEY, KEY, None):
        environ = {
            "REQUEST_METHOD": "POST",
            "wsgi.input": BytesIO(b"abc"),
            "CONTENT_LENGTH": "3",
            "PATH_INFO": "/",
        }
        if key is not None:
            environ["HTTP_IDEMPOTENCY_KEY"] = key
        assert b"".join(app(environ, lambda status, headers: started.append(status))) == b"abc"
    assert (len(shop.orders), {line[:3] for line in started}) == (3, {"201"})


def test_a_paused_receiver_answers_503(gate: Gate) -> None:
    secret = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    receiver = Receiver(gate, "hooks", secrets=[secret], ordered=False)
    ran: list[Any] = []
    receiver.handler()(ran.append)
    pause(gate, "hooks")
    now = gate.engine.clock.wall_ms() // 1000
    body = b'{"a": 1}'
    answer = receiver.receive_sync(dict(sign([read_signing_key(secret)], "msg_1", now, body)), body)
    assert (answer.status, dict(answer.headers)["retry-after"]) == (503, "30")
    assert not ran
