"""Flows that a server begins at once and finishes in a task: cancelled, closed, never mixed up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from oncegate import AsyncOnce, Failed
from oncegate.errors import StoreUnavailable
from oncegate.gate.admission import Admission, Verdict
from oncegate.gate.driver.drivers import WaitingFlow
from oncegate.gate.runtime.tracing import current_claim
from oncegate.gate.surface import record
from oncegate.model.states import State
from oncegate.store import EntryFilter
from oncegate.testing.waiting import DEADLINE_SECONDS
from oncegate.wiring import Gate


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    with Gate(f"sqlite:///{tmp_path}/ledger.db") as opened:
        opened.handler("plain", key="{id}")(record)
        yield opened


def begin(gate: Gate, surface: str, event: Any) -> asyncio.Task[Admission]:
    """A task that finishes what was begun for a new event."""
    begun = gate.engine.begin(surface, event)
    assert isinstance(begun, WaitingFlow)
    return asyncio.get_running_loop().create_task(begun.finish())


def test_each_begun_event_is_settled_in_its_task_and_only_there_its_claim_is_known(gate: Gate) -> None:
    seen: list[bool] = []

    @gate.handler("busy", key="{id}")
    async def handler(event: Any, once: Any) -> str:
        await asyncio.sleep(0)
        claim = current_claim.get()
        seen.append(claim is not None and claim.key.text == once.key)
        return str(event["id"])

    async def scene() -> list[Admission]:
        found = await asyncio.gather(*(begin(gate, "busy", {"id": str(number)}) for number in range(20)))
        assert current_claim.get() is None
        return found

    found = asyncio.run(scene())

    assert [one.value for one in found] == [str(number) for number in range(20)]
    assert seen == [True] * 20


@pytest.mark.parametrize("surface", ["plain", "called"])
def test_what_one_begun_flow_sets_no_other_sees(gate: Gate, surface: str) -> None:
    """Each has one context of its own from its beginning to its end, as spans need it."""
    own: ContextVar[str] = ContextVar("own", default="nothing")

    @gate.handler("called", key="{id}")
    async def handler(event: Any, once: Any) -> None:
        await asyncio.sleep(0)

    def wrap(flow: Any) -> Any:
        assert own.get() == "nothing"
        token = own.set("set by a flow")
        answer = yield from flow
        own.reset(token)  # raises in another context
        return answer

    gate.engine.wrap_flows(wrap)

    async def scene() -> None:
        await asyncio.gather(*(begin(gate, surface, {"id": str(number)}) for number in range(5)))
        assert own.get() == "nothing"

    asyncio.run(scene())


@pytest.mark.parametrize(("surface", "state"), [("plain", State.COMMITTED), ("called", State.RETRYABLE)])
def test_a_cancelled_begun_flow_gives_back_what_it_has_not_begun(
    gate: Gate, surface: str, state: State
) -> None:
    """What was asked of the ledger is done: an event is on record, or may be run by the next arrival."""

    @gate.handler("called", key="{id}")
    async def handler(event: Any, once: Any) -> None:
        assert event["id"] == "b"

    gate.check_surfaces()

    async def scene() -> None:
        # A second one beside it, so that neither is committed before both have asked.
        first, second = (begin(gate, surface, {"id": name}) for name in "ab")
        await asyncio.sleep(0)  # both have asked the ledger by then
        first.cancel("the server ends")
        async with asyncio.timeout(DEADLINE_SECONDS):
            await second
            with pytest.raises(asyncio.CancelledError):
                await first

    asyncio.run(scene())

    with gate.engine.store.look() as session:
        entries = session.entries(EntryFilter(), None, 10)
    assert {entry.label: entry.state for entry in entries} == {"a": state, "b": State.COMMITTED}


def test_a_closed_gate_is_an_error_of_the_task(gate: Gate) -> None:
    async def scene() -> None:
        begun = gate.engine.begin("plain", {"id": "a"})
        assert isinstance(begun, WaitingFlow)
        gate.engine.commits.close()
        await begun.finish()

    with pytest.raises(StoreUnavailable):
        asyncio.run(scene())


def test_a_flow_that_is_left_has_asked_nothing_of_the_ledger(gate: Gate) -> None:
    async def scene() -> Admission:
        begun = gate.engine.begin("plain", {"id": "a"})
        assert isinstance(begun, WaitingFlow)
        begun.close()
        return await gate.admit("plain", {"id": "a"})

    assert asyncio.run(scene()).verdict is Verdict.RUN


def test_renewing_a_thread_takes_no_keyword_and_fails_no_call(
    gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    """A call's keywords are its own; what fails after it is logged, and the call has its outcome."""
    renewed: list[str] = []
    ect = gate.downstream("ect", honours_key="7d")

    def renew() -> None:
        renewed.append("renewed")
        if len(renewed) % 2 == 0:
            raise OSError("the connection is gone")

    def claim(*, function: str, renew: str, idempotency_key: str) -> str:
        return function + renew

    def refuse(idempotency_key: str) -> None:
        raise Failed("no crane")

    gate.engine.driver.renew_thread = renew

    @gate.handler("bookings", key="{id}")
    async def book(event: dict[str, str], once: AsyncOnce) -> str:
        if event["id"] == "b":
            await once.effect(ect, refuse)
        return await once.effect(ect, claim, function="a", renew="b")

    assert asyncio.run(gate.admit("bookings", {"id": "a"})).value == "ab"
    with pytest.raises(Failed, match="no crane"):
        asyncio.run(gate.admit("bookings", {"id": "b"}))
    assert len(renewed) == 4
    assert caplog.text.count("OSError('the connection is gone')") == 2
