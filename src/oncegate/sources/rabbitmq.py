"""RabbitMQ: one channel with manual acknowledgements, and delay queues for what comes again later.

RabbitMQ keeps a message until it is answered or its connection ends. A rejected message would come again at
once, at the head of the queue. So a message that must wait is published to a delay queue with a publisher
confirm, and acknowledged then; the delay queue returns it. A crash in between makes a duplicate, which is a
replay. A delivery remembers its channel: what came by a channel that is closed is not answered, because
answering on another channel would close that one too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from uuid import uuid4

from oncegate.errors import BadSource, ConfigError, SourceUnavailable
from oncegate.model.redact import masked_url
from oncegate.sources.contract import Delivery, InFlight, Traits
from oncegate.sources.rabbitmq_management import QueueFacts, read_facts

CONSUMER_TIMEOUT_SECONDS: Final = 1800.0  # the server's own default
CONNECT_SECONDS: Final = 10.0
CALL_SECONDS: Final = 10.0
DELAYS_SECONDS: Final = (1, 5, 30, 300)  # one queue each: within a queue, messages leave in order
COUNT_HEADER: Final = "x-oncegate-deliveries"
INSTALL: Final = "RabbitMQ needs its client: pip install 'oncegate[rabbitmq]'"


class RabbitMq:
    """Messages of one queue, which must exist. `dead_letters` names a queue for what is no event.

    `consumer_timeout` is the server's setting of that name, in seconds: a handler must end before it.
    `management` is the address of the management API, which says how long the queue keeps messages.
    """

    def __init__(
        self,
        url: str,
        *,
        queue: str,
        dead_letters: str | None = None,
        consumer_timeout: float = CONSUMER_TIMEOUT_SECONDS,
        management: str | None = None,
        **connect: Any,
    ) -> None:
        if not queue:
            raise ConfigError("RabbitMQ: the queue must be named")
        if connect.pop("no_ack", False) or connect.pop("auto_ack", False):
            raise ConfigError(
                "RabbitMQ: no_ack acknowledges a message before its event is on record; leave it out"
            )
        self.url, self.queue, self.dead_letters = url, queue, dead_letters
        self._timeout, self._options = consumer_timeout, connect
        self._management, self._facts = management, QueueFacts()
        self._connection: Any = None
        self._channel: Any = None
        self._underlay: Any = None  # the channel as deliveries know it
        self._queue: Any = None
        self._tag: str | None = None
        self._prefetch = self._unanswered = 0  # of the present consumer tag
        self._came: deque[Any] = deque()
        self._something = asyncio.Event()
        self._delays: set[int] = set()

    @property
    def name(self) -> str:
        """`rabbitmq:` with the queue."""
        return f"rabbitmq:{self.queue}"

    async def open(self, in_flight: InFlight) -> Traits:
        """Connects unless connected, opens a channel and finds the queues."""
        if self._channel is None or self._channel.is_closed:
            await self._connect()
        if self._management is not None and not self._facts.retention_seconds:
            self._facts = await asyncio.to_thread(read_facts, self._management, self.url, self.queue)
        return Traits(
            kind="rabbitmq",
            server=masked_url(self.url),
            queue=self.queue,
            hold_max_seconds=self._timeout,
            delay_max_seconds=float(DELAYS_SECONDS[-1]),
            counts_deliveries=True,
            has_dead_letters=self.dead_letters is not None,
            retention_seconds=self._facts.retention_seconds,
            warnings=self._facts.warnings,
        )

    async def _connect(self) -> None:
        try:
            import aio_pika
        except ModuleNotFoundError as error:
            raise ConfigError(INSTALL) from error
        await self._disconnect()
        with self._trouble("connecting"):
            self._connection = await aio_pika.connect(self.url, timeout=CONNECT_SECONDS, **self._options)
            # A message that reaches no queue must raise: without, it looks confirmed.
            self._channel = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
            self._underlay = await self._channel.get_underlay_channel()
        self._channel.close_callbacks.add(self._closed)
        for queue in filter(None, (self.dead_letters, self.queue)):
            self._queue = await self._find(queue)
        self._came, self._tag = deque(), None
        self._prefetch = self._unanswered = 0
        self._something.clear()

    def _closed(self, *_: object) -> None:
        self._something.set()

    async def _find(self, queue: str) -> Any:
        from aio_pika.exceptions import ChannelNotFoundEntity

        try:
            with self._trouble("finding the queue"):
                return await self._channel.declare_queue(queue, passive=True, timeout=CALL_SECONDS)
        except SourceUnavailable as error:
            if isinstance(error.__cause__, ChannelNotFoundEntity):
                raise BadSource(f"there is no queue {queue!r} at {masked_url(self.url)}; make it") from None
            raise

    @contextmanager
    def _trouble(self, what: str) -> Iterator[None]:
        """Errors of the client as errors of the contract."""
        from aio_pika import exceptions
        from aiormq.exceptions import ChannelAccessRefused

        denied = (
            exceptions.ProbableAuthenticationError,
            exceptions.AuthenticationError,
            ChannelAccessRefused,
        )
        try:
            yield
        except denied as error:
            raise BadSource(
                f"RabbitMQ at {masked_url(self.url)} refuses, {what}: {error}; check the user and its"
                f" permissions to read {self.queue} and to configure {self.queue}.oncegate.*"
            ) from error
        except (exceptions.AMQPError, OSError, TimeoutError, RuntimeError) as error:
            told = f"{error or type(error).__name__}"
            raise SourceUnavailable(f"RabbitMQ at {masked_url(self.url)}, {what}: {told}") from error

    async def receive(self, count_max: int, wait_seconds: float) -> Sequence[Delivery]:
        """Takes what the server has sent; it sends no more than what was asked for."""
        if self._channel is None or self._channel.is_closed:
            raise SourceUnavailable(f"RabbitMQ at {masked_url(self.url)}: the channel was closed")
        if count_max > self._prefetch - self._unanswered + len(self._came):
            await self._consume(count_max)
        if not self._came:
            self._something.clear()
            try:
                await asyncio.wait_for(self._something.wait(), wait_seconds)
            except TimeoutError:
                return []
        if not self._came and self._channel.is_closed:
            raise SourceUnavailable(f"RabbitMQ at {masked_url(self.url)}: the channel was closed")
        return [_delivery(self._came.popleft()) for _ in range(min(count_max, len(self._came)))]

    async def _consume(self, count: int) -> None:
        """Consumes under a new tag: a limit counts for the tags made after it, and what came stays ours."""
        with self._trouble("consuming"):
            if self._tag is not None:
                await self._queue.cancel(self._tag, timeout=CALL_SECONDS)
            count -= len(self._came)  # those came under the old tag
            if count <= 0:
                self._tag, self._prefetch, self._unanswered = None, 0, 0
                return
            self._prefetch, self._unanswered = count, 0
            await self._channel.set_qos(prefetch_count=count, timeout=CALL_SECONDS)
            self._tag = str(uuid4())
            await self._queue.consume(
                self._take, no_ack=False, consumer_tag=self._tag, timeout=CALL_SECONDS
            )

    async def _take(self, message: Any) -> None:
        self._unanswered += message.consumer_tag == self._tag
        self._came.append(message)
        self._something.set()

    def _answered(self, delivery: Delivery) -> None:
        self._unanswered -= delivery.handle.consumer_tag == self._tag

    def _check_channel(self, delivery: Delivery) -> None:
        try:
            is_mine = delivery.handle.channel is self._underlay
        except RuntimeError:  # the client's word for a closed channel
            is_mine = False
        if not is_mine or self._channel.is_closed:
            raise SourceUnavailable(f"message {delivery.message_id} came by a channel that is closed")

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledges one by one: others in between may still run."""
        lost: SourceUnavailable | None = None
        for delivery in deliveries:
            try:
                await self._ack(delivery)
            except SourceUnavailable as error:
                lost = error
        if lost is not None:
            raise lost

    async def _ack(self, delivery: Delivery) -> None:
        if self._channel is None:
            raise SourceUnavailable("the source is not open")
        with self._trouble("acknowledging"):
            self._check_channel(delivery)
            if not delivery.handle.processed:  # a second answer would close the channel
                self._answered(delivery)
                await delivery.handle.ack()

    async def give_back(self, delivery: Delivery, delay_seconds: float) -> None:
        """At once, or through the delay queue that is long enough."""
        if self._channel is None:
            raise SourceUnavailable("the source is not open")
        with self._trouble("giving back"):
            self._check_channel(delivery)
            if delay_seconds <= 0:
                self._answered(delivery)
                await delivery.handle.nack(requeue=True)
                return
            delay = next((one for one in DELAYS_SECONDS if one >= delay_seconds), DELAYS_SECONDS[-1])
            await self._publish(await self._delay_queue(delay), delivery)
        await self._ack(delivery)

    async def _delay_queue(self, seconds: int) -> str:
        name = f"{self.queue}.oncegate.delay.{seconds}s"
        if seconds not in self._delays:
            arguments = {
                "x-message-ttl": seconds * 1000,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": self.queue,
                "x-queue-type": "quorum",
                "x-dead-letter-strategy": "at-least-once",
                "x-overflow": "reject-publish",
            }
            await self._channel.declare_queue(name, durable=True, arguments=arguments, timeout=CALL_SECONDS)
            self._delays.add(seconds)
        return name

    async def _publish(self, queue: str, delivery: Delivery, **more: str) -> None:
        """Publishes a copy and waits for the server's confirm."""
        import aio_pika

        message = delivery.handle
        headers = {name: value for name, value in message.headers.items() if name != "x-delivery-count"}
        copy = aio_pika.Message(
            message.body,
            headers={**headers, COUNT_HEADER: delivery.times_delivered or 1, **more},
            content_type=message.content_type,
            message_id=message.message_id,
            correlation_id=message.correlation_id,
            type=message.type,
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        )
        await self._channel.default_exchange.publish(copy, queue, mandatory=True, timeout=CALL_SECONDS)

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        """Nothing to do: the server keeps a message while the connection lasts."""

    async def bury(self, delivery: Delivery, reason: str) -> None:
        """Publishes a copy to the dead letters, with a confirm, then acknowledges."""
        if self._channel is None or self.dead_letters is None:
            raise SourceUnavailable("the source has no dead letters, or is not open")
        with self._trouble("burying"):
            self._check_channel(delivery)
            await self._publish(self.dead_letters, delivery, **{"oncegate-reason": reason})
        await self._ack(delivery)

    async def lag(self) -> int | None:
        """How many messages are ready."""
        if self._channel is None or self._channel.is_closed:
            return None
        with self._trouble("asking for the lag"):
            found = await self._channel.declare_queue(self.queue, passive=True, timeout=CALL_SECONDS)
        return int(found.declaration_result.message_count or 0)

    async def close(self) -> None:
        """Disconnects; the server requeues what was not answered."""
        await self._disconnect()

    async def _disconnect(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        self._delays.clear()
        if connection is None or connection.is_closed:
            return
        try:
            await asyncio.wait_for(connection.close(), CALL_SECONDS)
        except Exception:  # noqa: BLE001  the server notices that the connection is gone
            return


def _delivery(message: Any) -> Delivery:
    headers = {name: value for name, value in message.headers.items() if isinstance(value, str)}
    if message.correlation_id:
        headers.setdefault("x-correlation-id", str(message.correlation_id))
    known = message.headers.get("x-delivery-count")
    again = int(known) if isinstance(known, int) else int(bool(message.redelivered))
    before = message.headers.get(COUNT_HEADER)
    times = 1 + again + (before if isinstance(before, int) else 0)
    return Delivery(
        message.body,
        str(message.message_id or message.delivery_tag),
        headers,
        times_delivered=times,
        handle=message,
    )
