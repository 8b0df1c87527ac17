"""AWS Lambda behind an SQS queue: each record runs once, and failures are answered one by one.

The event source mapping must have ReportBatchItemFailures: without it Lambda deletes the whole batch when
the function returns. A record is reported unless its event is on record. After a failure in a message group
of a FIFO queue, nothing later of that group runs, and all of it is reported; other groups go on.

A thread cannot be cancelled, and Lambda would freeze it and let it go on in a later call, hours afterwards.
So the function does not return while a plain function runs: Lambda ends the process, and the batch comes
again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from oncegate.errors import ConfigError
from oncegate.gate.facade import GateOnStore
from oncegate.sources.attempts import GateAttempts
from oncegate.sources.contract import Delivery, Traits
from oncegate.sources.decisions import LedgerAway, OnRecord, Poisoned, StopNow
from oncegate.sources.held import HeldDelivery
from oncegate.sources.options import Consumption, consumption_of
from oncegate.sources.reading import Decode, read_delivery

RESERVE_MS: Final = 2_000  # kept for answering before Lambda ends the function
CONCURRENCY: Final = 10
LOOK_SECONDS: Final = 0.02  # how often it is checked whether a thread has ended

log = logging.getLogger("oncegate.sources")


class LambdaHandler:
    """A function for AWS Lambda: call it with an SQS event and the context."""

    def __init__(
        self,
        gate: GateOnStore,
        surface: str,
        *,
        tenant: str | None = None,
        decode: Decode | None = None,
        concurrency: int = CONCURRENCY,
    ) -> None:
        known = gate.engine.surface(surface)
        self._engine, self._is_async, self._clock = gate.engine, known.is_async, gate.engine.clock
        self._one: Consumption = consumption_of(
            _Unused(), known, tenant=tenant, decode=decode, concurrency=concurrency
        )
        self._attempts = GateAttempts(gate, self._one)

    def __call__(self, event: Any, context: Any = None) -> dict[str, Any]:
        """Runs a batch; returns the ids of the records that must come again."""
        deliveries = [_delivery(record) for record in _records(event)]
        left_ms = None if context is None else context.get_remaining_time_in_millis()
        seconds = None if left_ms is None else max(0.0, (left_ms - RESERVE_MS) / 1000)
        done = asyncio.run(self._run(deliveries, seconds))
        failed = [{"itemIdentifier": one.message_id} for one in deliveries if one not in done]
        return {"batchItemFailures": failed}

    async def _run(self, deliveries: Sequence[Delivery], seconds: float | None) -> set[Delivery]:
        batch = _Batch(self._attempts, self._one)
        lanes: dict[Any, list[HeldDelivery]] = {}
        now = self._clock.ticks_ms()
        for delivery in deliveries:
            held = read_delivery(delivery, self._one.decode, None, now)
            lanes.setdefault(delivery.lane if delivery.lane is not None else delivery, []).append(held)
        tasks = [asyncio.create_task(batch.run_lane(lane)) for lane in lanes.values()]
        _, late = await asyncio.wait(tasks, timeout=seconds)
        if late:
            batch.is_over = True
            if self._is_async:
                for task in late:  # a cancelled handler is no outcome: its record comes again
                    task.cancel("the function's time is over")
                await asyncio.wait(late, timeout=1.0)
        await self._wait_for_threads(set() if self._is_async else late)
        return batch.done

    async def _wait_for_threads(self, late: set[asyncio.Task[None]]) -> None:
        """Waits as long as Lambda lets it; a handler's own timeout leaves a thread behind too."""
        if not late and not self._engine.driver.left:
            return
        log.critical(
            "the function of %s does not return while a plain function of its handler runs, which cannot be"
            " cancelled: if Lambda's time ends first, the batch comes again. Give the function more time,"
            " or the handler's calls a timeout of their own",
            self._one.surface,
        )
        if late:
            await asyncio.wait(late)
        while self._engine.driver.left:  # noqa: ASYNC110  threads end without a word to this loop
            await asyncio.sleep(LOOK_SECONDS)


class _Batch:
    def __init__(self, attempts: GateAttempts, one: Consumption) -> None:
        self.done: set[Delivery] = set()
        self._attempts, self._one = attempts, one
        self._slots = asyncio.Semaphore(one.concurrency)
        self.is_over = False

    async def run_lane(self, lane: Sequence[HeldDelivery]) -> None:
        for held in lane:
            async with self._slots:
                if self.is_over or not await self._is_settled(held):
                    return
            self.done.add(held.delivery)

    async def _is_settled(self, held: HeldDelivery) -> bool:
        decided = await self._attempts.attempt(held)
        if isinstance(decided, Poisoned):
            traits = Traits(kind="lambda", server="aws", queue=str(held.delivery.handle))
            decided = await self._attempts.keep_poison(held, decided.reason, traits)
        if isinstance(decided, StopNow):
            log.critical("the function of %s is wrong: %s", self._one.surface, decided.error)
        elif not isinstance(decided, OnRecord):
            log.warning("record %s comes again: %s", held.delivery.message_id, decided)
        self.is_over = self.is_over or isinstance(decided, (StopNow, LedgerAway))
        return isinstance(decided, OnRecord)


def _records(event: Any) -> list[Mapping[str, Any]]:
    records = event.get("Records") if isinstance(event, Mapping) else None
    if not isinstance(records, list) or not records:
        raise ConfigError("this function takes batches of SQS: the event has no Records")
    for record in records:
        if not isinstance(record, Mapping) or record.get("eventSource") != "aws:sqs":
            raise ConfigError("this function takes batches of SQS only; check its event source mapping")
        if not isinstance(record.get("messageId"), str) or not record["messageId"]:
            raise ConfigError("a record has no messageId and could not be reported; the batch comes again")
    return records


def _delivery(record: Mapping[str, Any]) -> Delivery:
    system, arn = record.get("attributes", {}), str(record.get("eventSourceARN", ""))
    headers = {
        name: value["stringValue"]
        for name, value in record.get("messageAttributes", {}).items()
        if isinstance(value, Mapping) and isinstance(value.get("stringValue"), str)
    }
    return Delivery(
        str(record.get("body", "")).encode(),
        record["messageId"],
        headers,
        lane=system.get("MessageGroupId") if arn.endswith(".fifo") else None,
        times_delivered=int(system.get("ApproximateReceiveCount", 1)),
        handle=arn,
    )


class _Unused:
    """Lambda receives and deletes: there is no source to call."""

    name = "lambda"

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"AWS Lambda calls the function; a source's {name!r} is not used")
