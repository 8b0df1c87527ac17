"""How long a queue keeps messages, read from the broker, against how long a surface remembers keys."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import aio_pika
import pytest

from oncegate import Gate
from oncegate.errors import BadSource
from oncegate.sources.contract import InFlight, Source, Traits
from oncegate.sources.kafka import Kafka
from oncegate.sources.kafka_retention import read_retention, retention_of
from oncegate.sources.options import check_promises, consumption_of
from oncegate.sources.rabbitmq import CONSUMER_TIMEOUT_SECONDS, RabbitMq
from oncegate.sources.rabbitmq_management import read_facts
from oncegate.testing.memory_source import MemorySource
from oncegate.testing.waiting import wait_until
from tests.sources.test_nats import NoOthers, Stream
from tests.sources.test_redis_stream import Stream as RedisStream
from tests.support.kafka_configs import broker_with_configs
from tests.support.kafka_mock import MockKafka
from tests.support.servers import ManagedRabbitMq, Nats, Valkey, running

DAY = 86_400.0


def checked(
    folder: Path, parts: dict[str, float | None], tenant: str | None = None, **surface: Any
) -> Traits:
    """The traits of a queue that keeps messages so long, beside a surface with these options."""
    with Gate(f"sqlite:///{folder}/ledger.db") as gate:

        @gate.handler("orders", key="{order}", **surface)
        async def book(event: Any, once: Any) -> None: ...

        known = gate.engine.surface("orders")
        one = consumption_of(MemorySource(), known, name="q", tenant=tenant)
        return check_promises(
            one, known, Traits(kind="memory", server="here", queue="orders", retention_seconds=parts)
        )


@pytest.mark.parametrize(
    ("parts", "options", "told"),
    [
        ({"queue": 4 * DAY, "dead": 14 * DAY}, {"retention": "17d"}, "queue 4d + dead 14d = 18d"),
        ({"queue": 91 * DAY}, {}, "queue 91d = 91d, and surface orders remembers keys for 90d"),
        ({"queue": 91 * DAY}, {"redelivery_horizon": "20d"}, "set its retention to 91d"),
        ({"queue": 20 * DAY}, {"retention_by_partner": {"acme": "15d"}}, "remembers keys for 15d"),
        ({"queue": 20 * DAY}, {"tenant": "acme", "retention_by_partner": {"acme": "15d"}}, "for 15d"),
    ],
)  # fmt: skip
def test_a_surface_that_forgets_too_soon_is_refused_with_the_sum(
    tmp_path: Path, parts: dict[str, float | None], options: dict[str, Any], told: str
) -> None:
    """Also where one partner's keys go sooner than those of the others."""
    with pytest.raises(BadSource) as refused:
        checked(tmp_path, parts, **options)
    assert told in str(refused.value)


def test_a_handler_that_may_outlast_what_the_broker_allows_is_refused(tmp_path: Path) -> None:
    """RabbitMQ closes the channel of a message that is held longer than its consumer_timeout (trap 28)."""
    with Gate(f"sqlite:///{tmp_path}/ledger.db") as gate:

        @gate.handler("orders", key="{order}", time_limit="40m")
        async def book(event: Any, once: Any) -> None: ...

        known = gate.engine.surface("orders")
        one = consumption_of(RabbitMq("amqp://127.0.0.1/", queue="orders"), known)
        held = Traits(kind="rabbitmq", server="", queue="orders", hold_max_seconds=CONSUMER_TIMEOUT_SECONDS)
        with pytest.raises(BadSource, match=r"held for 1800 s.*run for 2400 s: shorten its time_limit"):
            check_promises(one, known, held)


@pytest.mark.parametrize(
    ("parts", "options", "told"),
    [
        ({"queue": 18 * DAY}, {"retention": "18d"}, None),
        ({"queue": 20 * DAY}, {"tenant": "other", "retention_by_partner": {"acme": "15d"}}, None),
        ({}, {}, "orders keeps messages for an unknown time"),
        ({"queue": DAY, "dead letters": None}, {}, "orders keeps its dead letters without end"),
        ({}, {"redelivery_horizon": "20d"}, None),
        ({"stream": None}, {"redelivery_horizon": "20d"}, None),
    ],
)
def test_a_queue_without_an_end_is_a_warning_until_the_horizon_is_declared(
    tmp_path: Path, parts: dict[str, float | None], options: dict[str, Any], told: str | None
) -> None:
    """The warning names the setting that answers it."""
    warnings = checked(tmp_path, parts, **options).warnings
    assert [str(told) in one and "redelivery_horizon" in one for one in warnings] == [True] * bool(told)


@pytest.mark.parametrize(
    ("configs", "parts"),
    [
        ({"retention.ms": "604800000", "segment.ms": "3600000", "cleanup.policy": "delete"},
         {"topic": 7 * DAY, "open segment": 3600.0}),
        ({"retention.ms": "-1", "cleanup.policy": "delete"}, {"topic": None}),
        ({"retention.ms": "604800000", "cleanup.policy": "compact"}, {"topic": None}),
        ({"retention.ms": "1000", "cleanup.policy": "compact,delete"}, {"topic": 1.0, "open segment": 0.0}),
    ],
)  # fmt: skip
def test_kafka_tells_by_the_settings_of_the_topic(
    configs: dict[str, str], parts: dict[str, float | None]
) -> None:
    """A record may stay until its segment is closed; compaction keeps some without end."""
    assert retention_of(configs) == parts


def test_kafka_is_asked_by_its_protocol(kafka: MockKafka) -> None:
    """Brokers without a controller tell nothing, and the consumer opens all the same."""
    with broker_with_configs("plans", {"retention.ms": "2000", "segment.ms": "500"}) as broker:
        found = read_retention({"bootstrap.servers": broker}, "plans")
        assert found == {"topic": 2.0, "open segment": 0.5}
    kafka.create("plans")
    source = Kafka(f"kafka://{kafka.bootstrap}/plans", group="g", start="earliest")
    assert opened(source).retention_seconds == {}


def opened(source: Source) -> Traits:
    """What a source says when it is opened."""

    async def scene() -> Traits:
        others: InFlight = NoOthers()
        try:
            return await source.open(others)
        finally:
            await source.close()

    return asyncio.run(scene())


def test_nats_and_redis_tell_by_their_streams(nats: Nats, valkey: Valkey) -> None:
    """A stream without an age keeps messages without end."""
    aged = Stream(nats.url, max_age=20 * DAY)
    assert opened(aged.source()).retention_seconds == {"stream": 20 * DAY}
    assert opened(Stream(nats.url).source()).retention_seconds == {"stream": None}
    assert opened(RedisStream(valkey.url).source()).retention_seconds == {"stream": None}


# --- RabbitMQ: its management API, as RabbitMQ 3.10 answers

PLAIN = {"arguments": {"x-queue-type": "quorum"}, "effective_policy_definition": {}}
SHORT = {"arguments": {"x-message-ttl": 60_000}, "effective_policy_definition": {"message-ttl": 5_000}}
BY_ARGUMENT = {
    "arguments": {
        "x-message-ttl": 60_000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "short",
    },
    "effective_policy_definition": {},
}  # fmt: skip
BY_POLICY = {
    "arguments": {},
    "effective_policy_definition": {
        "message-ttl": 7_000, "dead-letter-exchange": "dead", "delivery-limit": 3, "max-length": 10,
    },
}  # fmt: skip
ANSWERS: dict[str, Any] = {
    "/api/queues/%2F/plain": PLAIN,
    "/api/queues/%2F/short": SHORT,
    "/api/queues/%2F/argued": BY_ARGUMENT,
    "/api/queues/%2F/a%2Fb": BY_POLICY,
    "/api/queues/%2F/own-key": {"arguments": {"x-dead-letter-exchange": "", "x-delivery-limit": -1}},
    "/api/queues/%2F/list": [],
    "/api/queues/%2F/word": {"arguments": "none"},
    "/api/queues/%2F/part": {"arguments": {"x-dead-letter-exchange": "odd"}},
    "/api/queues/%2F/limit": {"arguments": {"x-delivery-limit": [3]}},
    "/api/exchanges/%2F/odd/bindings/source": [{"destination": "plain"}],
    "/api/exchanges/%2F/dead/bindings/source": [
        {"destination": "plain", "destination_type": "queue"},
        {"destination": "other", "destination_type": "exchange"},
    ],
}


@contextmanager
def management() -> Iterator[str]:
    """A management API with these answers, for the user guest."""

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            user = b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
            found = ANSWERS.get(self.path)
            self.send_response(401 if user != "guest:g/t" else 404 if found is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        serving.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


BROKER = "amqp://guest:g%2Ft@127.0.0.1/"


@pytest.mark.parametrize(
    ("queue", "parts", "told"),
    [
        ("plain", {"queue": None}, []),
        ("short", {"queue": 5.0}, []),
        ("argued", {"queue": 60.0, "dead-letter queue short": 5.0}, []),
        ("a/b", {"queue": 7.0, "dead-letter queue plain": None}, ["limit to 20", "drops its oldest"]),
        ("own-key", {"queue": None, "dead-letter queue by each message's routing key": None}, []),
        *((name, {}, ["not as RabbitMQ gives it"]) for name in ("list", "word", "part", "limit")),
    ],
)  # fmt: skip
def test_rabbitmq_tells_by_its_management_api(
    queue: str, parts: dict[str, float | None], told: list[str]
) -> None:
    """Arguments and policies count, the shorter first; dead letters are followed through their exchange."""
    with management() as address:
        facts = read_facts(address, BROKER, queue)
    assert facts.retention_seconds == parts
    assert all(words in one for words, one in zip(told, facts.warnings, strict=True))


def test_a_management_api_that_refuses_is_told_and_an_absent_one_is_a_warning() -> None:
    """The next step is named, and no password is shown."""
    with management() as address:
        with pytest.raises(BadSource, match="answers 404 to queues/%2F/missing"):
            read_facts(address, BROKER, "missing")
        with pytest.raises(BadSource, match=r"answers 401.*tag management") as refused:
            read_facts(address.replace("//", "//me:secret@"), BROKER, "plain")
        assert "secret" not in str(refused.value)
    assert "Connection refused" in read_facts(address, BROKER, "plain").warnings[0]
    with pytest.raises(BadSource, match="http://host:15672"):
        read_facts("amqp://x", BROKER, "plain")
    with pytest.raises(BadSource, match="password in clear; give it with https://"):
        read_facts(address, BROKER.replace("amqp", "amqps"), "plain")


@pytest.mark.soak
def test_a_real_rabbitmq_tells_by_its_management_api() -> None:
    """A policy sets the queue's time, an argument that of its dead letters."""

    async def make(url: str) -> None:
        connection = await aio_pika.connect(url)
        channel = await connection.channel()
        dead: dict[str, Any] = {"x-queue-type": "quorum", "x-message-ttl": 86_400_000}
        own: dict[str, Any] = {
            "x-queue-type": "quorum",
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "dead",
        }
        await channel.declare_queue("dead", durable=True, arguments=dead)
        await channel.declare_queue("orders", durable=True, arguments=own)
        await connection.close()

    with running(ManagedRabbitMq) as server:
        asyncio.run(make(server.url))
        policy = json.dumps({"pattern": "^orders$", "definition": {"message-ttl": 3_600_000}})
        words = ["curl", "-sf", "-u", "guest:guest", "-X", "PUT", "-H", "content-type: application/json"]
        subprocess.run([*words, "-d", policy, f"{server.management}/api/policies/%2F/short"], check=True)
        wanted = {"queue": 3600.0, "dead-letter queue dead": DAY}

        def tells() -> bool:  # the API hears of a policy after some seconds
            source = RabbitMq(server.url, queue="orders", management=server.management)
            return opened(source).retention_seconds == wanted

        wait_until(tells, what=f"the retention {wanted}")
