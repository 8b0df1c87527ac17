"""What docs/redis.md tells users to do, done."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from oncegate import Gate, Verdict
from oncegate.asgi import IdempotencyKey, caller_by_authorization
from oncegate.clock import SystemClock
from oncegate.receiver import Receiver
from oncegate.stores.redis import RedisStore
from tests.integrations.callers import call, run
from tests.support.postgres_site import reservation, settlement
from tests.support.servers_valkey import ValkeyServer, running

_NUMBERS = count()
PAGE = (Path(__file__).parents[3] / "docs" / "redis.md").read_text("utf-8")


def test_rights_in_the_guide_are_enough(tmp_path: Path) -> None:
    """A user with exactly these rights loads the functions and takes a claim to its end."""
    (line,) = re.findall(r"^    (ACL SETUSER gate .*)$", PAGE, re.MULTILINE)
    with running(tmp_path / "data") as server:
        server.client().execute_command(*line.split())
        store = RedisStore(server.url().replace("://", "://gate:password@"))
        session = store.connect()
        (claim,) = session.reserve([reservation(1)])
        assert session.settle([settlement(claim)]) == [True]
        session.close()
        findings = store.examine()

    assert [one for one in findings if not one.ok] == []


def test_first_example_of_the_guide_runs(valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copied as it stands, with a function to call."""
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    charged: list[Any] = []
    monkeypatch.setenv("ONCEGATE_URL", valkey.url(prefix=f"guide{next(_NUMBERS)}"))
    names: dict[str, Any] = {"charge": lambda amount, idempotency_key: charged.append(amount)}
    exec(compile(example, "docs/redis.md", "exec"), names)
    with names["gate"] as gate:
        verdicts = [gate.admit_sync("orders", {"order_id": 1, "amount": 7}).verdict for _ in range(2)]

    assert (verdicts, charged) == ([Verdict.RUN, Verdict.REPLAY], [7])


def test_idempotency_key_header_works_on_a_redis_ledger(valkey: ValkeyServer) -> None:
    """An ASGI application behind the header answers a repeat with its first response."""
    orders: list[bytes] = []

    async def shop(scope: Any, receive: Any, send: Any) -> None:
        orders.append((await receive())["body"])
        await send({"type": "http.response.start", "status": 201, "headers": []})
        await send({"type": "http.response.body", "body": b"7"})

    with Gate(valkey.url(prefix=f"guide{next(_NUMBERS)}")) as gate:
        app = IdempotencyKey(
            shop, gate=gate, caller=caller_by_authorization, retention="24h", retention_floor="24h"
        )
        answers = [run(call(app, headers={"authorization": "Bearer anna"})) for _ in range(2)]

    assert [(answer.status, answer.replayed) for answer in answers] == [(201, False), (201, True)]
    assert len(orders) == 1


def test_receiver_without_order_works_on_a_redis_ledger(valkey: ValkeyServer) -> None:
    """A signed webhook is applied once, however often it comes."""
    applied: list[Any] = []
    secret, body = "whsec_" + "A" * 32, b'{"a":1}'
    with Gate(valkey.url(prefix=f"guide{next(_NUMBERS)}")) as gate:
        receiver = Receiver(gate, "hooks", secrets=[secret], ordered=False)
        receiver.handler(retention="24h", retention_floor="24h")(applied.append)
        signer = Webhook(secret)
        now = datetime.fromtimestamp(SystemClock().wall_ms() / 1000, UTC)
        signature = signer.sign("msg_1", now, body.decode())
        headers = {"webhook-id": "msg_1", "webhook-timestamp": str(int(now.timestamp()))}
        headers["webhook-signature"] = signature
        statuses = [receiver.receive_sync(headers, body).status for _ in range(2)]

    assert all(200 <= status < 300 for status in statuses)
    assert len(applied) == 1
