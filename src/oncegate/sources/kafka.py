"""Kafka: a consumer group, parallel by record key, with contiguous offset commits.

One thread owns the client and polls always, also while nothing may be received, so that the group never
throws this member out. Acknowledged records move the partition's contiguous prefix, which is committed a
few times a second. A partition that is revoked is drained and committed first; one that was lost is not
committed. What is acknowledged after that changes nothing: its next owner gets the record again, and the
ledger makes it a replay.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from oncegate.errors import BadUrl, ConfigError, SourceUnavailable
from oncegate.model.kafka_address import is_kafka, parse_kafka_address
from oncegate.sources.contract import Delivery, InFlight, Traits
from oncegate.sources.kafka_offsets import Handle
from oncegate.sources.kafka_poller import KafkaPoller
from oncegate.sources.kafka_retention import read_retention

if TYPE_CHECKING:
    from confluent_kafka import Consumer as KafkaClient
    from confluent_kafka import KafkaError, Message, TopicPartition

DRAIN_SECONDS: Final = 10.0  # for records of a revoked partition; the group waits meanwhile
BUFFER_KIBIBYTES: Final = 16 * 1024
INSTALL: Final = "Kafka needs its client: pip install 'oncegate[kafka]'"
STARTS: Final = ("earliest", "latest")
ORDERS: Final = ("key", "partition")

# Settings that acknowledge early, or that this file has to decide about itself.
_REFUSED: Final = {
    "enable.auto.commit": "it acknowledges records that were not run",
    "enable.auto.offset.store": "it acknowledges records that were not run",
    "auto.offset.reset": "say start='earliest' or start='latest' instead",
    "bootstrap.servers": "the address names the brokers",
    "group.id": "say group= instead",
    "group.instance.id": "say member= instead",
    "partition.assignment.strategy": "partitions move one by one here (cooperative-sticky)",
    "isolation.level": "records of transactions that were aborted are not events",
}
_CONNECTING: Final = ("sasl.", "ssl.", "security.", "socket.", "broker.", "oauth", "enable.ssl")
log = logging.getLogger("oncegate.sources.kafka")


class Kafka:
    """Records of a topic, for one consumer group.

    `url` is `kafka://host:9092[,host:9092]/topic?tls=1&…`, as of an endpoint. `start` says where a group
    begins that has no offset yet; without it, a missing or expired offset stops the consumer, because
    either choice would skip or repeat records. Records of one record key run in order, those of different
    keys beside each other; `order="partition"` runs a whole partition in order. `member` is a name that
    this process keeps over restarts (static membership). Further `settings` go to the client.
    """

    def __init__(
        self,
        url: str,
        *,
        group: str,
        start: str | None = None,
        order: str = "key",
        member: str | None = None,
        drain_seconds: float = DRAIN_SECONDS,
        settings: dict[str, Any] | None = None,
    ) -> None:
        try:
            self._address = parse_kafka_address(url)
        except BadUrl as refused:
            raise ConfigError(f"Kafka: {refused}") from None
        if not is_kafka(url) or self._address.key_field is not None:
            raise ConfigError("Kafka: write kafka://host:9092/topic; key= belongs to endpoints")
        if not group or start not in (None, *STARTS) or order not in ORDERS:
            raise ConfigError("Kafka: group= is a name, start= earliest or latest, order= key or partition")
        for name in settings or {}:
            if name in _REFUSED:
                raise ConfigError(f"Kafka: {name} cannot be set: {_REFUSED[name]}")
        self._group, self._start, self._by_key, self._member = group, start, order == "key", member
        self._drain_seconds, self._settings = drain_seconds, dict(settings or {})
        self._poller: KafkaPoller | None = None
        self._retention: dict[str, float | None] = {}

    @property
    def name(self) -> str:
        """`kafka:` with the topic and the group."""
        return f"kafka:{self._address.topic}/{self._group}"

    async def open(self, in_flight: InFlight) -> Traits:
        """Joins the group unless this member is in it; asks the brokers for the topic."""
        if self._poller is None or self._poller.failure is not None:
            await self.close()
            client = self._client()
            self._poller = KafkaPoller(
                client, self._address.topic, in_flight, asyncio.get_running_loop(), self._drain_seconds
            )
        await asyncio.to_thread(self._poller.check, self._address.bootstrap)
        if not self._retention:
            self._retention = await asyncio.to_thread(
                read_retention, self._connection(), self._address.topic
            )
        self._poller.start()
        return Traits(
            kind="kafka",
            server=self._address.bootstrap,
            queue=f"{self._address.topic}/{self._group}",
            retention_seconds=self._retention,
            poll_seconds=1.0,
        )

    def _connection(self) -> dict[str, Any]:
        """The settings that any client of these brokers needs."""
        given = {name: value for name, value in self._settings.items() if name.startswith(_CONNECTING)}
        return {**self._address.client_settings(os.environ), **given}

    def _client(self) -> KafkaClient:
        try:
            from confluent_kafka import Consumer, KafkaException
        except ModuleNotFoundError as missing:
            raise ConfigError(INSTALL) from missing
        own: dict[str, Any] = {
            **self._address.client_settings(os.environ),
            "queued.max.messages.kbytes": BUFFER_KIBIBYTES,
            "log_level": 2,  # a line for each connection that fails says nothing more than our own
            **self._settings,
            "group.id": self._group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": self._start or "error",
            "partition.assignment.strategy": "cooperative-sticky",
            "isolation.level": "read_committed",
            "logger": log,
            "error_cb": self._failed,
            "on_commit": self._committed,
        }
        if self._member is not None:
            own["group.instance.id"] = self._member
        try:
            return Consumer(own)
        except KafkaException as refused:
            raise ConfigError(
                f"Kafka: the client refuses these settings: {refused.args[0].str()}"
            ) from None

    def _failed(self, error: KafkaError) -> None:
        if self._poller is not None:
            self._poller.failed(error)

    def _committed(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        if self._poller is not None:
            self._poller.committed(error, partitions)

    async def receive(self, count_max: int, wait_seconds: float) -> Sequence[Delivery]:
        """Takes records from the thread; answers as soon as the first is there."""
        poller = self._poller
        if poller is None:
            raise SourceUnavailable(f"{self.name} is closed")
        found = await poller.take(count_max, wait_seconds)
        return [self._delivery(handle, message) for handle, message in found]

    def _delivery(self, handle: Handle, message: Message) -> Delivery:
        topic, partition = handle.place
        key, lane = message.key(), f"{topic}[{partition}]"
        if self._by_key:
            lane = None if key is None else f"{lane}:{key.hex()}"  # type: ignore[assignment]
        return Delivery(
            message.value() or b"",
            f"{topic}[{partition}]@{handle.offset}",
            _headers(message),
            lane,
            handle=handle,
        )

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Moves the prefix of each partition; the thread commits it soon. A repeat would be a replay."""
        if self._poller is not None:
            self._poller.finish([delivery.handle for delivery in deliveries])

    async def give_back(self, delivery: Delivery, delay_seconds: float) -> None:
        """Kafka cannot take a record back; the consumer tries it again itself and does not call this."""
        raise SourceUnavailable("Kafka cannot take a record back")

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        """Records have no lease: the thread keeps this member in its group."""

    async def bury(self, delivery: Delivery, reason: str) -> None:
        """Kafka has no dead-letter queue; the consumer does not call this."""
        raise SourceUnavailable("Kafka has no dead-letter queue")

    async def lag(self) -> int | None:
        """How many records of this member's partitions were not received yet."""
        return None if self._poller is None else await asyncio.to_thread(self._poller.lag)

    async def close(self) -> None:
        """Commits what is done and leaves the group."""
        poller, self._poller = self._poller, None
        if poller is not None:
            await asyncio.to_thread(poller.close)


def _headers(message: Message) -> dict[str, str]:
    given: Any = message.headers() or ()
    return {
        name: value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")
        for name, value in given
    }
