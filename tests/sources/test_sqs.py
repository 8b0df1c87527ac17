"""SQS on ministack, a model: the conformance suite for standard and FIFO queues, and what only SQS does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import pytest

from oncegate import Gate
from oncegate.errors import BadSource, ConfigError, SourceUnavailable
from oncegate.sources.consumer import Consumer
from oncegate.sources.contract import Source
from oncegate.sources.options import consumption_of
from oncegate.sources.sqs import Sqs
from oncegate.testing import SourceConformance
from oncegate.testing.clock import ManualClock
from oncegate.wiring import open_store
from tests.support.servers import MiniStack

KEYS: dict[str, Any] = {"aws_access_key_id": "ak", "aws_secret_access_key": "sk"}


class NoOthers:
    async def drain(self, which: Any, within_seconds: float) -> None:
        return


class Queue:
    """A queue of its own, with a dead-letter queue, on the shared server."""

    def __init__(self, endpoint: str, *, fifo: bool = False, receive_count_max: int = 50) -> None:
        self.endpoint, self.fifo = endpoint, fifo
        self.client = boto3.client("sqs", endpoint_url=endpoint, region_name="us-east-1", **KEYS)
        name, end = f"q-{uuid4().hex[:10]}", ".fifo" if fifo else ""
        more = {"FifoQueue": "true"} if fifo else {}
        self.dead = self._make(f"{name}-dead{end}", more)
        arn = self.client.get_queue_attributes(QueueUrl=self.dead, AttributeNames=["QueueArn"])
        policy = {
            "deadLetterTargetArn": arn["Attributes"]["QueueArn"],
            "maxReceiveCount": receive_count_max,
        }
        self.url = self._make(f"{name}{end}", {**more, "RedrivePolicy": json.dumps(policy)})

    def _make(self, name: str, attributes: dict[str, str]) -> str:
        return str(self.client.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])

    def send(self, bodies: Sequence[bytes], lane: str | None = None) -> None:
        for body in bodies:
            more = {}
            if self.fifo:
                more = {"MessageGroupId": lane or "one", "MessageDeduplicationId": uuid4().hex}
            self.client.send_message(QueueUrl=self.url, MessageBody=body.decode(), **more)

    def source(self, **options: Any) -> Sqs:
        given = {"visibility": 1, **options}
        return Sqs(self.url, endpoint=self.endpoint, region="us-east-1", **given, **KEYS)

    def dead_bodies(self) -> list[bytes]:
        found = self.client.receive_message(QueueUrl=self.dead, MaxNumberOfMessages=10)
        return [one["Body"].encode() for one in found.get("Messages", ())]

    def visible(self) -> int:
        found = self.client.get_queue_attributes(QueueUrl=self.url, AttributeNames=["All"])["Attributes"]
        return int(found["ApproximateNumberOfMessages"])


@pytest.fixture
def queue(ministack: MiniStack) -> Queue:
    return Queue(ministack.url)


class OfQueue(SourceConformance):
    fifo = False

    @pytest.fixture(autouse=True)
    def own_queue(self, ministack: MiniStack) -> None:
        self.queue = Queue(ministack.url, fifo=self.fifo)

    def make_source(self) -> Source:
        return self.queue.source()

    def make_missing(self) -> Source:
        url = self.queue.url.replace("/q-", "/missing-")
        return Sqs(url, endpoint=self.queue.endpoint, region="us-east-1", **KEYS)

    async def send(self, bodies: Sequence[bytes], lane: str | None = None) -> None:
        await asyncio.to_thread(self.queue.send, bodies, lane)

    async def dead_letters(self) -> list[bytes]:
        return await asyncio.to_thread(self.queue.dead_bodies)


class TestSqs(OfQueue):
    """A standard queue."""


class TestSqsFifo(OfQueue):
    """A FIFO queue."""

    fifo = True

    async def send(self, bodies: Sequence[bytes], lane: str | None = None) -> None:
        """Each in a group of its own, unless a lane is asked for."""
        for body in bodies:
            await asyncio.to_thread(self.queue.send, [body], lane or uuid4().hex)


def test_a_message_twice_in_one_batch_does_not_spoil_it(queue: Queue) -> None:
    """Entries are named by their position, never by the message (trap 5)."""

    async def scene() -> None:
        source = queue.source()
        await source.open(NoOthers())
        queue.send([b"1", b"2"])
        found: list[Any] = []
        while len(found) < 2:
            found += await source.receive(2, 1.0)
        again = None
        while again is None:
            again = next(iter(await source.receive(1, 1.0)), None)
        await source.ack([*found, again])
        await source.close()

    asyncio.run(scene())
    assert queue.visible() == 0


def test_a_late_acknowledgement_uses_the_newest_receipt(queue: Queue) -> None:
    """An old receipt may be refused, and the message would come again (trap 6)."""

    async def scene() -> None:
        source = queue.source()
        await source.open(NoOthers())
        queue.send([b"1"])
        (old,) = await source.receive(1, 1.0)
        again: Sequence[Any] = []
        while not again:
            again = await source.receive(1, 1.0)
        assert again[0].handle != old.handle
        await source.ack([old])
        for _ in range(2):
            assert await source.receive(1, 1.0) == []
        await source.close()

    asyncio.run(scene())


def test_failures_inside_a_successful_answer_are_tried_again(queue: Queue) -> None:
    """DeleteMessageBatch answers 200 with a list of failures (trap 4)."""
    calls: list[int] = []

    async def scene() -> None:
        source = queue.source()
        await source.open(NoOthers())
        queue.send([b"1"])
        found = await source.receive(1, 1.0)
        delete = source._client.delete_message_batch

        def fails_once(**request: Any) -> Any:
            calls.append(len(request["Entries"]))
            if len(calls) == 1:
                return {"Failed": [{"Id": "0", "SenderFault": False, "Code": "InternalError"}]}
            return delete(**request)

        source._client.delete_message_batch = fails_once
        await source.ack(found)
        assert calls == [1, 1]

        def fails(**request: Any) -> Any:
            return {"Failed": [{"Id": "0", "SenderFault": False, "Code": "InternalError"}]}

        source._client.delete_message_batch = fails
        with pytest.raises(SourceUnavailable, match="3 times"):
            await source.ack(found)
        await source.close()

    asyncio.run(scene())


def test_a_poll_under_way_at_the_end_gives_its_messages_back(queue: Queue) -> None:
    """What a long poll brings after the stop is visible at once (trap 8)."""

    async def scene() -> None:
        source = queue.source(visibility=300)
        await source.open(NoOthers())
        polling = asyncio.create_task(source.receive(5, 5.0))
        await asyncio.sleep(0.2)
        polling.cancel()
        await asyncio.wait([polling])
        await asyncio.to_thread(queue.send, [b"1"])
        await source.close()

    asyncio.run(scene())
    assert queue.visible() == 1


def test_the_promises_of_the_queue_are_read_from_it(ministack: MiniStack) -> None:
    """Retention with that of the dead-letter queue; few receives are warned of (traps 7 and 12)."""
    queue = Queue(ministack.url, receive_count_max=1)
    queue.client.set_queue_attributes(QueueUrl=queue.url, Attributes={"MessageRetentionPeriod": "604800"})

    async def scene() -> None:
        source = queue.source()
        traits = await source.open(NoOthers())
        await source.close()
        assert traits.retention_seconds == {"queue": 604800.0, "dead-letter queue": 345600.0}
        assert traits.hold_max_seconds == 43200
        first, second = traits.warnings
        assert "maxReceiveCount is 1" in first
        assert "may be gone at once" in second

    asyncio.run(scene())


def test_a_redriven_message_is_a_replay_or_runs_for_the_first_time(
    ministack: MiniStack, tmp_path: Path
) -> None:
    """It has a new id and comes after a day: its key is made of the event (trap 13)."""
    queue, ran, clock = Queue(ministack.url, receive_count_max=3), list[int](), ManualClock()
    store = open_store(f"sqlite:///{tmp_path}/ledger.db", clock=clock)
    with Gate(store=store, clock=clock) as gate:

        @gate.handler("orders", key="{order}", retention="30d")
        async def book(event: Any, once: Any) -> None:
            ran.append(event["order"])

        one = consumption_of(queue.source(), gate.engine.surface("orders"))
        queue.send([b'{"order": 1}'])
        assert asyncio.run(Consumer(gate, one).run_once()).acknowledged == 1
        dead = [b'{"order": 1}', b'{"order": 2}']  # an acknowledgement was lost, and a worker was down
        clock.advance(86_400)
        queue.send(dead)
        assert asyncio.run(Consumer(gate, one).run_once()).acknowledged == len(dead)
    assert ran == [1, 2]
    assert queue.visible() == 0


def test_a_wrong_region_is_refused_before_anything_is_called() -> None:
    """The URL names the region."""
    with pytest.raises(ConfigError, match="in eu-west-1, not in us-east-1"):
        Sqs("https://sqs.eu-west-1.amazonaws.com/1/q", region="us-east-1")


def test_missing_credentials_and_an_absent_server_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """A person sets the first right; the second is tried again."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))

    async def scene() -> None:
        url = "http://127.0.0.1:1/1/q"
        bare = Sqs(url, endpoint="http://127.0.0.1:1", region="us-east-1")
        with pytest.raises(BadSource, match="credentials"):
            await bare.open(NoOthers())
        await bare.close()
        away = Sqs(url, endpoint="http://127.0.0.1:1", region="us-east-1", **KEYS)
        with pytest.raises(SourceUnavailable):
            await away.open(NoOthers())
        await away.close()

    asyncio.run(scene())
