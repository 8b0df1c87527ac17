"""Events to a Kafka topic: in order, never lost, the same id, key and seq again (C4, F13; traps 40, 41)."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from oncegate.clock import SystemClock
from oncegate.errors import BadEndpoint, BadOutgoing, BadSecret
from oncegate.model.trace import Context
from oncegate.sender.addresses import AddressPolicy
from oncegate.sender.delivery import DeliveryService
from oncegate.sender.endpoint_registry import EndpointChange
from oncegate.sender.endpoints import new_endpoint
from oncegate.sender.testing import send_test
from oncegate.store import LaneState, LaneView
from oncegate.testing import ManualClock
from oncegate.testing.waiting import DEADLINE_SECONDS
from oncegate.wiring import open_store
from oncegate.wiring.sender import Sender
from tests.support.kafka_mock import (
    MESSAGE_TOO_LARGE,
    NOT_ENOUGH_REPLICAS,
    NOT_LEADER,
    PRODUCE,
    TOPIC_AUTHORIZATION_FAILED,
    TRANSPORT,
    MockKafka,
    records,
    size,
)

BY_ANN = EndpointChange("ann", "test")
POLICY = AddressPolicy.of(allow_http=True, allow_loopback=True)
TOPIC = "plans"


@pytest.fixture
def sender(tmp_path: Path) -> Iterator[Sender]:
    """A sender on an embedded ledger, with a clock that the test moves."""
    clock = ManualClock()
    store = open_store(f"sqlite:///{tmp_path}/l.db", clock=clock)
    with Sender(store=store, clock=clock, policy=POLICY) as found:
        yield found


@asynccontextmanager
async def stage(
    sender: Sender, kafka: MockKafka, options: str = "", **settings: Any
) -> AsyncIterator[DeliveryService]:
    """The endpoint called plans, on a topic of one partition, and a delivery that runs when told."""
    kafka.create(TOPIC)
    url = f"kafka://{kafka.bootstrap}/{TOPIC}{options}"
    sender.endpoints.add(new_endpoint("plans", url, **settings), BY_ANN)
    async with (
        asyncio.timeout(DEADLINE_SECONDS),
        DeliveryService(sender, jitter=lambda: 0.999, runs=False) as service,
    ):
        yield service


async def emit(sender: Sender, key: str, count: int = 1, **payload: Any) -> None:
    for number in range(count):
        await sender.emit("plans", key=key, type="task.planned", payload={"n": number, **payload})


def clock_of(sender: Sender) -> ManualClock:
    assert isinstance(sender.clock, ManualClock)
    return sender.clock


async def moments() -> AsyncIterator[None]:
    """Lets others go on, again and again; the test's own deadline ends it."""
    while True:
        await asyncio.sleep(0)
        yield


async def producers(service: DeliveryService) -> AsyncIterator[Any]:
    """The client's producer, looked at again and again; `len` is how many records it has not ended."""
    async for _ in moments():
        courier = service._courier._kafka
        for one in [] if courier is None else courier._producers._known.values():
            yield one._producer


def headers_of(message: Any) -> dict[str, str]:
    return {name: value.decode() for name, value in message.headers()}


def places(kafka: MockKafka, count: int) -> list[tuple[str, int]]:
    """Key and seq of every record, in the order of the log."""
    assert size(kafka.bootstrap, TOPIC) == count
    found = [headers_of(one) for one in records(kafka.bootstrap, TOPIC, count)]
    return [(one["key"], int(one["seq"])) for one in found]


def lane(sender: Sender, key: str) -> LaneView:
    with sender.commits.store.look() as session:
        found = session.find_lane("plans", "", key)
        assert found is not None
        return found


async def test_a_record_has_the_declared_key_and_names_its_event(sender: Sender, kafka: MockKafka) -> None:
    """Headers carry id, key, seq, type and trace; the record key is the declared field."""
    async with stage(sender, kafka, "?key=site.warehouse_frn") as service:
        context = Context(correlation_id="c-1", planner_id="p-7")
        emitted = await sender.emit(
            "plans", key="p-7:W 1", type="task.planned", payload={"site": {"warehouse_frn": "W 1"}},
            context=context,
        )  # fmt: skip
        assert (await service.engine.run_once()).delivered == 1

    (message,) = records(kafka.bootstrap, TOPIC, 1)
    assert message.key() == b"W 1"
    assert headers_of(message) == {
        "content-type": "application/json",
        "id": emitted.event_id,
        "key": "p-7:W 1",
        "seq": "1",
        "previous-seq": "0",
        "type": "task.planned",
        "correlation-id": "c-1",
        "planner-id": "p-7",
    }
    assert json.loads(message.value())["data"] == {"site": {"warehouse_frn": "W 1"}}


@pytest.mark.parametrize("error", [NOT_ENOUGH_REPLICAS, NOT_LEADER, TRANSPORT])
async def test_an_error_of_the_broker_keeps_the_order_of_each_key(
    sender: Sender, kafka: MockKafka, error: int
) -> None:
    """The client sends again inside one attempt, and no event passes its predecessor."""
    async with stage(sender, kafka) as service:
        kafka.fail(PRODUCE, error, times=2)
        await emit(sender, "A", 3)
        await emit(sender, "B", 3)
        done = await service.engine.run_once()
    assert (done.delivered, done.failed) == (6, 0)
    found = places(kafka, 6)
    assert [seq for key, seq in found if key == "A"] == [1, 2, 3]
    assert [seq for key, seq in found if key == "B"] == [1, 2, 3]


async def test_a_timeout_is_unknown_and_the_same_event_goes_again(sender: Sender, kafka: MockKafka) -> None:
    """The broker has the record and its answer is late: same id, key and seq again, the next one after."""
    async with stage(sender, kafka, timeout=timedelta(milliseconds=400)) as service:
        await emit(sender, "B")
        await deliver_all(sender, service, 1)  # the first record waits for the producer's id
        kafka.slow(PRODUCE, rtt_ms=3_000)
        await emit(sender, "A", 2)
        first = await service.engine.run_once()
        waiting = lane(sender, "A")
        assert (first.delivered, first.failed) == (0, 1)
        assert "not known" in (waiting.error or "")
        assert waiting.state is LaneState.WAITING

        await deliver_all(sender, service, 2)

    everything = map(headers_of, records(kafka.bootstrap, TOPIC, size(kafka.bootstrap, TOPIC)))
    found = [(one["seq"], one["id"]) for one in everything if one["key"] == "A"]
    assert found == sorted(found, key=lambda one: one[0])
    assert len(found) > len(set(found)) == 2


async def deliver_all(sender: Sender, service: DeliveryService, count: int) -> None:
    """Tries again until all are there: a client that reconnects may need longer than one attempt."""
    while count > 0:
        clock_of(sender).advance(600)
        count -= (await service.engine.run_once()).delivered


async def test_a_cluster_that_is_away_uses_no_attempt_up(sender: Sender, kafka: MockKafka) -> None:
    """The event waits, the circuit opens, and it is delivered when the brokers are back."""
    async with stage(sender, kafka, timeout=timedelta(milliseconds=700), attempts_max=1) as service:
        kafka.take_down()
        await emit(sender, "A")
        await service.engine.run_once()
        assert lane(sender, "A").state is LaneState.WAITING
        assert "no broker can be reached" in (lane(sender, "A").error or "")

        kafka.bring_up()
        await deliver_all(sender, service, 1)
    assert places(kafka, 1) == [("A", 1)]


async def test_a_record_that_is_too_large_is_a_dead_letter_with_the_next_step(
    sender: Sender, kafka: MockKafka
) -> None:
    """Trying again would never help, so a person sees it at once."""
    async with stage(sender, kafka) as service:
        kafka.fail(PRODUCE, MESSAGE_TOO_LARGE)
        await emit(sender, "A")
        await service.engine.run_once()
        assert lane(sender, "A").state is LaneState.BLOCKED
        assert "max.message.bytes" in (lane(sender, "A").error or "")


async def test_a_missing_permission_uses_no_attempt_up(sender: Sender, kafka: MockKafka) -> None:
    """The endpoint waits and says what to change; afterwards the event goes."""
    async with stage(sender, kafka, attempts_max=1) as service:
        kafka.fail(PRODUCE, TOPIC_AUTHORIZATION_FAILED)
        await emit(sender, "A")
        await service.engine.run_once()
        assert "allow this user to write" in (lane(sender, "A").error or "")
        clock_of(sender).advance(31)
        assert (await service.engine.run_once()).delivered == 1, lane(sender, "A").error


async def test_an_event_without_the_declared_field_is_refused(sender: Sender, kafka: MockKafka) -> None:
    """Emitting says so at once; nothing is stored."""
    async with stage(sender, kafka, "?key=warehouse_frn"):
        with pytest.raises(BadOutgoing, match="warehouse_frn"):
            await emit(sender, "A", warehouse_frn=None)
        await emit(sender, "A", warehouse_frn=17)


async def test_a_missing_client_is_named_and_uses_no_attempt_up(
    sender: Sender, kafka: MockKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lane says which package to install."""
    async with stage(sender, kafka, attempts_max=1) as service:
        monkeypatch.setitem(sys.modules, "confluent_kafka", None)
        await emit(sender, "A")
        await service.engine.run_once()
        assert "pip install 'oncegate[kafka]'" in (lane(sender, "A").error or "")


async def test_a_delivery_that_is_cancelled_sends_nothing_afterwards(
    sender: Sender, kafka: MockKafka
) -> None:
    """Its lane goes to others: a copy that waited in the client would follow theirs."""
    async with stage(sender, kafka) as service:
        kafka.take_down()
        await emit(sender, "A")
        running = asyncio.ensure_future(service.engine.run_once())
        producer = await anext(found async for found in producers(service) if len(found))
        running.cancel()
        await service.engine.stop(0)
        async for _ in moments():
            if not len(producer):
                break
        kafka.bring_up()
    assert size(kafka.bootstrap, TOPIC) == 0


async def test_a_test_event_tells_where_it_went(kafka: MockKafka) -> None:
    """`oncegate endpoints test` produces one record under a key of its own."""
    kafka.create(TOPIC)
    endpoint = new_endpoint("plans", f"kafka://{kafka.bootstrap}/{TOPIC}")
    judged = await send_test(endpoint, POLICY, ManualClock())
    assert judged.result.value == "delivered"
    assert judged.reason.startswith("plans[0] offset 0")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("kafka://broker.example", "does not name a topic"),
        ("kafka://broker.example/a/b", "does not name a topic"),
        ("kafka://u:p@broker.example/t", "password=env:VARIABLE"),
        ("kafka://broker.example/t?password=secret&user=u", "never part of an address"),
        ("kafka://broker.example/t?user=u", "belong together"),
        ("kafka://broker.example/t?nonsense=1", "unknown|known:"),
        ("kafka://broker.example/t?key=a%20b", "not the name of a field"),
        ("kafka://bro ker/t", "host:port"),
        ("kafka://broker.example:99999/t", "host:port"),
        ("kafka://broker.example/t", "ONCEGATE_ALLOW_HTTP"),
        ("kafka://10.0.0.1:9093/t?tls=1", "private"),
        ("kafka://[::1]:9093/t?tls=1", "loopback"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused(tmp_path: Path, url: str, reason: str) -> None:
    """The reason names what to write instead, and no password is repeated."""
    with (
        Sender(f"sqlite:///{tmp_path}/l.db", policy=AddressPolicy()) as sender,
        pytest.raises(BadEndpoint, match=reason) as refused,
    ):
        sender.endpoints.add(new_endpoint("plans", url), BY_ANN)
    assert "secret" not in str(refused.value)


def test_a_kafka_endpoint_has_no_secret(sender: Sender) -> None:
    """Records are not signed: a secret would promise what no receiver checks."""
    with pytest.raises(BadSecret, match="not signed"):
        sender.endpoints.add(
            new_endpoint("plans", "kafka://127.0.0.1/t", secret="whsec_" + "c2VjcmV0" * 8), BY_ANN
        )


DELIVERS = """
import asyncio, os, signal, sys
from oncegate.crashpoints import CrashPoints
from oncegate.sender.addresses import AddressPolicy
from oncegate.wiring.sender import Sender

class Killed(CrashPoints):
    def hit(self, name):
        if name == "lane.deliver.after":
            os.kill(os.getpid(), signal.SIGKILL)

async def main():
    with Sender(sys.argv[1], policy=AddressPolicy.of(allow_http=True, allow_loopback=True)) as sender:
        async with sender.delivering(crashpoints=Killed()):
            await asyncio.Event().wait()

asyncio.run(main())
"""


class Ahead(SystemClock):
    """The machine's clock, some time later."""

    def __init__(self, ahead_ms: int) -> None:
        super().__init__()
        self._ahead_ms = ahead_ms

    def ticks_ms(self) -> int:
        return super().ticks_ms() + self._ahead_ms


@pytest.mark.slow
async def test_after_a_kill_the_same_event_goes_again_before_its_successor(
    tmp_path: Path, kafka: MockKafka
) -> None:
    """A real SIGKILL between the delivery report and its record in the ledger."""
    url = f"sqlite:///{tmp_path}/l.db"
    with Sender(url, policy=POLICY) as sender:
        async with stage(sender, kafka):
            await emit(sender, "A", 2)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", DELIVERS, url)
    assert await asyncio.wait_for(process.wait(), DEADLINE_SECONDS) == -signal.SIGKILL
    assert size(kafka.bootstrap, TOPIC) == 1

    clock = Ahead(60_000)
    with Sender(store=open_store(url, clock=clock), clock=clock, policy=POLICY) as sender:
        async with DeliveryService(sender, runs=False) as service:
            assert (await service.engine.run_once()).delivered == 2
    found = [headers_of(one) for one in records(kafka.bootstrap, TOPIC, 3)]
    assert [one["seq"] for one in found] == ["1", "1", "2"]
    assert found[0]["id"] == found[1]["id"]


@pytest.mark.slow
def test_the_command_line_adds_shows_and_tests_a_topic(tmp_path: Path, kafka: MockKafka) -> None:
    """No secret is made, and the endpoint is shown like any other."""
    kafka.create(TOPIC)
    environment = {"ONCEGATE_URL": f"sqlite:///{tmp_path}/l.db", "ONCEGATE_ALLOW_LOOPBACK": "1"}

    def run(*words: str) -> str:
        import os

        done = subprocess.run(
            [sys.executable, "-m", "oncegate", "endpoints", *words],
            env={**os.environ, **environment}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout

    address = f"kafka://{kafka.bootstrap}/{TOPIC}?key=n"
    assert run("add", "plans", address, "--type", "task.*", "--reason", "new") == "endpoint plans added\n"
    shown = run("show", "plans")
    assert "records are not signed" in shown
    assert "task.*" in shown
    assert TOPIC in run("list")
