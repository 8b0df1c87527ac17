"""FastStream subscribers that run each event once: `subscribe(subscriber, gate, "portbase.cis")`.

For NATS JetStream (`pull_sub=True`) and RabbitMQ. The subscriber must have `ack_policy=AckPolicy.MANUAL`:
the adapter acknowledges after the ledger has the event on record. FastStream's other policies acknowledge
early, or throw a message away when a handler raises; they are refused. With FastStream, Kafka, Redis
streams and core NATS cannot give a message back: consume them with `gate.consume`.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from oncegate.errors import ConfigError
from oncegate.gate.facade import GateOnStore
from oncegate.integrations.task_queues import ComesAgain, TaskRunner
from oncegate.sources.decisions import OnRecord

if TYPE_CHECKING:
    from faststream.message import StreamMessage

_WHY: Final = {
    "ack_first": "acknowledges before the handler ran: a crash loses the event",
    "ack": "acknowledges also after an error: the event is lost",
    "reject_on_error": "throws the message away when a handler raises, unless the queue has dead letters",
    "nack_on_error": "returns the message without a delay: a failing event spins",
}
_WAIT_MAX_SECONDS: Final = 30.0  # between two tries at a message of RabbitMQ, which keeps no delay
HELD_MAX_SECONDS: Final = 900.0  # RabbitMQ closes the channel of a message that is held for 30 minutes
HEARTBEAT_SECONDS: Final = 5.0
CONFIRM_SECONDS: Final = 30.0
CLOSE_SECONDS: Final = 5.0
CHANNELS_MAX: Final = 8  # for copies; a server closes a connection that has too many
_NOT_COPIED: Final = frozenset({"x-delivery-count", "CC", "BCC"})
_PERSISTENT: Final = 2

log = logging.getLogger("oncegate.sources")


def subscribe(subscriber: Any, gate: GateOnStore, surface: str, *, tenant: str | None = None) -> None:
    """Lets a subscriber bring its messages to a surface: each runs once and is acknowledged afterwards."""
    from faststream import Context

    runner = TaskRunner(gate, surface, "faststream", tenant)
    _check(subscriber)
    slots = asyncio.Semaphore(CHANNELS_MAX)

    async def run_once(message: Any) -> None:
        await _consume(runner, message, subscriber, slots)

    run_once.__defaults__ = (Context("message"),)  # FastStream injects by the default

    subscriber(run_once, decoder=_undecoded)


async def _undecoded(message: StreamMessage[Any]) -> bytes:
    return message.body if isinstance(message.body, bytes) else bytes(message.body)


async def _consume(runner: TaskRunner, message: Any, subscriber: Any, slots: asyncio.Semaphore) -> None:
    is_nats = hasattr(message, "in_progress")
    heartbeat = asyncio.create_task(_extend(message)) if is_nats else None
    headers = {name: value for name, value in message.headers.items() if isinstance(value, str)}
    waited = 0.0
    try:
        found = await runner.run(message.body, str(message.message_id), headers)
        while not is_nats and isinstance(found, ComesAgain) and waited < HELD_MAX_SECONDS:
            wait = min(found.seconds, _WAIT_MAX_SECONDS)
            await asyncio.sleep(wait)
            waited += wait
            found = await runner.run(message.body, str(message.message_id), headers)
    finally:
        if heartbeat is not None:
            heartbeat.cancel()
    if isinstance(found, OnRecord):
        await message.ack()
    elif is_nats:  # NATS keeps the delay
        await message.nack(delay=found.seconds)
    elif await _sent_again(message.raw_message, subscriber, slots):
        await message.ack()
    else:
        await message.nack(requeue=True)


async def _sent_again(message: Any, subscriber: Any, slots: asyncio.Semaphore) -> bool:
    """Sends a copy to the end of its queue; whether RabbitMQ has confirmed it.

    A message that is returned counts as a delivery, and a quorum queue drops it after some. A copy counts
    from the beginning. A crash before the original is acknowledged makes a duplicate, which is a replay.
    """
    queue = subscriber.routing().removesuffix(subscriber.queue.routing()) + subscriber.queue.name
    try:
        async with asyncio.timeout(CONFIRM_SECONDS), slots:
            return await _publish(message, queue)
    except Exception as error:  # noqa: BLE001  whatever it is, no confirm came: the original stays
        log.warning(
            "no copy of message %s could be sent to queue %s: it is returned, which counts as a delivery."
            " The user needs write permission on amq.default. The reason: %s",
            message.message_id,
            queue,
            type(error).__name__,  # its text may have the body
        )
        return False


async def _publish(message: Any, queue: str) -> bool:
    """By a channel of its own: the server closes one that it refuses, with all that others hold by it."""
    from pamqp.commands import Basic

    channel = await message.channel.connection.channel(publisher_confirms=True, on_return_raises=True)
    try:
        answer = await channel.basic_publish(
            message.body, routing_key=queue, properties=_copied(message), mandatory=True
        )
        return isinstance(answer, Basic.Ack)
    finally:
        with suppress(Exception):
            await channel.close(timeout=CLOSE_SECONDS)


def _copied(message: Any) -> Any:
    """Its properties, without what would count on, route to other queues or name another user."""
    properties = message.properties
    properties.headers = {name: value for name, value in message.headers.items() if name not in _NOT_COPIED}
    properties.delivery_mode = _PERSISTENT
    properties.user_id = None  # the server refuses one that is not the connection's
    return properties


async def _extend(message: Any) -> None:
    while True:
        await asyncio.sleep(HEARTBEAT_SECONDS)
        await message.in_progress()


def _check(subscriber: Any) -> None:
    policy = getattr(subscriber.ack_policy, "value", str(subscriber.ack_policy))
    if policy != "manual":
        raise ConfigError(
            f"ack_policy {policy}: it {_WHY.get(policy, 'is not known')}; make the subscriber with"
            " ack_policy=AckPolicy.MANUAL"
        )
    module = type(subscriber).__module__
    if module.startswith("faststream.rabbit"):
        return
    if not module.startswith("faststream.nats") or "Stream" not in type(subscriber).__name__:
        raise ConfigError(
            f"a {type(subscriber).__name__} of {module.split('.')[1]} cannot give a message back: consume"
            " it with gate.consume (oncegate.sources), or subscribe to a NATS stream or RabbitMQ"
        )
    if "Batch" in type(subscriber).__name__:
        raise ConfigError("a batch is acknowledged as a whole: subscribe without batch")
    if "Pull" not in type(subscriber).__name__:
        raise ConfigError("subscribe with pull_sub=True: a push subscription may acknowledge by itself")
    most = getattr(getattr(subscriber, "config", None), "max_deliver", None)
    if most is not None and most > 0:
        raise ConfigError(
            f"max_deliver is {most}: NATS then keeps the message and delivers it to no consumer; set -1, as"
            " the ledger counts attempts"
        )
