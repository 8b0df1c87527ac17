"""NATS JetStream: a durable pull consumer with explicit acknowledgements.

Messages are pulled by requests of our own. A request may stay open while its messages come one by one, and
its credit is counted, so that no message waits for a batch to fill and none is fetched that cannot start.
An acknowledgement is sent on the present connection, whichever connection the message came by.
Publish deduplication (`Nats-Msg-Id`) is a window of minutes and is never relied on here.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from oncegate.errors import BadSource, ConfigError, SourceUnavailable
from oncegate.model.redact import masked_url
from oncegate.sources.contract import Delivery, InFlight, Traits

ACK_WAIT_SECONDS: Final = 30.0
CONNECT_SECONDS: Final = 5.0
CALL_SECONDS: Final = 5.0
DELAY_MAX_SECONDS: Final = 86_400.0
POLL_SECONDS: Final = 1.0
INSTALL: Final = "NATS needs its client: pip install 'oncegate[nats]'"

_ACK, _NAK, _PROGRESS = b"+ACK", b"-NAK", b"+WPI"
_OVER: Final = frozenset({"404", "408", "409"})  # the request has ended: no messages, timeout, a limit


class Nats:
    """Messages of a JetStream stream, by one durable consumer that all workers share.

    The stream must exist. The durable consumer is made if it does not. `subject` filters.
    """

    def __init__(
        self,
        url: str,
        *,
        stream: str,
        durable: str,
        subject: str | None = None,
        ack_wait: float = ACK_WAIT_SECONDS,
        **connect: Any,
    ) -> None:
        for option, value in (("stream", stream), ("durable", durable)):
            if not value or any(mark in value for mark in " .*>/\\"):
                raise ConfigError(f"NATS: {option} {value[:80]!r} cannot be a name")
        if ack_wait <= 0:
            raise ConfigError("NATS: ack_wait must be longer than nothing")
        self.url, self.stream, self.durable, self.subject = url, stream, durable, subject
        self._ack_wait, self._options = ack_wait, connect
        self._client: Any = None
        self._jetstream: Any = None
        self._pulls: _Pulls | None = None

    @property
    def name(self) -> str:
        """`nats:` with the stream and the consumer."""
        return f"nats:{self.stream}/{self.durable}"

    async def open(self, in_flight: InFlight) -> Traits:
        """Connects unless connected, finds the stream, finds or makes the consumer, and checks both."""
        if self._client is None or not self._client.is_connected:
            await self._connect()
        with self._trouble("opening"):
            stream = await self._stream()
            consumer = await self._consumer()
        _check(self.durable, consumer.config)
        self._check_subjects(consumer.config)
        if self._pulls is None or self._pulls.client is not self._client:
            self._pulls = _Pulls(self._client, self.stream, self.durable)
            with self._trouble("opening"):
                await self._pulls.open()
        return self._traits(stream.config, consumer.config)

    async def _connect(self) -> None:
        try:
            import nats
        except ModuleNotFoundError as error:
            raise ConfigError(INSTALL) from error
        refused: list[Exception] = []

        async def note(error: Exception) -> None:
            refused.append(error)

        try:
            connecting = nats.connect(
                self.url,
                allow_reconnect=False,  # the consumer opens again, and checks again
                max_reconnect_attempts=1,
                reconnect_time_wait=0.1,
                connect_timeout=CONNECT_SECONDS,
                error_cb=note,
                **self._options,
            )
            self._client = await asyncio.wait_for(connecting, 2 * CONNECT_SECONDS)
        except (nats.errors.Error, OSError, TimeoutError) as error:
            told = f"{error or type(error).__name__} {' '.join(map(str, refused))}"
            if "uthoriz" in told:
                raise BadSource(
                    f"{masked_url(self.url)} refuses the credentials: check user, token or nkey"
                ) from error
            raise SourceUnavailable(f"NATS at {masked_url(self.url)} cannot be reached: {told}") from error
        self._jetstream = self._client.jetstream(timeout=CALL_SECONDS)

    async def _stream(self) -> Any:
        from nats.js.errors import NotFoundError

        try:
            return await self._jetstream.stream_info(self.stream)
        except NotFoundError:
            raise BadSource(
                f"there is no stream {self.stream!r} at {masked_url(self.url)};"
                " make it first: nats stream add"
            ) from None

    async def _consumer(self) -> Any:
        from nats.js.api import AckPolicy, ConsumerConfig
        from nats.js.errors import NotFoundError

        try:
            return await self._jetstream.consumer_info(self.stream, self.durable)
        except NotFoundError:
            wanted = ConsumerConfig(
                durable_name=self.durable,
                ack_policy=AckPolicy.EXPLICIT,
                ack_wait=self._ack_wait,
                max_deliver=-1,
                filter_subject=self.subject,
            )
            return await self._jetstream.add_consumer(self.stream, wanted)

    def _check_subjects(self, consumer: Any) -> None:
        """Refuses a durable that passes over messages of the subject, or brings others."""
        known = consumer.filter_subjects or ([consumer.filter_subject] if consumer.filter_subject else [])
        if known != ([self.subject] if self.subject else []):
            raise BadSource(
                f"consumer {self.durable} filters {', '.join(known) or 'nothing'}, and this source wants"
                f" {self.subject or 'every subject'}: use another durable, or the consumer's own subject"
            )

    def _traits(self, stream: Any, consumer: Any) -> Traits:
        warnings = []
        if str(getattr(stream.storage, "value", stream.storage)) == "memory":
            warnings.append(f"stream {self.stream} is in memory: a restart of the server loses messages")
        lease = min([consumer.ack_wait or ACK_WAIT_SECONDS, *(consumer.backoff or ())])
        return Traits(
            kind="nats",
            server=masked_url(self.url),
            queue=f"{self.stream}/{self.durable}",
            lease_seconds=lease,
            delay_max_seconds=DELAY_MAX_SECONDS,
            counts_deliveries=True,
            retention_seconds={"stream": stream.max_age or None},
            poll_seconds=POLL_SECONDS,
            warnings=tuple(warnings),
        )

    @contextmanager
    def _trouble(self, what: str) -> Iterator[None]:
        """Errors of the client as errors of the contract."""
        import nats.errors

        try:
            yield
        except (nats.errors.Error, OSError, TimeoutError) as error:
            raise SourceUnavailable(
                f"NATS at {masked_url(self.url)}, {what}: {error or type(error).__name__}"
            ) from error

    async def receive(self, count_max: int, wait_seconds: float) -> Sequence[Delivery]:
        """Pulls; answers as soon as the first message is there."""
        if self._pulls is None or self._client is None or not self._client.is_connected:
            raise SourceUnavailable(f"NATS at {masked_url(self.url)}: the connection was lost")
        with self._trouble("receiving"):
            messages = await self._pulls.receive(count_max, wait_seconds)
        return [_delivery(message) for message in messages]

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Sends all, then asks the server once whether it has them."""
        await self._answer([(delivery, _ACK) for delivery in deliveries])

    async def give_back(self, delivery: Delivery, delay_seconds: float) -> None:
        """A negative acknowledgement with a delay."""
        delay = f' {{"delay": {int(delay_seconds * 1e9)}}}' if delay_seconds > 0 else ""
        await self._answer([(delivery, _NAK + delay.encode())])

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        """Says that they are in progress, which begins their `ack_wait` again."""
        await self._answer([(delivery, _PROGRESS) for delivery in deliveries])

    async def _answer(self, answers: Sequence[tuple[Delivery, bytes]]) -> None:
        if self._client is None:
            raise SourceUnavailable(f"NATS at {masked_url(self.url)}: the connection was lost")
        with self._trouble("answering"):
            for delivery, word in answers:
                await self._client.publish(delivery.handle, word)
            await self._client.flush(CALL_SECONDS)

    async def bury(self, delivery: Delivery, reason: str) -> None:
        """JetStream has no dead-letter queue; the consumer does not call this."""
        raise SourceUnavailable("JetStream has no dead-letter queue")

    async def lag(self) -> int | None:
        """How many messages the consumer was not sent yet."""
        if self._jetstream is None:
            return None
        with self._trouble("asking for the lag"):
            found = await self._jetstream.consumer_info(self.stream, self.durable)
        return int(found.num_pending or 0)

    async def close(self) -> None:
        """Returns what came and was not received, and disconnects."""
        client, self._client = self._client, None
        if client is None or client.is_closed:
            return
        try:
            for message in [] if self._pulls is None else self._pulls.take_all():
                await client.publish(message.reply, _NAK)
            await client.flush(CALL_SECONDS)
            await client.close()
        except Exception:  # noqa: BLE001  what is not given back comes again when its ack_wait ends
            return


class _Pulls:
    """Open requests for messages, what the server may still send for them, and messages that came.

    A delivered message does not say which request it answers, so that the credit is one number for all.
    """

    def __init__(self, client: Any, stream: str, durable: str) -> None:
        self.client, self._inbox = client, client.new_inbox()
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}"
        self._credit, self._credit_until = 0, 0.0
        self._came: deque[Any] = deque()
        self._something = asyncio.Event()
        self._lost: str | None = None
        self._number = 0

    async def open(self) -> None:
        await self.client.subscribe(f"{self._inbox}.*", cb=self._take)

    async def _take(self, message: Any) -> None:
        headers = message.headers or {}
        status = headers.get("Status")
        if status is None or message.reply:
            self._credit = max(0, self._credit - 1)
            self._came.append(message)
        elif status in _OVER:
            self._credit = max(0, self._credit - int(headers.get("Nats-Pending-Messages", self._credit)))
            if "Deleted" in (told := str(headers.get("Description", ""))):
                self._lost = told
        elif status != "100":  # a heartbeat
            self._lost = f"status {status} {headers.get('Description', '')}"
        self._something.set()

    async def receive(self, count_max: int, wait_seconds: float) -> list[Any]:
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_seconds
        while not self._came:
            if self._lost is not None:
                lost, self._lost = self._lost, None
                raise SourceUnavailable(f"the NATS consumer answered: {lost}")
            now = loop.time()
            if now >= until or not self.client.is_connected:
                break
            await self._ask(count_max, now, until)
            self._something.clear()
            try:
                await asyncio.wait_for(self._something.wait(), until - now)
            except TimeoutError:
                break
        return [self._came.popleft() for _ in range(min(count_max, len(self._came)))]

    async def _ask(self, count_max: int, now: float, until: float) -> None:
        """Asks for what open requests do not cover. The server ends a request a little before `until`."""
        if now > self._credit_until:
            self._credit = 0
        wanted, expires = count_max - self._credit, int((until - now) * 1e9) - 10_000_000
        if wanted <= 0 or expires <= 0:
            return
        self._number += 1
        self._credit += wanted
        self._credit_until = max(self._credit_until, until)
        request = json.dumps({"batch": wanted, "expires": expires}).encode()
        await self.client.publish(self._subject, request, reply=f"{self._inbox}.{self._number}")

    def take_all(self) -> list[Any]:
        came, self._came = list(self._came), deque()
        return came


def _delivery(message: Any) -> Delivery:
    known = message.metadata
    return Delivery(
        message.data,
        f"{known.stream}:{known.sequence.stream}",
        message.headers or {},
        times_delivered=known.num_delivered,
        handle=message.reply,
    )


def _check(durable: str, config: Any) -> None:
    """Refuses consumers that acknowledge early, stop delivering, or leave the body out."""
    policy = str(getattr(config.ack_policy, "value", config.ack_policy))
    if policy != "explicit":
        raise BadSource(
            f"NATS consumer {durable}: ack_policy is {policy}, which acknowledges what was not run;"
            " make it explicit"
        )
    if config.max_deliver is not None and config.max_deliver > 0:
        raise BadSource(
            f"NATS consumer {durable}: after max_deliver={config.max_deliver} deliveries a message stays in"
            " the stream and no consumer gets it; set max_deliver to -1, the ledger counts attempts"
        )
    if config.deliver_subject:
        raise BadSource(f"NATS consumer {durable} is a push consumer; make a durable pull consumer")
    if config.headers_only:
        raise BadSource(f"NATS consumer {durable}: headers_only leaves the events out; switch it off")
