"""Kafka producers: one for each cluster and way to sign in, shared by the endpoints that use it.

A producer is idempotent and asks for the acknowledgement of all in-sync replicas. The client library sends
from threads of its own; one more thread per producer takes the delivery reports and passes each to the
event loop that waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from oncegate.errors import ConfigError
from oncegate.sender.kafka.records import KafkaRecord

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

POLL_SECONDS: Final = 0.2  # how soon the thread notices that it shall end
END_SECONDS_MAX: Final = 5.0
DRAIN_SECONDS_MAX: Final = 40.0  # longer than any endpoint's timeout
RECORD_BYTES_MAX: Final = 4 * 1024 * 1024  # the broker's own limit decides; this one is never reached
HINT: Final = "Kafka needs its client: pip install 'oncegate[kafka]'"

log = logging.getLogger("oncegate.sender.kafka")


class DeliveryReport(Struct, frozen=True):
    """What the client says of one record: where it is, or the error's name and text."""

    partition: int = -1
    offset: int = -1
    error: str = ""
    detail: str = ""
    cluster_is_down: bool = False


class RecordProducer:
    """One client of one cluster."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        try:
            from confluent_kafka import KafkaException, Producer
        except ModuleNotFoundError as missing:
            raise ConfigError(HINT) from missing
        own = {
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 0,
            "partitioner": "murmur2_random",  # the partition that Java's clients choose for the same key
            "message.max.bytes": RECORD_BYTES_MAX,
            "socket.keepalive.enable": True,
        }
        try:
            self._producer = Producer({**settings, **own, "logger": log, "error_cb": self._failed})
        except KafkaException as refused:
            raise ConfigError(f"the Kafka client refuses these settings: {refused.args[0].str()}") from None
        self._exception = KafkaException
        self.is_broken = False
        self._is_down = False
        self._trouble = ""
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._take_reports, name="oncegate-kafka", daemon=True)
        self._thread.start()

    async def produce(self, topic: str, record: KafkaRecord, deadline_seconds: float) -> DeliveryReport:
        """Produces a record and waits for its delivery report. Cancelled, it sends nothing more."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[DeliveryReport] = loop.create_future()

        def reported(error: KafkaError | None, message: Message) -> None:
            report = self._report(error, message)
            try:
                loop.call_soon_threadsafe(_answer, waiting, report)
            except RuntimeError:  # the loop has been closed: no task waits
                return

        try:
            self._producer.produce(
                topic, record.value, record.key, headers=list(record.headers), on_delivery=reported
            )
        except BufferError:
            return DeliveryReport(error="_QUEUE_FULL", detail="too many records wait in this process")
        except self._exception as refused:  # what the client remembers of the topic
            return DeliveryReport(error=refused.args[0].name(), detail=refused.args[0].str())
        try:
            return await asyncio.wait_for(waiting, deadline_seconds)
        except TimeoutError:
            self.is_broken = True  # a client without reports is replaced
            return DeliveryReport(error="_MSG_TIMED_OUT", detail="the client gave no delivery report")
        except asyncio.CancelledError:
            # Who cancels gives the lane to others: a copy that waits here must not follow theirs.
            self._producer.purge(blocking=False)
            raise

    def _report(self, error: KafkaError | None, message: Message) -> DeliveryReport:
        if error is None:
            self._is_down, self._trouble = False, ""
            return DeliveryReport(_number(message.partition()), _number(message.offset()))
        if error.fatal():
            self.is_broken = True
        detail = f"{error.str()}; {self._trouble}" if self._trouble else error.str()
        return DeliveryReport(error=error.name(), detail=detail, cluster_is_down=self._is_down)

    def _failed(self, error: KafkaError) -> None:
        """Called by the client about connections and about the producer as a whole."""
        if error.fatal():
            self.is_broken = True
        if error.name() == "_ALL_BROKERS_DOWN":
            self._is_down = True
        else:
            self._trouble = error.str()

    def _take_reports(self) -> None:
        while not self._closing.is_set():
            self._producer.poll(POLL_SECONDS)

    def retire(self) -> None:
        """Lets what is under way end, then closes; for a producer that was replaced."""
        self._producer.flush(DRAIN_SECONDS_MAX)
        self.close()

    def close(self) -> None:
        """Drops what was not sent, takes the last reports and ends the thread."""
        self._producer.purge()
        self._closing.set()
        self._thread.join(END_SECONDS_MAX)
        self._producer.flush(END_SECONDS_MAX)


def _answer(waiting: asyncio.Future[DeliveryReport], report: DeliveryReport) -> None:
    if not waiting.done():
        waiting.set_result(report)


def _number(given: int | None) -> int:
    return -1 if given is None else given


class Producers:
    """The producers of one process, by their settings; a broken one is replaced."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[str, Any], ...], RecordProducer] = {}

    def get(self, settings: Mapping[str, Any]) -> RecordProducer:
        """The producer with these settings."""
        name = tuple(sorted(settings.items()))
        found = self._known.get(name)
        if found is None or found.is_broken:
            if found is not None:
                threading.Thread(target=found.retire, name="oncegate-kafka-retire", daemon=True).start()
            found = self._known[name] = RecordProducer(settings)
        return found

    async def close(self) -> None:
        """Ends all."""
        known, self._known = list(self._known.values()), {}
        await asyncio.gather(*(asyncio.to_thread(one.close) for one in known))
