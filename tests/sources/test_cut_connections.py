"""Connections that are cut while messages are under way: nothing is lost, and nothing runs twice."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from oncegate import Gate
from oncegate.sources.consumer import Consumer
from oncegate.sources.options import consumption_of
from oncegate.testing.waiting import DEADLINE_SECONDS
from tests.sources.test_storms import of_ministack, of_nats, of_rabbitmq, of_valkey
from tests.support.tcp_proxy import TcpProxy

pytestmark = pytest.mark.slow

EVENTS = 40
CUTS = 3
BROKERS = {"nats": of_nats, "valkey": of_valkey, "rabbitmq": of_rabbitmq, "ministack": of_ministack}
SOAK = pytest.mark.soak


@pytest.mark.parametrize(
    "kind", ["nats", "valkey", *(pytest.param(kind, marks=SOAK) for kind in ("rabbitmq", "ministack"))]
)
def test_connections_are_cut_while_messages_are_under_way(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The consumer connects again, and what was not answered comes again as a replay."""
    from oncegate import sources

    server = request.getfixturevalue(kind)
    broker = BROKERS[kind](server.url)
    ran: Counter[int] = Counter()
    with Gate(f"sqlite:///{tmp_path}/ledger.db") as gate:

        @gate.handler("orders", key="{order}", lease="2s")
        async def book(event: Any, once: Any) -> None:
            ran[event["order"]] += 1
            await asyncio.sleep(0.005)

        async def scene() -> None:
            async with TcpProxy(server.port) as proxy:
                ports = str(server.port), str(proxy.port)
                words = {
                    name: value.replace(*ports)
                    for name, value in broker.options.items()
                    if isinstance(value, str)
                }
                source = getattr(sources, broker.adapter)(**{**broker.options, **words})
                one = consumption_of(source, gate.engine.surface("orders"), concurrency=4)
                async with Consumer(gate, one, stop_seconds=10.0) as consumer:
                    for part in range(1, CUTS + 1):
                        await until(lambda: len(ran) >= part * EVENTS // (CUTS + 2))  # noqa: B023
                        proxy.cut()
                    await until(lambda: len(ran) == EVENTS)
                    await until(lambda: consumer.status().state == "running")
                assert consumer.failure is None
                assert proxy.cuts >= 2 * CUTS

        broker.send([json.dumps({"order": number}).encode() for number in range(EVENTS)])
        asyncio.run(scene())
    assert ran == Counter(range(EVENTS))


async def until(condition: Any) -> None:
    """Waits in the loop for a condition, with a deadline."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not condition():  # noqa: ASYNC110  other tasks of this loop change it
            await asyncio.sleep(0.005)
