"""A Kafka cluster inside this process: the mock of librdkafka, which the wheel of confluent-kafka holds.

It speaks Kafka's protocol on free ports of the loopback interface, so that clients of any process reach it.
It is a mock: it fences no transactions, knows no static members, keeps some 5 MB a partition and nothing
past its own end. What it adds is faults on command.

    with MockKafka(brokers=3) as kafka:
        kafka.create("orders", partitions=4)
        Producer({"bootstrap.servers": kafka.bootstrap})
        kafka.fail(PRODUCE, NOT_ENOUGH_REPLICAS, times=2)     the next two such requests get the error
        kafka.slow(PRODUCE, rtt_ms=700, err=REQUEST_TIMED_OUT)  done, but the answer says otherwise and late
        kafka.take_down(1); kafka.bring_up(1)                 a broker that crashes and keeps its log
        kafka.lead("orders", 0, broker=2)                     another leader
        kafka.coordinate("group", broker=2)                   another coordinator of a consumer group

`records(bootstrap, topic, count)` reads a topic from its beginning, past any consumer group.
The fixture `kafka` of tests/conftest.py is a cluster of one broker for one test.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Final, Self

import pytest

from oncegate.clock import SystemClock

# Api keys of Kafka's protocol.
PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH = 0, 1, 2, 3, 8, 9
FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, INIT_PRODUCER_ID = 10, 11, 12, 13, 14, 22

# Error codes: positive ones are a broker's, negative ones librdkafka's own.
TRANSPORT: Final = -195  # the mock closes the connection
OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC, NOT_LEADER, REQUEST_TIMED_OUT, MESSAGE_TOO_LARGE = 1, 3, 6, 7, 10
COORDINATOR_LOADING, NOT_COORDINATOR, NOT_ENOUGH_REPLICAS = 14, 16, 19
ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS = 22, 25, 27
TOPIC_AUTHORIZATION_FAILED, OUT_OF_ORDER_SEQUENCE = 29, 45

_PRODUCER: Final = 0
_REBALANCE_DELAY_MS: Final = 50  # a new group waits this long for further members; 3 s by default


class MockKafka:
    """A cluster of mock brokers, from start to end."""

    def __init__(self, brokers: int = 1) -> None:
        self._library = _library()
        self._brokers = brokers
        self._client: int | None = None
        self._cluster: int | None = None
        self.bootstrap = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts the brokers."""
        reason = ctypes.create_string_buffer(512)
        settings = ctypes.c_void_p(self._library.rd_kafka_conf_new())
        self._library.rd_kafka_conf_set(settings, b"log_level", b"0", reason, ctypes.c_size_t(512))
        self._client = self._library.rd_kafka_new(_PRODUCER, settings, reason, 512)
        assert self._client, reason.value.decode()
        self._cluster = self._library.rd_kafka_mock_cluster_new(self._client, self._brokers)
        assert self._cluster, "the mock cluster did not start"
        self._call("group_initial_rebalance_delay_ms", ctypes.c_int32(_REBALANCE_DELAY_MS))
        self.bootstrap = self._library.rd_kafka_mock_cluster_bootstraps(self._handle()).decode()

    def stop(self) -> None:
        """Ends the brokers; what they kept is gone."""
        if self._cluster is not None:
            self._library.rd_kafka_mock_cluster_destroy(self._handle())
            self._library.rd_kafka_destroy(ctypes.c_void_p(self._client))
            self._cluster = self._client = None

    def create(self, topic: str, partitions: int = 1) -> None:
        """Creates a topic that every broker replicates."""
        self._check("topic_create", topic.encode(), partitions, self._brokers)

    def fail(self, api: int, *errors: int, times: int = 1) -> None:
        """Answers the next requests of a kind with these errors, each `times` times, without doing them."""
        self.fail_each(api, [error for error in errors for _ in range(times)])

    def fail_each(self, api: int, errors: Iterable[int]) -> None:
        """Answers the next requests of a kind with these errors, one each."""
        listed = list(errors)
        array = (ctypes.c_int * len(listed))(*listed)
        self._call("push_request_errors_array", ctypes.c_int16(api), ctypes.c_size_t(len(listed)), array)

    def forgive(self, api: int) -> None:
        """Takes back what `fail` has asked for and has not come yet."""
        self._call("clear_request_errors", ctypes.c_int16(api))

    def slow(self, api: int, *, rtt_ms: int, err: int = 0, broker: int = 1, times: int = 1) -> None:
        """Delays the answers to the next requests of a kind at one broker."""
        pairs = [ctypes.c_int(value) for _ in range(times) for value in (err, rtt_ms)]
        self._check(
            "broker_push_request_error_rtts",
            ctypes.c_int32(broker),
            ctypes.c_int16(api),
            ctypes.c_size_t(times),
            *pairs,
        )

    def delay(self, rtt_ms: int, broker: int = 1) -> None:
        """Delays every answer of a broker from now on."""
        self._check("broker_set_rtt", ctypes.c_int32(broker), rtt_ms)

    def take_down(self, broker: int = 1) -> None:
        """Ends a broker's connections and its listener; it keeps its log."""
        self._check("broker_set_down", ctypes.c_int32(broker))

    def bring_up(self, broker: int = 1) -> None:
        """Starts a broker that was taken down."""
        self._check("broker_set_up", ctypes.c_int32(broker))

    def lead(self, topic: str, partition: int, broker: int) -> None:
        """Moves a partition's leader."""
        self._check(
            "partition_set_leader", topic.encode(), ctypes.c_int32(partition), ctypes.c_int32(broker)
        )

    def coordinate(self, group: str, broker: int) -> None:
        """Moves a consumer group's coordinator."""
        self._check("coordinator_set", b"group", group.encode(), ctypes.c_int32(broker))

    def break_topic(self, topic: str, error: int) -> None:
        """Answers metadata requests for a topic with an error; 0 mends it."""
        self._call("topic_set_error", topic.encode(), ctypes.c_int(error))

    def _handle(self) -> ctypes.c_void_p:
        assert self._cluster is not None, "the cluster does not run"
        return ctypes.c_void_p(self._cluster)

    def _call(self, name: str, *values: Any) -> Any:
        return getattr(self._library, f"rd_kafka_mock_{name}")(self._handle(), *values)

    def _check(self, name: str, *values: Any) -> None:
        error = self._call(name, *values)
        assert error == 0, f"{name} failed with error {error}"


def records(bootstrap: str, topic: str, count: int, seconds: float = 20.0) -> list[Any]:
    """The first `count` messages of a topic; fails where they have not come within the time."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "tests", "enable.auto.commit": False, "log_level": 0}
    )
    found: list[Any] = []
    try:
        partitions = consumer.list_topics(topic, timeout=seconds).topics[topic].partitions
        consumer.assign([TopicPartition(topic, one, OFFSET_BEGINNING) for one in partitions])
        ends_ms = SystemClock().ticks_ms() + int(seconds * 1000)
        while len(found) < count:
            assert SystemClock().ticks_ms() < ends_ms, f"{len(found)} of {count} records came"
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(message)
    finally:
        consumer.close()
    return found


def size(bootstrap: str, topic: str) -> int:
    """How many records a topic has ever got."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "tests", "log_level": 0})
    try:
        partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        marks = [consumer.get_watermark_offsets(TopicPartition(topic, one), 20) for one in partitions]
        return sum(high for _, high in marks)
    finally:
        consumer.close()


@cache
def _library() -> ctypes.CDLL:
    """The library that the wheel's own module has loaded, with the types of what returns a pointer."""
    found = importlib.util.find_spec("confluent_kafka")
    if found is None or found.origin is None:
        pytest.skip("confluent-kafka was not found: pip install -e '.[dev]'")
    import confluent_kafka  # noqa: F401 (loads the library and what it needs)

    folder = Path(found.origin).parents[1] / "confluent_kafka.libs"
    library = ctypes.CDLL(str(next(folder.glob("librdkafka-*.so*"))))
    for name, kind in (
        ("rd_kafka_conf_new", ctypes.c_void_p),
        ("rd_kafka_new", ctypes.c_void_p),
        ("rd_kafka_mock_cluster_new", ctypes.c_void_p),
        ("rd_kafka_mock_cluster_bootstraps", ctypes.c_char_p),
    ):
        getattr(library, name).restype = kind
    library.rd_kafka_new.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    library.rd_kafka_mock_cluster_new.argtypes = [ctypes.c_void_p, ctypes.c_int]
    return library
