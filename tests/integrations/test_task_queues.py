"""Celery, dramatiq and FastStream on real brokers: events run once; early acknowledgement is refused."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import dramatiq
import nats
import pytest
from celery import Celery
from celery.exceptions import Reject
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import AgeLimit, Retries
from faststream import AckPolicy
from faststream.nats import JStream, NatsBroker
from faststream.rabbit import RabbitBroker
from nats.js.api import ConsumerConfig

from oncegate import ConfigError, Gate
from oncegate.integrations.celery import check_app, gate_task
from oncegate.integrations.dramatiq import gate_actor
from oncegate.integrations.faststream import subscribe
from oncegate.integrations.task_queues import TaskRunner
from oncegate.sources.decisions import OnRecord
from oncegate.store.census import EntryFilter
from oncegate.testing.waiting import DEADLINE_SECONDS, wait_until
from tests.support.servers import Nats, Valkey

PROGRAM = """
import os, pathlib, time
from celery import Celery
from celery.exceptions import Reject
from oncegate import Gate
from oncegate.integrations.celery import gate_task

app = Celery("shop", broker=os.environ["BROKER"])
app.conf.broker_transport_options = {"visibility_timeout": 2}
app.conf.task_default_queue = os.environ["QUEUE"]
gate = Gate("sqlite:///shop.db")
slots = gate.downstream("slots", honours_key="7d")

def claim(order, idempotency_key):
    with open("calls.txt", "a") as calls:
        calls.write(f"{order} {idempotency_key}\\n")
    while order == "A-2" and not pathlib.Path("go").exists():
        time.sleep(0.05)
    return {"id": order}

@gate.handler("orders", key="{order}", lease="1s", time_limit="1500ms")
def book(event, once):
    return once.effect(slots, claim, event["order"], name="claim")["id"]

task = gate_task(app, gate, "orders")
"""


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    with Gate(f"sqlite:///{tmp_path}/ledger.db") as gate:
        gate.engine.store.connect().close()
        yield gate


def booking(gate: Gate, **options: Any) -> list[str]:
    """A surface `orders` whose handler notes each run; its first run of F-1 fails."""
    runs: list[str] = []

    def book(event: dict[str, str], idempotency_key: str) -> str:
        runs.append(event["order"])
        if event["order"].startswith("F") and runs.count(event["order"]) == 1:
            raise ConnectionRefusedError
        return f"slot for {event['order']}"

    bank = gate.downstream("bank", honours_key="7d")
    gate.handler("orders", key="{order}", downstream=bank, **options)(book)
    return runs


# --- Celery


def worker(folder: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    words = "celery -A shop worker -P solo -l WARNING --without-gossip --without-mingle"
    command = [sys.executable, "-m", *words.split()]
    return subprocess.Popen(command, cwd=folder, env=environment)


@pytest.mark.slow
def test_a_celery_worker_killed_in_the_middle_leaves_one_effect_an_order(
    valkey: Valkey, tmp_path: Path
) -> None:
    """Valkey delivers the message again minutes later; recovery finishes the event before that."""
    (tmp_path / "shop.py").write_text(PROGRAM)
    environment = {**os.environ, "BROKER": valkey.url, "QUEUE": f"q{uuid4().hex[:8]}"}
    calls = tmp_path / "calls.txt"
    send = (
        "import shop\nfor order in ('A-1', 'A-1', 'A-2', 'A-3'):\n    shop.task.delay({'order': order})\n"
        "shop.task.delay('no event')"
    )
    subprocess.run([sys.executable, "-c", send], cwd=tmp_path, env=environment, check=True)

    first = worker(tmp_path, environment)
    try:
        wait_until(lambda: calls.exists() and "A-2" in calls.read_text())
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait(DEADLINE_SECONDS)
    (tmp_path / "go").touch()
    second = worker(tmp_path, environment)
    words = "oncegate worker --app shop:gate --only recovery --reconcile-every 1s"
    recovery = subprocess.Popen([sys.executable, "-m", *words.split()], cwd=tmp_path, env=environment)
    try:
        with Gate(f"sqlite:///{tmp_path}/shop.db") as gate:
            wait_until(lambda: ended(gate) == {"A-1", "A-2", "A-3"} and quarantined(gate) == 1)
    finally:
        for one in (second, recovery):
            one.terminate()
            one.wait(DEADLINE_SECONDS)

    made = [line.split() for line in calls.read_text().splitlines()]
    assert len({key for _, key in made}) == 3, "each order was called with one key, however often"
    assert [order for order, _ in made].count("A-1") == 1


def ended(gate: Gate) -> set[str]:
    return {entry.label for entry in entries(gate) if entry.state.label == "committed"}


def quarantined(gate: Gate) -> int:
    return sum(entry.state.label == "quarantined" for entry in entries(gate))


def entries(gate: Gate) -> list[Any]:
    with gate.engine.store.look() as session:
        return session.entries(EntryFilter(), None, 100)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"acks_late": False}, "before its handler ran"),
        ({"reject_on_worker_lost": False}, "lost with the worker"),
        ({"acks_on_failure_or_timeout": True}, "not on record"),
        ({"max_retries": 3}, "retry_for="),
        ({"autoretry_for": (OSError,)}, "the ledger decides"),
        ({"serializer": "pickle"}, "JSON"),
    ],
)
def test_options_of_celery_that_lose_events_are_refused(
    gate: Gate, options: dict[str, Any], why: str
) -> None:
    booking(gate)
    with pytest.raises(ConfigError, match=why):
        gate_task(Celery("shop", broker="memory://"), gate, "orders", **options)


def test_a_celery_worker_does_not_start_where_messages_show_up_again_too_early(gate: Gate) -> None:
    booking(gate, time_limit="10m")
    app = Celery("shop", broker="redis://127.0.0.1:1")
    app.conf.broker_transport_options = {"visibility_timeout": 300}
    task = gate_task(app, gate, "orders")
    with pytest.raises(ConfigError, match="visibility_timeout is 300 s"):
        check_app(app, 600.0, task)


@pytest.mark.parametrize("name", ["soft_time_limit", "time_limit"])
def test_a_celery_worker_does_not_start_with_a_shorter_time_limit_than_the_handlers(
    gate: Gate, name: str
) -> None:
    booking(gate, time_limit="10m")
    app = Celery("shop", broker="memory://")
    setattr(app.conf, f"task_{name}", 60)
    task = gate_task(app, gate, "orders")
    with pytest.raises(ConfigError, match=f"{name} of 60 s"):
        check_app(app, 600.0, task)


def test_a_celery_message_that_cannot_be_run_is_never_dropped(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Celery drops a message whose task raises; only a rejected one comes again."""
    booking(gate)
    task = gate_task(Celery("shop", broker="memory://"), gate, "orders")
    monkeypatch.setattr(TaskRunner, "run_sync", lambda *_: (_ for _ in ()).throw(MemoryError()))
    with pytest.raises(Reject) as refused:
        task.run({"order": "A-1"})
    assert refused.value.requeue


def test_an_event_that_is_no_text_is_quarantined(gate: Gate) -> None:
    booking(gate)
    assert TaskRunner(gate, "orders", "celery").run_sync({"order": "\ud83d"}, "m-1") == OnRecord()
    assert quarantined(gate) == 1


def test_an_annotation_that_acknowledges_early_is_found_when_the_worker_starts(gate: Gate) -> None:
    booking(gate)
    app = Celery("shop", broker="memory://")
    app.conf.task_annotations = {"*": {"acks_late": False}}
    task = gate_task(app, gate, "orders")
    app.finalize()
    with pytest.raises(ConfigError, match="acks_late=False"):
        check_app(app, 300.0, task)


# --- dramatiq


@pytest.fixture
def broker(valkey: Valkey) -> Iterator[RedisBroker]:
    broker = RedisBroker(url=valkey.url, namespace=uuid4().hex, maintenance_chance=0)
    yield broker
    broker.close()


def test_dramatiq_messages_run_once_and_failures_come_again(gate: Gate, broker: RedisBroker) -> None:
    runs = booking(gate)
    actor = gate_actor(gate, "orders", broker=broker)
    for order in ("A-1", "A-1", "F-1", "A-1"):
        actor.send({"order": order})
    running = dramatiq.Worker(broker, worker_threads=2, worker_timeout=50)
    running.start()
    try:
        wait_until(lambda: ended(gate) == {"A-1", "F-1"})
    finally:
        running.stop()
    assert sorted(runs) == ["A-1", "F-1", "F-1"]


def test_a_successor_of_dramatiq_gets_the_result_once(gate: Gate, broker: RedisBroker) -> None:
    """A message that comes again is no success."""
    booking(gate)
    got: list[Any] = []

    @dramatiq.actor(broker=broker, actor_name="notify")
    def notify(*results: Any) -> None:
        got.extend(results)

    actor = gate_actor(gate, "orders", broker=broker)
    dramatiq.pipeline([actor.message({"order": "F-1"}), notify.message()], broker=broker).run()
    running = dramatiq.Worker(broker, worker_threads=2, worker_timeout=50)
    running.start()
    try:
        wait_until(lambda: got)
    finally:
        running.stop()
    assert got == ["slot for F-1"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"max_age": 1000}, "too old"),
        ({"max_retries": 3}, "retry_for="),
        ({"throws": OSError}, "dead letters"),
        ({"store_results": True}, "None as its result"),
        ({"time_limit": 1000}, "shorter than the 300 s"),
    ],
)
def test_options_of_dramatiq_that_lose_events_are_refused(
    gate: Gate, broker: RedisBroker, options: dict[str, Any], why: str
) -> None:
    booking(gate)
    with pytest.raises(ConfigError, match=why):
        gate_actor(gate, "orders", broker=broker, **options)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda middleware: [one for one in middleware if not isinstance(one, Retries)], "no Retries"),
        (lambda middleware: [*middleware, AgeLimit(max_age=5)], "max_age"),
        (lambda middleware: [*middleware, Retries(retry_when=lambda *_: False)], "retry_when"),
    ],
)
def test_brokers_of_dramatiq_that_lose_events_are_refused(
    gate: Gate, broker: RedisBroker, change: Callable[[list[Any]], list[Any]], why: str
) -> None:
    booking(gate)
    broker.middleware = change(broker.middleware)
    with pytest.raises(ConfigError, match=why):
        gate_actor(gate, "orders", broker=broker)


# --- FastStream


async def _stream(url: str, name: str) -> Any:
    client = await nats.connect(url)
    await client.jetstream().add_stream(name=name, subjects=[f"{name}.x"])
    return client


@pytest.mark.slow
def test_faststream_messages_run_once_and_failures_come_again(gate: Gate, nats: Nats) -> None:
    runs, name = booking(gate), f"S{uuid4().hex[:8]}"

    async def play() -> None:
        client = await _stream(nats.url, name)
        broker = NatsBroker(nats.url)
        subscriber = broker.subscriber(
            f"{name}.x", stream=JStream(name, declare=False), durable="w", pull_sub=True,
            ack_policy=AckPolicy.MANUAL,
        )  # fmt: skip
        subscribe(subscriber, gate, "orders")
        bodies = [json.dumps({"order": order}).encode() for order in ("A-1", "A-1", "F-1")]
        for body in (*bodies, b"not JSON"):
            await client.jetstream().publish(f"{name}.x", body)
        async with broker:
            await broker.start()
            async with asyncio.timeout(DEADLINE_SECONDS):
                while (await client.jetstream().consumer_info(name, "w")).ack_floor.stream_seq < 4:
                    pass
        await client.close()

    asyncio.run(play())
    assert sorted(runs) == ["A-1", "F-1", "F-1"]
    assert ended(gate) == {"A-1", "F-1"}
    assert quarantined(gate) == 1


@pytest.mark.parametrize("policy", [policy for policy in AckPolicy if policy is not AckPolicy.MANUAL])
def test_policies_of_faststream_that_lose_events_are_refused(gate: Gate, policy: AckPolicy) -> None:
    booking(gate)
    subscriber = RabbitBroker().subscriber("x", ack_policy=policy)
    with pytest.raises(ConfigError, match=r"ack_policy=AckPolicy\.MANUAL"):
        subscribe(subscriber, gate, "orders")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "cannot give a message back"),
        ({"stream": JStream("S")}, "pull_sub=True"),
        (
            {"stream": JStream("S"), "pull_sub": True, "config": ConsumerConfig(max_deliver=3)},
            "max_deliver is 3",
        ),
    ],
)
def test_subscribers_of_faststream_that_lose_events_are_refused(
    gate: Gate, options: dict[str, Any], why: str
) -> None:
    booking(gate)
    policy = {"ack_policy": AckPolicy.MANUAL} if options else {}
    broker: Any = NatsBroker()
    subscriber = broker.subscriber("x", **policy, **options)
    if not options:
        subscriber.ack_policy = AckPolicy.MANUAL
    with pytest.raises(ConfigError, match=why):
        subscribe(subscriber, gate, "orders")
