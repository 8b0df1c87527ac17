"""Queues in: consumers that run each message's effect once and acknowledge it when it is on record.

contract    what a queue must offer: Source, Delivery, Traits
options     how a source is consumed, and which surfaces it may be consumed for
consumer    one engine for all queues: receives, drains, and keeps the parts below
reading     from bytes to an event
attempts    one event meets the gate; the ledger says what is on record
decisions   what becomes of a delivery: pure
settling    brings each delivery to its end; held: those in flight, by lane; acks: in batches
extending   holds messages while their handlers run
reporting   status and pause, through the ledger; status: their formats; counting: the numbers
kinds       adapters by name, for settings
nats, redis_stream, sqs, rabbitmq, kafka    one adapter a file
lambda_events    AWS Lambda: batches of SQS, answered by `batchItemFailures`

Adapters are imported when they are first used, and their client libraries when they connect.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oncegate.sources.contract import Delivery, Source, Traits
    from oncegate.sources.kafka import Kafka
    from oncegate.sources.nats import Nats
    from oncegate.sources.rabbitmq import RabbitMq
    from oncegate.sources.redis_stream import RedisStream
    from oncegate.sources.sqs import Sqs

__all__ = ["Delivery", "Kafka", "Nats", "RabbitMq", "RedisStream", "Source", "Sqs", "Traits"]

_HOMES = {
    "Delivery": "contract",
    "Kafka": "kafka",
    "Nats": "nats",
    "RabbitMq": "rabbitmq",
    "RedisStream": "redis_stream",
    "Source": "contract",
    "Sqs": "sqs",
    "Traits": "contract",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value
