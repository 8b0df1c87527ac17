"""The thread that owns a Kafka client: polls, notes offsets, commits, and answers rebalances.

It polls always, also while nothing may be received: a member that does not poll is thrown out of its group.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from oncegate.clock import SystemClock
from oncegate.errors import BadSource, SourceUnavailable
from oncegate.sources.contract import Delivery, InFlight
from oncegate.sources.kafka_offsets import AssignedOffsets, Handle, Place

if TYPE_CHECKING:
    from confluent_kafka import Consumer as KafkaClient
    from confluent_kafka import KafkaError, Message, TopicPartition

OPEN_SECONDS: Final = 5.0
COMMIT_SECONDS: Final = 0.2
POLL_SECONDS: Final = 0.1
IDLE_POLL_SECONDS: Final = 1.0  # how long nothing is asked for before the partitions are paused
AHEAD_MAX: Final = 10_000  # records of a partition behind one that is not done
CLOSE_SECONDS: Final = 15.0

_NOT_OURS: Final = frozenset(
    {"ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS", "_STATE", "FENCED_INSTANCE_ID",
     "_ASSIGNMENT_LOST", "_NO_OFFSET"}
)  # fmt: skip
_FOR_A_PERSON: Final = {
    "UNKNOWN_TOPIC_OR_PART": "create the topic, or correct the address",
    "_UNKNOWN_TOPIC": "create the topic, or correct the address",
    "_UNKNOWN_PARTITION": "create the topic, or correct the address",
    "TOPIC_AUTHORIZATION_FAILED": "allow this user to read the topic",
    "GROUP_AUTHORIZATION_FAILED": "allow this user to use the group",
    "SASL_AUTHENTICATION_FAILED": "correct the user or the password",
    "INVALID_GROUP_ID": "choose another group=",
    "INCONSISTENT_GROUP_PROTOCOL": "other members of the group assign partitions eagerly; stop them first",
    "FENCED_INSTANCE_ID": "another process uses the same member=",
    "_FATAL": "start the process again",
}

_CONNECTION: Final = frozenset({"_TRANSPORT", "_RESOLVE", "_AUTHENTICATION", "_SSL"})
log = logging.getLogger("oncegate.sources.kafka")


class KafkaPoller:
    """The thread that owns the client. All methods that are not its own may be called from the loop."""

    def __init__(
        self,
        client: KafkaClient,
        topic: str,
        in_flight: InFlight,
        loop: asyncio.AbstractEventLoop,
        drain_seconds: float,
    ) -> None:
        self._client, self._topic, self._in_flight, self._loop = client, topic, in_flight, loop
        self._drain_seconds = drain_seconds
        self._clock = SystemClock()
        self._guard = threading.RLock()
        self._offsets = AssignedOffsets()
        self._came: deque[tuple[Handle, Message]] = deque()
        self._wanted, self._asked_ms = 0, self._clock.ticks_ms()
        self._wake, self._something = threading.Event(), asyncio.Event()
        self._paused: set[Place] = set()
        self._is_down, self._refused, self._why = "", "", ""
        self.failure: Exception | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="oncegate-kafka-source", daemon=True)

    def check(self, bootstrap: str) -> None:
        """Asks the brokers for the topic; raises what the contract says."""
        from confluent_kafka import KafkaException

        try:
            found = self._client.list_topics(self._topic, timeout=OPEN_SECONDS).topics[self._topic]
        except KafkaException as error:
            if not self._thread.is_alive():  # it alone may poll, as records come by that too
                self._client.poll(0)
            raise translated(error.args[0], f"{bootstrap}/{self._topic}", self._why) from None
        if found.error is not None:
            raise translated(found.error, f"{bootstrap}/{self._topic}")
        self._is_down = ""

    def start(self) -> None:
        """Joins the group."""
        if not self._thread.is_alive() and not self._closing.is_set():
            self._client.subscribe(
                [self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
            )
            self._thread.start()

    async def take(self, count: int, wait_seconds: float) -> list[tuple[Handle, Message]]:
        """Takes what has come, or waits for it. Cancelled, it leaves all where it was."""
        with self._guard:
            self._something.clear()
            self._wanted, self._asked_ms = count, self._clock.ticks_ms()
        self._wake.set()
        if not self._came:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._something.wait(), wait_seconds)
        with self._guard:
            self._wanted = 0
            found = [self._came.popleft() for _ in range(min(count, len(self._came)))]
        if not found:
            self._raise_failure()
        return found

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self._is_down:
            raise SourceUnavailable(f"Kafka cannot be reached: {self._is_down}")

    def finish(self, handles: list[Handle]) -> None:
        """Notes records that are on record in the ledger; those of an earlier epoch are left out."""
        with self._guard:
            for handle in handles:
                self._offsets.finish(handle)

    # --- in the thread

    def _run(self) -> None:
        committed_ms = self._clock.ticks_ms()
        try:
            while not self._closing.is_set():
                self._poll()
                if self._clock.ticks_ms() - committed_ms >= COMMIT_SECONDS * 1000:
                    self._commit(None, is_async=True)
                    committed_ms = self._clock.ticks_ms()
        except Exception as error:  # noqa: BLE001  whatever it is, the consumer must hear of it
            self._fail(error)
        finally:
            self._end()

    def _poll(self) -> None:
        """Polls for what is wanted. Without demand the partitions are paused, and polling goes on."""
        with self._guard:
            wanted, idle_ms = self._wanted - len(self._came), self._clock.ticks_ms() - self._asked_ms
        if wanted > 0:
            self._set_paused(set(self._offsets.full(AHEAD_MAX)))
            self._take_in(self._client.poll(POLL_SECONDS), wanted - 1)
            return
        if idle_ms >= IDLE_POLL_SECONDS * 1000:
            self._set_paused(set(self._offsets.places()))
            self._take_in(self._client.poll(0), 0)
        self._wake.wait(POLL_SECONDS)
        self._wake.clear()

    def _take_in(self, message: Message | None, more: int) -> None:
        if message is None:
            return
        found = [message, *(self._client.consume(more, 0) if more > 0 and message.error() is None else ())]
        with self._guard:
            for one in found:
                if one.error() is not None:
                    self._said(one.error())
                    continue
                place = (str(one.topic()), int(one.partition() or 0))
                handle = self._offsets.receive(place, int(one.offset() or 0))
                if handle is not None:
                    self._came.append((handle, one))
        self._tell()

    def _tell(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._something.set)
        except RuntimeError:  # the loop is closed: no task receives any more
            return

    def _said(self, error: KafkaError | None) -> None:
        """An error that came instead of a record."""
        if error is None:
            return
        if error.name() == "_AUTO_OFFSET_RESET":
            self._fail(
                BadSource(
                    f"Kafka has no usable offset of this group ({error.str()}): it is new, or the offset"
                    " has expired; say start='earliest' to repeat records or start='latest' to skip them"
                )
            )
        elif error.fatal() or error.name() in _FOR_A_PERSON:
            self._fail(translated(error, self._topic))
        else:
            log.warning("Kafka topic %s: %s", self._topic, error.str())

    def failed(self, error: KafkaError) -> None:
        """Called by the client about connections, and about itself as a whole."""
        if error.name() == "_ALL_BROKERS_DOWN":
            self._is_down = error.str()
        elif error.name() in _CONNECTION:
            self._why = error.str()
        elif error.fatal():
            self._fail(translated(error, self._topic))

    def _fail(self, error: Exception) -> None:
        self.failure = self.failure or error
        self._tell()

    def _set_paused(self, wanted: set[Place]) -> None:
        """Pauses these partitions and no others; one that was assigned meanwhile is not paused yet."""
        more, fewer = wanted - self._paused, (self._paused - wanted) & set(self._offsets.places())
        self._paused = wanted
        if more:
            self._client.pause(_partitions(list(more)))
        if fewer:
            self._client.resume(_partitions(list(fewer)))

    def _commit(self, places: list[Place] | None, *, is_async: bool) -> None:
        from confluent_kafka import KafkaException

        with self._guard:
            offsets = self._offsets.to_commit(places, is_last=not is_async)
        if not offsets:
            return
        wanted = _partitions(list(offsets), offsets)
        try:
            if is_async:
                self._client.commit(offsets=wanted, asynchronous=True)
            else:
                self.committed(None, self._client.commit(offsets=wanted, asynchronous=False))
        except KafkaException as error:
            self.committed(error.args[0], wanted)

    def committed(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """What came of a commit. One that was refused is sent again for partitions that are still ours.

        During a cooperative rebalance a broker refuses commits of partitions that stay, too.
        """
        with self._guard:
            for one in partitions:
                is_taken = error is None and one.error is None
                self._offsets.answered((one.topic, one.partition), one.offset, is_taken=is_taken)
        if error is None:
            self._refused = ""
            return
        if self._refused != error.name():
            self._refused = error.name()
            owner = (
                "this member may have lost the partitions" if error.name() in _NOT_OURS else "sent again"
            )
            log.warning("Kafka did not take a commit (%s): %s", owner, error.str())

    # --- rebalancing: called by the client inside `poll` and `close`

    def _assigned(self, _: KafkaClient, partitions: list[TopicPartition]) -> None:
        with self._guard:
            self._offsets.assign(_places(partitions))

    def _revoked(self, _: KafkaClient, partitions: list[TopicPartition]) -> None:
        """Lets what runs end and commits it, then lets go; other partitions go on."""
        places = _places(partitions)
        self._drop(places)
        self._drain(places, 0.0 if self._closing.is_set() else self._drain_seconds)
        self._commit(places, is_async=False)
        with self._guard:
            self._offsets.forget(places)
            self._paused -= set(places)

    def _lost(self, _: KafkaClient, partitions: list[TopicPartition]) -> None:
        """They belong to others already: commits nothing, waits for nothing."""
        places = _places(partitions)
        with self._guard:
            self._offsets.forget(places)
            self._paused -= set(places)
        self._drop(places)
        self._drain(places, 0.0)

    def _drop(self, places: list[Place]) -> None:
        """Forgets records that were not handed out."""
        with self._guard:
            self._came = deque(one for one in self._came if one[0].place not in places)

    def _drain(self, places: list[Place], seconds: float) -> None:
        def which(delivery: Delivery) -> bool:
            return isinstance(delivery.handle, Handle) and delivery.handle.place in places

        if self._loop.is_closed():
            return
        draining = asyncio.run_coroutine_threadsafe(self._in_flight.drain(which, seconds), self._loop)
        try:
            draining.result(seconds + 1.0)
        except TimeoutError:
            draining.cancel()

    # --- ending

    def lag(self) -> int | None:
        """What the brokers have beyond what was received, as far as the client knows."""
        from confluent_kafka import KafkaException

        found: list[int] = []
        try:
            for one in self._client.position(_partitions(self._offsets.places())):
                _, high = self._client.get_watermark_offsets(one, cached=True)
                if one.offset >= 0 and high >= 0:
                    found.append(max(0, high - one.offset))
        except (KafkaException, RuntimeError):
            return None
        return sum(found) if found else None

    def close(self) -> None:
        """Ends the thread, which commits and leaves the group."""
        self._closing.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS)
        elif self._thread.ident is None:
            self._end()

    def _end(self) -> None:
        try:
            self._commit(None, is_async=False)
            self._client.close()
        except Exception as error:  # noqa: BLE001  what is not committed comes again and is a replay
            log.warning("Kafka: leaving the group failed: %s", error)


def _places(partitions: Sequence[TopicPartition]) -> list[Place]:
    return [(one.topic, one.partition) for one in partitions]


def _partitions(places: Sequence[Place], offsets: dict[Place, int] | None = None) -> list[TopicPartition]:
    from confluent_kafka import TopicPartition

    if offsets is None:
        return [TopicPartition(*place) for place in places]
    return [TopicPartition(*place, offsets[place]) for place in places]


def translated(error: KafkaError, where: str, why: str = "") -> Exception:
    """An error of the client as the contract has it; `why` is what it last said of a connection."""
    said = f"Kafka at {where}: {error.str()}{why and f' ({why})'}"
    if error.name() in _FOR_A_PERSON:
        return BadSource(f"{said}; {_FOR_A_PERSON[error.name()]}")
    return BadSource(said) if error.fatal() else SourceUnavailable(said)
