"""`python -m lab bench sources`: events through each queue, beside its bare client and the gate alone.

In each round the bare client, the gate without a queue, and the source on each store take turns, one right
after the other. Rates are by the clock, costs by this process's own processor time; servers are other
processes. How long one message takes is measured apart, message by message, from sending to acknowledging.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from oncegate import Gate
from oncegate.sources.consumer import Consumer
from oncegate.sources.options import consumption_of
from oncegate.testing.postgres import PostgresServer

if TYPE_CHECKING:
    from lab.bench.queues import BenchQueue

ALL: Final = ("nats", "rabbitmq", "redis", "sqs", "kafka")
CONCURRENCY: Final = 64
AIMS: Final = {"nats": 0.8, "rabbitmq": 0.8, "kafka": 0.7}  # of the gate without a queue
ADDED_MS_AIM: Final = 1.0
SURFACE: Final = "bench"
DEADLINE_SECONDS: Final = 300.0


@dataclass(slots=True)
class SourcesBench:
    """What to measure."""

    kinds: tuple[str, ...] = ALL
    events: int = 4_000
    singles: int = 50
    rounds: int = 3
    postgres: bool = True
    talk: Callable[[str], None] = field(default=lambda line: None)
    _server: PostgresServer | None = None

    def run(self) -> dict[str, Any]:
        """Measures everything and returns one document."""
        from lab.bench.queues import making  # with the servers of the tests

        turns: list[dict[str, Any]] = []
        missing: list[str] = []
        with PostgresServer() if self.postgres else nullcontext() as self._server:
            for kind in self.kinds:
                with making(kind) as make:
                    if make is None:
                        missing.append(kind)
                        continue
                    for number in range(1, self.rounds + 1):
                        self.talk(f"{kind}, round {number} of {self.rounds}")
                        turns += self._round(kind, make)
        return {"concurrency": CONCURRENCY, "turns": turns, "missing": missing, "ratios": ratios(turns)}

    def _round(self, kind: str, make: Callable[[], BenchQueue]) -> Iterator[dict[str, Any]]:
        bodies = [json.dumps({"order": number}).encode() for number in range(self.events)]
        yield {"kind": kind, "who": "bare client", **asyncio.run(self._bare(make, bodies))}
        for store in ("sqlite", "postgres") if self.postgres else ("sqlite",):
            with self._gate(store) as gate:
                yield {"kind": kind, "who": f"gate, {store}", **asyncio.run(_alone(gate, bodies))}
            with self._gate(store) as gate:
                yield {
                    "kind": kind,
                    "who": f"source, {store}",
                    **asyncio.run(self._source(gate, make, bodies)),
                }

    @contextmanager
    def _gate(self, store: str) -> Iterator[Gate]:
        with tempfile.TemporaryDirectory(prefix="oncegate-bench-") as folder:
            address = f"sqlite:///{folder}/ledger.db"
            if store == "postgres":
                assert self._server is not None
                address = self._server.new_database()
            with Gate(address) as gate:

                @gate.handler(SURFACE, key="{order}", redelivery_horizon="14d")
                async def handle(event: Any, once: Any) -> None: ...

                yield gate

    async def _bare(self, make: Callable[[], BenchQueue], bodies: list[bytes]) -> dict[str, float]:
        queue, took = make(), _Took(len(bodies))
        await queue.send(bodies)
        took.begin()
        await asyncio.wait_for(queue.bare(len(bodies), lambda count: None), DEADLINE_SECONDS)
        took.end()
        return took.found | {"single_ms": await self._bare_singles(make())}

    async def _bare_singles(self, queue: BenchQueue) -> float:
        await queue.send([])  # makes the queue
        came = _Arrivals()
        taking = asyncio.create_task(queue.bare(self.singles, came.note))
        return await came.timed(queue, self.singles, taking)

    async def _source(
        self, gate: Gate, make: Callable[[], BenchQueue], bodies: list[bytes]
    ) -> dict[str, float]:
        queue = make()
        await queue.send(bodies)
        one = consumption_of(queue.source(), gate.engine.surface(SURFACE), concurrency=CONCURRENCY)
        consumer = Consumer(gate, one)
        took = _Took(len(bodies))
        took.begin()
        async with consumer:
            await _until(lambda: consumer.counts.acknowledged >= len(bodies))
            took.end()
        return took.found | {"single_ms": await self._source_singles(gate, make())}

    async def _source_singles(self, gate: Gate, queue: BenchQueue) -> float:
        await queue.send([])  # makes the queue
        one = consumption_of(queue.source(), gate.engine.surface(SURFACE), name="singles")
        async with Consumer(gate, one) as consumer:
            await _until(lambda: consumer.status().state == "running")
            came = _Arrivals(lambda: consumer.counts.acknowledged)
            return await came.timed(queue, self.singles)


class _Arrivals:
    """How long single messages take, each sent after the one before has come."""

    def __init__(self, count: Callable[[], int] | None = None) -> None:
        self._came = 0
        self._count = count or (lambda: self._came)

    def note(self, count: int) -> None:
        self._came += count

    async def timed(self, queue: BenchQueue, count: int, taking: asyncio.Task[None] | None = None) -> float:
        """The median, in milliseconds, without the first tenth: connections and caches."""
        taken = []
        for number in range(count):
            began = time.perf_counter()
            await queue.send([json.dumps({"order": 10_000_000 + number}).encode()])
            sent = time.perf_counter()
            await _until(lambda: self._count() > number, 0.0)  # noqa: B023  awaited at once
            taken.append((time.perf_counter() - (began + sent) / 2) * 1000)
        if taking is not None:
            await asyncio.wait_for(taking, DEADLINE_SECONDS)
        return round(median(taken[count // 10 :]), 3)


async def _alone(gate: Gate, bodies: list[bytes]) -> dict[str, float]:
    """The gate at the same concurrency, with no queue before it."""
    left = iter(bodies)

    async def work() -> None:
        for body in left:
            await gate.admit(SURFACE, json.loads(body))

    took = _Took(len(bodies))
    took.begin()
    await asyncio.gather(*(work() for _ in range(CONCURRENCY)))
    took.end()
    return took.found


class _Took:
    """What so many events took, by the clock and by this process's processor time."""

    def __init__(self, count: int) -> None:
        self._count, self._began, self._busy = count, 0.0, 0.0
        self.found: dict[str, float] = {}

    def begin(self) -> None:
        self._began, self._busy = time.perf_counter(), time.process_time()

    def end(self) -> None:
        seconds, busy = time.perf_counter() - self._began, time.process_time() - self._busy
        self.found = {"rate": round(self._count / seconds), "us": round(busy / self._count * 1e6, 1)}


async def _until(condition: Callable[[], bool], every: float = 0.002) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not condition():  # noqa: ASYNC110  counters have no event
            await asyncio.sleep(every)


def ratios(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By kind and store: the source beside the gate alone and the bare client, medians over the rounds."""
    found = []
    for kind in dict.fromkeys(turn["kind"] for turn in turns):
        of = {
            who: [turn for turn in turns if turn["kind"] == kind and turn["who"] == who]
            for who in dict.fromkeys(turn["who"] for turn in turns)
        }
        for store in ("sqlite", "postgres"):
            if not (through := of.get(f"source, {store}")):
                continue
            pairs = list(zip(through, of[f"gate, {store}"], of["bare client"], strict=True))
            found.append(
                {
                    "kind": kind,
                    "store": store,
                    "of_gate": round(median(one["rate"] / gate["rate"] for one, gate, _ in pairs), 3),
                    "of_gate_processor": round(median(gate["us"] / one["us"] for one, gate, _ in pairs), 3),
                    "added_us": round(median(one["us"] - gate["us"] for one, gate, _ in pairs), 1),
                    "bare_us": round(median(bare["us"] for _, _, bare in pairs), 1),
                    "added_ms": round(
                        median(one["single_ms"] - bare["single_ms"] for one, _, bare in pairs), 3
                    ),
                }
            )
    return found


def sources_part(document: dict[str, Any]) -> str:
    """The bench as a part of the page."""
    found = document["sources"]
    head = (
        "queue, ledger",
        "of the gate's rate",
        "by processor time",
        "added, µs",
        "bare client, µs",
        "one, ms more",
    )
    lines = [f"| {' | '.join(head)} |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {one['kind']}, {one['store']} | {one['of_gate']:.2f} | {one['of_gate_processor']:.2f}"
        f" | {one['added_us']:.0f} | {one['bare_us']:.0f} | {one['added_ms']:.1f} |"
        for one in found["ratios"]
    ]
    words = (
        f"{found['concurrency']} at once. `one`: a message alone, until it is acknowledged."
        " SQS is ministack, Kafka is librdkafka's mock: models."
    )
    missing = f" Not installed: {', '.join(found['missing'])}." if found["missing"] else ""
    table = "\n".join(lines)
    return f"### Events through queues, beside the gate without one\n\n{words}{missing}\n\n{table}"
