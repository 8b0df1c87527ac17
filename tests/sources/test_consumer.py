"""The consumer with a queue in memory: when it acknowledges, returns, extends, waits and stops."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from oncegate import Failed, Gate, NotApplied, StoreUnavailable
from oncegate.errors import BadOutgoing, BadSource, ClaimLost, ConfigError
from oncegate.model.states import State
from oncegate.sources.consumer import Consumer
from oncegate.sources.options import consumption_of
from oncegate.sources.status import SourcePause, change_pause, read_sources
from oncegate.store import EntryFilter
from oncegate.testing.clock import ManualClock
from oncegate.testing.memory_source import MemorySource
from oncegate.testing.waiting import DEADLINE_SECONDS

SURFACE = "orders"


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    with Gate(f"sqlite:///{tmp_path}/ledger.db") as opened:
        opened.engine.store.connect().close()
        yield opened


def event(number: int, **more: Any) -> bytes:
    return json.dumps({"order": number, **more}).encode()


async def until(condition: Callable[[], object], what: str = "the condition") -> None:
    """Waits in the loop for a condition, with a deadline."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + DEADLINE_SECONDS
    while not condition():
        assert loop.time() < deadline, f"{what} has not come true"
        await asyncio.sleep(0.001)


@asynccontextmanager
async def consuming(
    gate: Gate, source: MemorySource, stop_seconds: float = 5.0, **options: Any
) -> AsyncIterator[Consumer]:
    one = consumption_of(source, gate.engine.surface(SURFACE), **options)
    consumer = Consumer(gate, one, stop_seconds=stop_seconds, say_every_seconds=0.02)
    async with consumer:
        yield consumer


def entries(gate: Gate) -> list[Any]:
    with gate.engine.store.look() as session:
        return session.entries(EntryFilter(), None, 100)


def test_a_message_is_acknowledged_when_its_event_is_on_record(gate: Gate) -> None:
    """A repeat is acknowledged too, and its handler does not run again."""
    ran: list[int] = []

    @gate.handler(SURFACE, key="{order}")
    async def book(event: Any, once: Any) -> None:
        ran.append(event["order"])

    async def scene() -> None:
        source = MemorySource()
        for number in (1, 2):
            source.send(event(number))
        async with consuming(gate, source):
            await until(lambda: len(source.acked) == 2)
            source.send(event(1))
            await until(lambda: len(source.acked) == 3)
        assert sorted(ran) == [1, 2]
        assert source.left == 0
        assert source.is_closed

    asyncio.run(scene())


def test_no_message_is_acknowledged_before_the_ledger_has_it(gate: Gate) -> None:
    """While the handler runs, nothing is acknowledged."""
    started, go_on = asyncio.Event(), asyncio.Event()

    @gate.handler(SURFACE, key="{order}")
    async def book(event: Any, once: Any) -> None:
        started.set()
        await go_on.wait()

    async def scene() -> None:
        source = MemorySource()
        source.send(event(1))
        async with consuming(gate, source) as consumer:
            await started.wait()
            assert source.acked == []
            assert consumer.status().in_flight == 1
            go_on.set()
            await until(lambda: source.acked == ["m1"])

    asyncio.run(scene())


def test_no_more_is_received_than_can_be_started(gate: Gate) -> None:
    """With two slots, no receive asks for more than two, and none is asked while both run."""
    running: list[int] = []
    go_on = asyncio.Event()

    @gate.handler(SURFACE, key="{order}")
    async def book(event: Any, once: Any) -> None:
        running.append(event["order"])
        await go_on.wait()

    async def scene() -> None:
        source = MemorySource()
        for number in range(6):
            source.send(event(number))
        async with consuming(gate, source, concurrency=2) as consumer:
            await until(lambda: len(running) == 2)
            assert consumer.status().received == 2
            assert source.asked_for == [2]
            go_on.set()
            await until(lambda: len(source.acked) == 6)
        assert max(source.asked_for) == 2

    asyncio.run(scene())


def test_bytes_held_are_bounded(gate: Gate) -> None:
    """Nothing is received while the deliveries held are larger than the limit."""
    go_on = asyncio.Event()

    @gate.handler(SURFACE, key="{order}")
    async def book(event: Any, once: Any) -> None:
        await go_on.wait()

    async def scene() -> None:
        source = MemorySource(receive_max=1)
        for number in range(3):
            source.send(event(number, text="x" * 1000))
        async with consuming(gate, source, bytes_max=1500) as consumer:
            await until(lambda: consumer.status().in_flight == 2)
            assert len(source.asked_for) == 2
            go_on.set()
            await until(lambda: len(source.acked) == 3)

    asyncio.run(scene())


@pytest.mark.waits
def test_a_retryable_failure_is_given_back_with_the_delay_of_the_ledger(gate: Gate) -> None:
    """The broker's count is not burnt by messages that come at once again."""
    tries: list[int] = []

    @gate.handler(SURFACE, key="{order}", retry_base="7s", retry_jitter=0.0)
    async def book(event: Any, once: Any) -> None:
        tries.append(1)
        raise NotApplied("later")

    async def scene() -> None:
        source = MemorySource()
        source.send(event(1))
        async with consuming(gate, source) as consumer:
            await until(lambda: source.given_back)
        (message, delay), *more = source.given_back
        assert (message, more) == ("m1", [])
        assert 5 < delay <= 7
        assert source.acked == []
        assert "later" in str(consumer.status().last_error)

    asyncio.run(scene())


def test_a_final_failure_is_acknowledged_once_it_is_recorded(gate: Gate) -> None:
    """The ledger has it as failed; the broker need not keep it."""

    @gate.handler(SURFACE, key="{order}")
    async def book(event: Any, once: Any) -> None:
        raise Failed("no such container")

    async def scene() -> None:
        source = MemorySource()
        source.send(event(1))
        async with consuming(gate, source):
            await until(lambda: source.acked == ["m1"])
        assert source.given_back == []

    asyncio.run(scene())


def test_a_busy_key_is_given_back_for_the_rest_of_its_lease(gate: Gate, tmp_path: Path) -> None:
    """It is not acknowledged: the worker that has the key may die (trap 14)."""
    started, go_on = asyncio.Event(), asyncio.Event()

    @gate.handler(SURFACE, key="{order}", lease="20s")
    async def book(event: Any, once: Any) -> None:
        started.set()
        await go_on.wait()

    async def scene() -> None:
        source = MemorySource()
        source.send(event(1))
        async with consuming(gate, source):
            await started.wait()
            source.send(event(1))
            await until(lambda: source.given_back)
            assert source.acked == []
            assert source.given_back[0][0] == "m2"
            assert 10 < source.given_back[0][1] <= 20
            go_on.set()
            await until(lambda: source.acked == ["m1"])

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"not json", "not JSON"),
        (b'{"order": 1, "order": 2}', "same name twice"),
        (b"\xff\xfe", "not UTF-8"),
        (b'{"order": "' + b"x" * 1_100_000 + b'"}', "more than 1048576"),
    ],
)
def test_poison_is_quarantined_with_its_bytes_and_acknowledged(gate: Gate, body: bytes, why: str) -> None:
    """A person finds the bytes in quarantine; the queue goes on (trap 24)."""
    ran: list[int] = []

    @gate.handler(SURFACE, key="{order}")
    async def book(event: Any, once: Any) -> None:
        ran.append(event["order"])

    async def scene() -> None:
        source = MemorySource()
        source.send(body)
        source.send(body)
        source.send(event(7))
        async with consuming(gate, source) as consumer:
            await until(lambda: len(source.acked) == 3)
            assert consumer.status().poison == 2
        assert source.buried == []

    asyncio.run(scene())
    assert ran == [7]
    (kept,) = [entry for entry in entries(gate) if entry.state is State.QUARANTINED]
    assert why in str(kept.reason)
    with gate.engine.store.look() as session:
        detail: Any = session.detail(kept.entry_id)
    assert base64.b64decode(json.loads(detail.body)["oncegate_raw"]["base64"]) == body


def test_poison_is_left_to_the_brokers_dead_letters_by_setting(gate: Gate) -> None:
    """Then it is not in quarantine, and it is not acknowledged besides."""

    @gate.handler(SURFACE, key="{order}")
    async def book(event: Any, once: Any) -> None: ...

    async def scene() -> None:
        source = MemorySource()
        source.send(b"not json")
        async with consuming(gate, source, poison="dead-letter"):
            await until(lambda: source.buried)
        assert source.acked == []
        assert source.given_back == []

    asyncio.run(scene())
    assert entries(gate) == []


def test_a_message_too_large_to_keep_is_not_acknowledged(gate: Gate) -> None:
    """It is given back with one line that says what to do; others go on."""

    @gate.handler(SURFACE, key="{order}")
    async def book(event: Any, once: Any) -> None: ...

    async def scene() -> None:
        source = MemorySource()
        source.send(b"x" * 10_000_000)
        source.send(event(1))
        async with consuming(gate, source) as consumer:
            await until(lambda: source.acked == ["m2"] and source.given_back)
            told = str(consumer.status().last_error)
        assert source.given_back[0] == ("m1", 300.0)
        assert "10000000 bytes" in told
        assert "dead-letter" in told

    asyncio.run(scene())


def test_a_ledger_that_is_away_pauses_the_consumer_not_the_message(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is received meanwhile, nothing acknowledged; afterwards it goes on by itself."""
    is_away = True

    @gate.handler(SURFACE, key="{order}")
    async def book(event: Any, once: Any) -> None: ...

    admit, ask = gate.admit, gate.engine.submit

    async def admit_or_not(*arguments: Any, **options: Any) -> Any:
        if is_away:
            raise StoreUnavailable("no route to the ledger")
        return await admit(*arguments, **options)

    async def ask_or_not(operation: Any) -> Any:
        if is_away:
            raise StoreUnavailable("no route to the ledger")
        return await ask(operation)

    monkeypatch.setattr(gate, "admit", admit_or_not)
    monkeypatch.setattr(gate.engine, "submit", ask_or_not)
    monkeypatch.setattr("oncegate.sources.consumer.LOOK_SECONDS", 0.01)
    monkeypatch.setattr("oncegate.sources.settling.LEDGER_SECONDS", 0.0)

    async def scene() -> None:
        nonlocal is_away
        source = MemorySource()
        source.send(event(1))
        async with consuming(gate, source) as consumer:
            await until(lambda: consumer.status().state == "ledger away")
            received = consumer.status().received
            for _ in range(20):
                await asyncio.sleep(0)
            assert consumer.status().received == received
            assert source.acked == []
            is_away = False
            await until(lambda: source.acked == ["m1"])
            assert consumer.status().state == "running"

    asyncio.run(scene())


def test_a_ledger_that_answers_reads_and_refuses_writes_is_tried_less_and_less_often(gate: Gate) -> None:
    """Each try costs a delivery of the broker; a ledger that stays well begins at the first wait again."""

    @gate.handler(SURFACE, key="{order}")
    async def book(event: Any, once: Any) -> None: ...

    async def scene() -> None:
        async with consuming(gate, MemorySource()) as consumer:
            clock = ManualClock()
            consumer._clock = clock
            waits = []
            for pause in (0, 0, 0, 120):
                clock.advance(pause)
                consumer._note_ledger_away("full")
                waited = 0
                while not await consumer._ledger_answers():
                    clock.advance(1)
                    waited += 1
                waits.append(waited)
            assert waits == [1, 2, 4, 1]

    asyncio.run(scene())


def test_a_stopped_consumer_calls_no_handler_again(gate: Gate) -> None:
    """Also where the consumer itself waits and retries, to keep an order."""
    calls = 0

    @gate.handler(SURFACE, key="{order}")
    async def book(event: Any, once: Any) -> None:
        nonlocal calls
        calls += 1
        raise ConfigError("the key template changed")

    async def scene() -> None:
        source = MemorySource()
        source.send(event(1))
        async with consuming(gate, source, order_by="{order}") as consumer:
            await until(lambda: consumer.status().state == "stopped")
            await until(lambda: not consumer._running)
            assert calls == 1
            assert source.acked == []

    asyncio.run(scene())


def test_a_programming_error_stops_the_consumer_loudly(
    gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    """The message is given back, nothing more is received, and the log has a critical record."""

    @gate.handler(SURFACE, key="{order}")
    async def book(event: Any, once: Any) -> None:
        raise ConfigError("the key template changed")

    async def scene() -> None:
        source = MemorySource()
        source.send(event(1))
        async with consuming(gate, source) as consumer:
            await until(lambda: source.given_back)
            assert consumer.status().state == "stopped"
            source.send(event(2))
            await until(consumer._tasks["receive"].done)
        assert source.acked == []
        assert consumer.status().given_back == consumer.status().received

    asyncio.run(scene())
    (record,) = [one for one in caplog.records if one.levelname == "CRITICAL"]
    assert "has stopped: the key template changed" in record.getMessage()


def test_an_event_that_wants_to_send_what_cannot_be_sent_stops_nothing(gate: Gate) -> None:
    """That is about one event, not about the program."""
    ran: list[int] = []

    @gate.handler(SURFACE, key="{order}", attempts_max=1)
    async def book(event: Any, once: Any) -> None:
        if event["order"] == 1:
            raise BadOutgoing("its payload cannot be sent")
        ran.append(event["order"])

    async def scene() -> None:
        source = MemorySource()
        source.send(event(1))
        source.send(event(2))
        async with consuming(gate, source) as consumer:
            await until(lambda: len(source.acked) == 2)
            assert consumer.failure is None

    asyncio.run(scene())
    assert ran == [2]


def test_a_lost_claim_is_neither_acknowledged_nor_given_back(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old delivery's answer would count for the new one (trap 34)."""

    @gate.handler(SURFACE, key="{order}")
    async def book(event: Any, once: Any) -> None:
        raise ClaimLost("another worker has it")

    async def scene() -> None:
        source = MemorySource()
        source.send(event(1))
        async with consuming(gate, source) as consumer:
            await until(lambda: consumer.status().let_go == 1)
            assert consumer.status().in_flight == 0
        assert (source.acked, source.given_back) == ([], [])
        assert source.left == 1

    asyncio.run(scene())


def test_a_lost_claim_is_given_back_where_no_lease_would_bring_it_again(gate: Gate) -> None:
    """RabbitMQ keeps an unanswered message until the connection ends."""

    @gate.handler(SURFACE, key="{order}")
    async def book(event: Any, once: Any) -> None:
        raise ClaimLost("another worker has it")

    async def scene() -> None:
        source = MemorySource(lease_seconds=None)
        source.send(event(1))
        async with consuming(gate, source):
            await until(lambda: source.given_back)
        assert source.acked == []

    asyncio.run(scene())


def test_messages_are_extended_while_they_are_held(gate: Gate) -> None:
    """From receipt on, also those that wait in their lane (traps 1 and 2)."""
    go_on = asyncio.Event()

    @gate.handler(SURFACE, key="{order}")
    async def book(event: Any, once: Any) -> None:
        await go_on.wait()

    async def scene() -> None:
        source = MemorySource(lease_seconds=0.6)
        for number in (1, 2):
            source.send(event(number), lane="one")
        async with consuming(gate, source):
            await until(lambda: source.extended.count("m1") >= 2 and source.extended.count("m2") >= 2)
            go_on.set()
            await until(lambda: source.acked == ["m1", "m2"])

    asyncio.run(scene())


def test_a_handler_that_hangs_is_not_extended_for_ever(gate: Gate) -> None:
    """Past its time limit the broker may deliver again; the ledger decides then (trap 3)."""
    go_on = asyncio.Event()

    @gate.handler(SURFACE, key="{order}", time_limit="100ms", lease="100ms")
    async def book(event: Any, once: Any) -> None:
        await go_on.wait()

    async def scene() -> None:
        source = MemorySource(lease_seconds=0.15)
        source.send(event(1))
        async with consuming(gate, source) as consumer:
            await until(lambda: consumer.status().let_go == 1)
            so_far = len(source.extended)
            await asyncio.sleep(0.15)
            assert len(source.extended) == so_far
            go_on.set()

    asyncio.run(scene())


def test_a_message_that_expired_before_its_start_is_dropped(gate: Gate) -> None:
    """The broker has delivered it again: another delivery of it is answered (trap 2)."""
    ran: list[int] = []
    go_on = asyncio.Event()

    @gate.handler(SURFACE, key="{order}")
    async def book(event: Any, once: Any) -> None:
        ran.append(event["order"])
        await go_on.wait()

    async def scene() -> None:
        source = MemorySource(lease_seconds=0.1)
        source.fails.add("extend")
        for number in (1, 2):
            source.send(event(number), lane="one")
        async with consuming(gate, source, held_max=16) as consumer:
            await until(lambda: ran == [1])
            await asyncio.sleep(0.15)
            go_on.set()
            await until(lambda: consumer.status().let_go == 1)
        assert ran == [1]
        assert source.acked == ["m1"]
        assert source.left == 1

    asyncio.run(scene())


def test_a_lane_runs_in_order_and_lanes_do_not_wait_for_each_other(gate: Gate) -> None:
    """One key's slow handler delays no other key."""
    ran: list[tuple[str, int]] = []
    go_on = asyncio.Event()

    @gate.handler(SURFACE, key="{lane}:{order}")
    async def book(event: Any, once: Any) -> None:
        if event["lane"] == "slow":
            await go_on.wait()
        ran.append((event["lane"], event["order"]))

    async def scene() -> None:
        source = MemorySource()
        for number in range(5):
            source.send(event(number, lane="slow"))
            source.send(event(number, lane="quick"))
        async with consuming(gate, source, order_by="{lane}", concurrency=2):
            await until(lambda: len(ran) == 5)
            assert ran == [("quick", number) for number in range(5)]
            go_on.set()
            await until(lambda: len(source.acked) == 10)
        assert ran[5:] == [("slow", number) for number in range(5)]

    asyncio.run(scene())


def test_nothing_of_a_lane_passes_a_message_that_failed(gate: Gate) -> None:
    """Where the broker keeps no order, the consumer waits and tries the same message again."""
    ran: list[int] = []
    failures = [1]

    @gate.handler(SURFACE, key="{order}")
    async def book(event: Any, once: Any) -> None:
        if event["order"] == 1 and failures:
            failures.pop()
            error = NotApplied("not yet")
            error.retry_after_seconds = 0.01
            raise error
        ran.append(event["order"])

    async def scene() -> None:
        source = MemorySource()
        for number in (1, 2, 3):
            source.send(event(number), lane="one")
        async with consuming(gate, source):
            await until(lambda: len(source.acked) == 3)
        assert source.given_back == []

    asyncio.run(scene())
    assert ran == [1, 2, 3]


@pytest.mark.slow
def test_nothing_of_a_lane_passes_a_message_whose_claim_was_lost(gate: Gate) -> None:
    """The lane waits for the outcome of the worker that has the key."""
    ran: list[int] = []
    lost = [1, 1]

    @gate.handler(SURFACE, key="{order}")
    async def book(event: Any, once: Any) -> None:
        if event["order"] == 1 and lost:
            lost.pop()
            raise ClaimLost("another worker has it")
        ran.append(event["order"])

    async def scene() -> None:
        source = MemorySource(lease_seconds=30.0)
        for number in (1, 2, 3):
            source.send(event(number), lane="one")
        async with consuming(gate, source) as consumer:
            await until(lambda: len(source.acked) == 3)
            assert consumer.status().let_go == 1
        assert source.given_back == []

    asyncio.run(scene())
    assert ran == [1, 2, 3]


def test_a_group_that_the_broker_blocks_is_given_back_whole(gate: Gate) -> None:
    """Nothing later of the group runs or is acknowledged; other groups go on (traps 9 and 10)."""
    ran: list[int] = []
    failures = [1]

    @gate.handler(SURFACE, key="{order}")
    async def book(event: Any, once: Any) -> None:
        if event["order"] == 2 and failures:
            failures.pop()
            raise NotApplied("not yet")
        ran.append(event["order"])

    async def scene() -> None:
        source = MemorySource(blocks_lanes=True)
        for number in (1, 2, 3):
            source.send(event(number), lane="one")
        source.send(event(10), lane="two")
        async with consuming(gate, source):
            await until(lambda: len(source.given_back) == 2 and 10 in ran)
            assert sorted(ran) == [1, 10]
            assert [one for one, _ in source.given_back] == ["m2", "m3"]
            await until(lambda: len(source.acked) == 4)

    asyncio.run(scene())
    assert [number for number in ran if number < 10] == [1, 2, 3]


def test_a_source_that_cannot_give_back_is_tried_again_in_place(gate: Gate) -> None:
    """A failure keeps its place until it is settled; nothing is acknowledged in its stead (trap 17)."""
    tries: list[int] = []

    @gate.handler(SURFACE, key="{order}")
    async def book(event: Any, once: Any) -> None:
        tries.append(1)
        if len(tries) < 3:
            error = NotApplied("not yet")
            error.retry_after_seconds = 0.01
            raise error

    async def scene() -> None:
        source = MemorySource(delay_max_seconds=None)
        source.send(event(1))
        async with consuming(gate, source):
            await until(lambda: source.acked == ["m1"])
        assert source.given_back == []
        assert source.asked_for

    asyncio.run(scene())
    assert len(tries) == 3


def test_stopping_waits_for_handlers_and_gives_back_what_was_not_started(gate: Gate) -> None:
    """In the order of trap 8: no new receive, give back, drain, flush, close."""
    started, go_on = asyncio.Event(), asyncio.Event()

    @gate.handler(SURFACE, key="{order}")
    async def book(event: Any, once: Any) -> None:
        started.set()
        await go_on.wait()

    async def scene() -> None:
        source = MemorySource()
        for number in (1, 2):
            source.send(event(number), lane="one")
        async with consuming(gate, source) as consumer:
            await started.wait()
            await until(lambda: consumer.status().in_flight == 2)
            stopping = asyncio.create_task(consumer.stop(30.0))
            await until(lambda: source.given_back == [("m2", 0.0)])
            assert source.acked == []
            assert not source.is_closed
            go_on.set()
            await stopping
        assert source.acked == ["m1"]
        assert source.is_closed

    asyncio.run(scene())


def test_a_handler_that_outlasts_the_drain_is_cancelled_and_not_acknowledged(gate: Gate) -> None:
    """A cancellation is no outcome: the message comes again (trap 26)."""
    started = asyncio.Event()

    @gate.handler(SURFACE, key="{order}")
    async def book(event: Any, once: Any) -> None:
        started.set()
        await asyncio.Event().wait()

    async def scene() -> None:
        source = MemorySource()
        source.send(event(1))
        async with consuming(gate, source, stop_seconds=0.2):
            await started.wait()
        assert source.acked == []
        assert source.left == 1

    asyncio.run(scene())


def test_messages_that_arrive_while_stopping_are_given_back(gate: Gate) -> None:
    """A long poll that answers after SIGTERM leaves nothing hidden (trap 8)."""
    ran: list[int] = []

    @gate.handler(SURFACE, key="{order}")
    async def book(event: Any, once: Any) -> None:
        ran.append(1)

    async def scene() -> None:
        source = MemorySource(poll_seconds=30.0)
        async with consuming(gate, source, stop_seconds=30.0) as consumer:
            await until(lambda: source.asked_for)
            stopping = asyncio.create_task(consumer.stop(30.0))
            await asyncio.sleep(0)
            source.send(event(1))
            await stopping
        assert source.given_back == [("m1", 0.0)]
        assert ran == []

    asyncio.run(scene())


def test_a_broker_that_is_away_is_tried_again_with_growing_waits(gate: Gate) -> None:
    """The source is opened again; messages are not lost."""

    @gate.handler(SURFACE, key="{order}")
    async def book(event: Any, once: Any) -> None: ...

    async def scene() -> None:
        source = MemorySource()
        source.fails = {"receive"}
        source.send(event(1))
        async with consuming(gate, source) as consumer:
            await until(lambda: consumer.status().state == "unreachable")
            source.fails = set()
            await until(lambda: source.acked == ["m1"])
            assert source.opened >= 2
            assert consumer.status().state == "running"

    asyncio.run(scene())


def test_a_lost_acknowledgement_is_a_replay_when_the_message_comes_again(gate: Gate) -> None:
    """The handler does not run twice (trap 4)."""
    ran: list[int] = []

    @gate.handler(SURFACE, key="{order}")
    async def book(event: Any, once: Any) -> None:
        ran.append(1)

    async def scene() -> None:
        source = MemorySource()
        source.fails = {"ack"}
        source.send(event(1))
        async with consuming(gate, source) as consumer:
            await until(lambda: consumer.status().acks_lost == 1)
            source.fails = set()
            source.deliver_again()
            await until(lambda: source.acked == ["m1"])
            assert consumer.status().redelivered == 1

    asyncio.run(scene())
    assert ran == [1]


def test_an_operator_pauses_and_resumes_a_source_through_the_ledger(gate: Gate) -> None:
    """Whatever process consumes it; the ledger also says how it stands."""

    @gate.handler(SURFACE, key="{order}")
    async def book(event: Any, once: Any) -> None: ...

    def pause(wanted: SourcePause | None) -> bool:
        return change_pause(gate.engine.commits, "memory", wanted, actor="ann", at_ms=1)

    async def scene() -> None:
        source = MemorySource()
        async with consuming(gate, source) as consumer:
            assert await asyncio.to_thread(pause, SourcePause("ann", "a bad deploy", 1))
            assert not await asyncio.to_thread(pause, SourcePause("ann", "again", 1))
            await until(lambda: consumer.status().state == "paused")
            source.send(event(1))
            await asyncio.sleep(0.05)
            assert source.acked == []
            assert await asyncio.to_thread(pause, None)
            await until(lambda: source.acked == ["m1"])
            await until(lambda: _seen(gate).acknowledged == 1)
        assert _seen(gate).state == "ended"

    asyncio.run(scene())


def _seen(gate: Gate) -> Any:
    with gate.engine.store.look() as session:
        (seen,) = read_sources(session)
    return seen.status


def test_a_partition_that_leaves_is_drained_alone(gate: Gate) -> None:
    """What runs of it may finish, what was not started is forgotten, others go on (trap 18)."""
    started, go_on = asyncio.Event(), asyncio.Event()
    ran: list[int] = []

    @gate.handler(SURFACE, key="{order}")
    async def book(event: Any, once: Any) -> None:
        ran.append(event["order"])
        if event["order"] == 1:
            started.set()
            await go_on.wait()

    async def scene() -> None:
        source = MemorySource(delay_max_seconds=None)
        for number, lane in ((1, "a"), (2, "a"), (3, "b")):
            source.send(event(number), lane=lane)
        async with consuming(gate, source):
            await started.wait()
            draining = asyncio.create_task(
                source.in_flight.drain(lambda one: one.lane == "a", DEADLINE_SECONDS)
            )
            await until(lambda: 3 in ran)
            assert not draining.done()
            go_on.set()
            await draining
            assert source.acked.count("m1") == 1
        assert 2 not in ran

    asyncio.run(scene())


def test_a_decoder_takes_the_event_out_of_its_envelope(gate: Gate) -> None:
    """What it raises makes the message poison."""
    ran: list[int] = []

    @gate.handler(SURFACE, key="{order}")
    async def book(event: Any, once: Any) -> None:
        ran.append(event["order"])

    def unwrap(delivery: Any) -> Any:
        return json.loads(delivery.body)["Message"]

    async def scene() -> None:
        source = MemorySource()
        source.send(json.dumps({"Message": {"order": 4}}).encode())
        source.send(b"{}")
        async with consuming(gate, source, decode=unwrap) as consumer:
            await until(lambda: len(source.acked) == 2)
            assert consumer.status().poison == 1

    asyncio.run(scene())
    assert ran == [4]


def test_a_surface_that_forgets_sooner_than_its_queue_is_refused(gate: Gate) -> None:
    """The sum is spelled out."""

    @gate.handler(SURFACE, key="{order}", retention="16d")
    async def book(event: Any, once: Any) -> None: ...

    async def scene() -> None:
        kept = {"queue": 4 * 86_400.0, "dead-letter queue": 14 * 86_400.0}
        source = MemorySource(retention_seconds=kept)
        async with consuming(gate, source) as consumer:
            await until(lambda: consumer.failure is not None)
        assert isinstance(consumer.failure, BadSource)
        assert "queue 4d + dead-letter queue 14d = 18d" in str(consumer.failure)
        assert "16d" in str(consumer.failure)

    asyncio.run(scene())


def test_a_surface_that_refuses_conflicts_cannot_be_consumed(gate: Gate) -> None:
    """There is no caller to refuse, and the other content would be lost."""

    @gate.handler(SURFACE, key="{order}", on_conflict="refuse")
    async def book(event: Any, once: Any) -> None: ...

    with pytest.raises(ConfigError, match="on_conflict='quarantine'"):
        consumption_of(MemorySource(), gate.engine.surface(SURFACE))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": 8, "held_max": 4}, "held_max"),
        ({"poison": "drop"}, "poison"),
        ({"name": " "}, "source name"),
    ],
)
def test_options_that_cannot_be_used_are_refused(gate: Gate, options: dict[str, Any], why: str) -> None:
    """With the name of the option."""

    @gate.handler(SURFACE, key="{order}")
    async def book(event: Any, once: Any) -> None: ...

    with pytest.raises(ConfigError, match=why):
        consumption_of(MemorySource(), gate.engine.surface(SURFACE), **options)


def test_run_once_consumes_what_is_there_and_ends(gate: Gate) -> None:
    """For `oncegate worker --once`."""

    @gate.handler(SURFACE, key="{order}")
    async def book(event: Any, once: Any) -> None: ...

    async def scene() -> None:
        source = MemorySource()
        for number in range(40):
            source.send(event(number))
        one = consumption_of(source, gate.engine.surface(SURFACE))
        status = await Consumer(gate, one).run_once()
        assert status.acknowledged == 40
        assert source.is_closed

    asyncio.run(scene())
