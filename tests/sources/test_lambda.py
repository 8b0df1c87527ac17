"""The function for AWS Lambda: which records it reports, and that it always reports one by one."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from oncegate import ConfigError, Failed, Gate, NotApplied
from oncegate.testing.waiting import DEADLINE_SECONDS, wait_until

SURFACE = "orders"


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    with Gate(f"sqlite:///{tmp_path}/ledger.db") as opened:
        yield opened


class Time:
    """A context with so much time left."""

    def __init__(self, left_ms: int = 60_000) -> None:
        self.left_ms = left_ms

    def get_remaining_time_in_millis(self) -> int:
        return self.left_ms


def record(number: Any, group: str | None = None, body: str | None = None) -> dict[str, Any]:
    system = {"ApproximateReceiveCount": "1"}
    if group is not None:
        system["MessageGroupId"] = group
    return {
        "messageId": f"m{number}",
        "body": json.dumps({"order": number}) if body is None else body,
        "attributes": system,
        "messageAttributes": {"traceparent": {"stringValue": "x", "dataType": "String"}},
        "eventSource": "aws:sqs",
        "eventSourceARN": f"arn:aws:sqs:eu-west-1:1:orders{'.fifo' if group else ''}",
    }


def failed(answer: dict[str, Any]) -> list[str]:
    assert set(answer) == {"batchItemFailures"}
    return [one["itemIdentifier"] for one in answer["batchItemFailures"]]


def test_only_records_that_are_not_settled_are_reported(gate: Gate) -> None:
    """One failure does not make the successes run again (trap 11)."""
    ran: list[int] = []

    @gate.handler(SURFACE, key="{order}")
    async def book(event: Any, once: Any) -> None:
        if event["order"] == 2:
            raise NotApplied("not yet")
        if event["order"] == 3:
            raise Failed("never")
        ran.append(event["order"])

    function = gate.lambda_handler(SURFACE)
    records = [record(1), record(2), record(3), record("x", body="not json"), record(4)]
    assert failed(function({"Records": records}, Time())) == ["m2"]
    assert failed(function({"Records": [record(1), record(2)]}, Time())) == ["m2"]
    assert sorted(ran) == [1, 4]  # records of a standard queue run at once


def test_after_a_failure_the_rest_of_its_group_is_reported_and_not_run(gate: Gate) -> None:
    """Other groups go on (traps 9 and 10)."""
    ran: list[int] = []

    @gate.handler(SURFACE, key="{order}")
    async def book(event: Any, once: Any) -> None:
        if event["order"] == 2:
            raise NotApplied("not yet")
        ran.append(event["order"])

    records = [record(1, "a"), record(2, "a"), record(3, "a"), record(4, "b")]
    assert failed(gate.lambda_handler(SURFACE)({"Records": records}, Time())) == ["m2", "m3"]
    assert sorted(ran) == [1, 4]


def test_what_does_not_end_in_time_is_reported(gate: Gate) -> None:
    """The answer is there before Lambda ends the function."""

    @gate.handler(SURFACE, key="{order}")
    async def book(event: Any, once: Any) -> None:
        if event["order"] == 1:
            await asyncio.Event().wait()

    answer = gate.lambda_handler(SURFACE)({"Records": [record(1), record(2)]}, Time(2_300))
    assert failed(answer) == ["m1"]


@pytest.mark.parametrize("is_async", [False, True])
def test_the_function_does_not_return_while_a_thread_runs(
    gate: Gate, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Lambda would freeze the thread and let it go on in a later call; nothing more is started either."""
    ran, begun, may_end = list[int](), threading.Event(), threading.Event()
    terminal = gate.downstream("terminal", honours_key="7d")

    def book(number: int, idempotency_key: str) -> None:
        begun.set()
        may_end.wait(DEADLINE_SECONDS)
        ran.append(number)

    if is_async:

        @gate.handler(SURFACE, key="{order}")
        async def in_task(event: Any, once: Any) -> None:
            await once.effect(terminal, book, event["order"], name="book")

    else:

        @gate.handler(SURFACE, key="{order}")
        def in_thread(event: Any, once: Any) -> None:
            once.effect(terminal, book, event["order"], name="book")

    function = gate.lambda_handler(SURFACE)
    with ThreadPoolExecutor(1) as lambdas:
        answer = lambdas.submit(function, {"Records": [record(1, "a"), record(2, "a")]}, Time(2_300))
        assert begun.wait(DEADLINE_SECONDS)
        wait_until(lambda: "does not return while" in caplog.text, what="the warning")
        assert not answer.done()
        may_end.set()
        assert failed(answer.result(DEADLINE_SECONDS)) == (["m1", "m2"] if is_async else ["m2"])
    assert ran == [1]


def test_the_function_waits_for_a_thread_that_a_handler_left_by_its_own_timeout(
    gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    """The task is in time, and the thread that it left runs on."""
    ran, may_end = list[int](), threading.Event()
    terminal = gate.downstream("terminal", honours_key="7d")

    def book(time_is_over: Callable[[], Any], idempotency_key: str) -> None:
        time_is_over()
        may_end.wait(DEADLINE_SECONDS)
        ran.append(1)

    @gate.handler(SURFACE, key="{order}")
    async def in_task(event: Any, once: Any) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(None) as limit:
            end = partial(loop.call_soon_threadsafe, limit.reschedule, loop.time())
            await once.effect(terminal, book, end, name="book")

    function = gate.lambda_handler(SURFACE)
    with ThreadPoolExecutor(1) as lambdas:
        answer = lambdas.submit(function, {"Records": [record(1)]}, Time())
        wait_until(lambda: answer.done() or "does not return while" in caplog.text, what="the warning")
        is_early = answer.done()
        may_end.set()
        assert failed(answer.result(DEADLINE_SECONDS)) == ["m1"]
    assert (is_early, ran) == (False, [1])


def test_a_programming_error_reports_what_was_not_run(gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    """Successes before it are not reported."""

    @gate.handler(SURFACE, key="{order}")
    def book(event: Any) -> None:
        raise ConfigError("wrong")

    answer = gate.lambda_handler(SURFACE)({"Records": [record(1), record(2)]}, Time())
    assert failed(answer) == ["m1", "m2"]
    assert any(one.levelname == "CRITICAL" for one in caplog.records)


@pytest.mark.parametrize(
    ("event", "why"),
    [
        ({}, "no Records"),
        ({"Records": [{"eventSource": "aws:sns"}]}, "SQS only"),
        ({"Records": [{"eventSource": "aws:sqs", "messageId": ""}]}, "could not be reported"),
    ],
)
def test_an_event_that_cannot_be_answered_fails_as_a_whole(gate: Gate, event: Any, why: str) -> None:
    """An empty id in the answer would fail the batch without a reason."""

    @gate.handler(SURFACE, key="{order}")
    def book(event: Any) -> None: ...

    with pytest.raises(ConfigError, match=why):
        gate.lambda_handler(SURFACE)(event, Time())
