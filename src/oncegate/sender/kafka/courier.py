"""One attempt at producing an event, and what its delivery report means.

A timeout is an unknown outcome: the topic may or may not have the record. The event is produced again with
the same id, key and seq, and its successor waits. A mistake that a person must mend (no such topic, no
permission, no client) uses no attempt up.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from oncegate.clock import Clock
from oncegate.errors import BadOutgoing, BadUrl, ConfigError
from oncegate.lanes.outcomes import Dead, Delivered, NotYet, Outcome, RetryLater, Throttle, Unreached
from oncegate.model.kafka_address import KafkaAddress, parse_kafka_address
from oncegate.sender.endpoints import Endpoint
from oncegate.sender.kafka.producers import DeliveryReport, Producers
from oncegate.sender.kafka.records import build_record
from oncegate.sender.request_builder import OutgoingRequest

MISTAKE_WAIT_SECONDS: Final = 30.0  # until an endpoint that cannot be used is tried again
QUEUE_WAIT_SECONDS: Final = 1.0
REPORT_SECONDS: Final = 5.0  # how much later than its timeout a delivery report may come

_MISTAKES: Final = {
    "_UNKNOWN_TOPIC": "create the topic, or correct the endpoint",
    "_UNKNOWN_PARTITION": "the topic has changed; it is looked up again",
    "UNKNOWN_TOPIC_OR_PART": "create the topic, or correct the endpoint",
    "TOPIC_AUTHORIZATION_FAILED": "allow this user to write to the topic",
    "CLUSTER_AUTHORIZATION_FAILED": "allow this user idempotent writes",
    "TOPIC_EXCEPTION": "the topic's name is refused; correct the endpoint",
    "SASL_AUTHENTICATION_FAILED": "correct the user or the password",
    "_AUTHENTICATION": "correct the user or the password",
    "POLICY_VIOLATION": "the cluster's policy refuses it",
}
_HOPELESS: Final = {
    "MSG_SIZE_TOO_LARGE": "raise max.message.bytes of the topic, then retry the dead letter",
    "INVALID_RECORD": "the broker refuses this record",
}


class KafkaCourier:
    """Brings single events to Kafka topics."""

    def __init__(self, clock: Clock, environment: Mapping[str, str] = os.environ) -> None:
        self._clock, self._environment = clock, environment
        self._producers = Producers()

    async def deliver(
        self, endpoint: Endpoint, event: OutgoingRequest, replay_nonce: str | None = None
    ) -> Outcome:
        """Makes one attempt."""
        try:
            address = parse_kafka_address(endpoint.url)
            record = build_record(
                event,
                key_field=address.key_field,
                body_format=endpoint.body_format,
                own_headers=endpoint.headers,
                replay_nonce=replay_nonce,
            )
            producer = self._producers.get(self._settings(address, endpoint.timeout))
        except BadOutgoing as refused:
            return Dead(str(refused))
        except (BadUrl, ConfigError) as mistake:
            return Throttle(f"{endpoint.name}: {mistake}", MISTAKE_WAIT_SECONDS)
        began_us = self._clock.elapsed_us()
        seconds = endpoint.timeout.total_seconds()
        report = await producer.produce(address.topic, record, seconds + REPORT_SECONDS)
        if report.error in _MISTAKES:
            producer.is_broken = True  # a client remembers for minutes what it learned of a topic
        took_ms = (self._clock.elapsed_us() - began_us) // 1_000
        return _outcome(address.topic, report, took_ms)

    def _settings(self, address: KafkaAddress, timeout: timedelta) -> dict[str, object]:
        return {
            **address.client_settings(self._environment),
            "message.timeout.ms": timeout // timedelta(milliseconds=1),
            "compression.type": address.compression,
        }

    async def close(self) -> None:
        """Ends the producers of this process."""
        await self._producers.close()


def _outcome(topic: str, report: DeliveryReport, took_ms: int) -> Outcome:
    if not report.error:
        return Delivered(f"{topic}[{report.partition}] offset {report.offset} in {took_ms} ms")
    said = f"Kafka: {report.detail} ({report.error.strip('_').lower()})"
    if report.error in _HOPELESS:
        return Dead(f"{said}; {_HOPELESS[report.error]}")
    if report.error in _MISTAKES:
        return Throttle(f"{said}; {_MISTAKES[report.error]}", MISTAKE_WAIT_SECONDS)
    if report.error == "_QUEUE_FULL":
        return NotYet(said, QUEUE_WAIT_SECONDS)
    if report.cluster_is_down:
        return Unreached(f"{said}; no broker can be reached")
    return RetryLater(f"{said}; whether the topic has it is not known")
