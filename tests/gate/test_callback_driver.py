"""Flows that go on without a task: told by the ledger, cancelled, handed over to a task, never mixed up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from oncegate.errors import StoreUnavailable
from oncegate.gate.admission import Admission, Verdict
from oncegate.gate.driver.callback_driver import ReadyFlows, Walk, record
from oncegate.gate.driver.drivers import WaitingFlow
from oncegate.gate.runtime.tracing import current_claim
from oncegate.model.states import State
from oncegate.store import EntryFilter
from oncegate.testing.waiting import DEADLINE_SECONDS
from oncegate.wiring import Gate


class Ends(list[tuple[Any, BaseException | None]]):
    """The ends that one walk came to: one, if all is well."""

    def __init__(self) -> None:
        super().__init__()
        self._came = asyncio.Event()

    def add(self, value: Any, error: BaseException | None) -> None:
        self.append((value, error))
        self._came.set()

    async def come(self) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await self._came.wait()


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    with Gate(f"sqlite:///{tmp_path}/ledger.db") as opened:
        opened.handler("plain", key="{id}")(record)
        yield opened


def begin(gate: Gate, surface: str, event: Any, turns: ReadyFlows) -> tuple[Walk[Admission], Ends]:
    """A walk for a new event, and the list that gets its end."""
    begun, ends = gate.engine.begin(surface, event), Ends()
    assert isinstance(begun, WaitingFlow)
    return begun.walk(turns, ends.add), ends


async def all_come(found: list[Ends]) -> None:
    for ends in found:
        await ends.come()


def in_loop(scene: Callable[[ReadyFlows], Any]) -> Any:
    async def run() -> Any:
        return await scene(ReadyFlows(asyncio.get_running_loop()))

    return asyncio.run(run())


def state_of(gate: Gate, admission: Admission) -> State:
    with gate.engine.store.look() as session:
        (entry,) = session.read([bytes.fromhex(admission.key)])
    assert entry is not None
    return entry.state


def test_an_event_is_settled_without_any_task(gate: Gate) -> None:
    async def scene(turns: ReadyFlows) -> list[Ends]:
        tasks = asyncio.all_tasks()
        found = [begin(gate, "plain", {"id": str(number)}, turns)[1] for number in range(50)]
        await all_come(found)
        assert asyncio.all_tasks() == tasks
        return found

    for ((admission, error),) in in_loop(scene):
        assert error is None
        assert admission.verdict is Verdict.RUN
        assert state_of(gate, admission) is State.COMMITTED


def test_a_handler_is_called_in_a_task_that_knows_its_claim_and_nobody_else_does(gate: Gate) -> None:
    seen: list[tuple[bool, bool]] = []

    @gate.handler("busy", key="{id}")
    async def handler(event: Any, once: Any) -> str:
        async with asyncio.timeout(60):  # needs a task
            await asyncio.sleep(0)
        claim = current_claim.get()
        seen.append((claim is not None and claim.key.text == once.key, asyncio.current_task() is not None))
        return str(event["id"])

    async def scene(turns: ReadyFlows) -> list[Ends]:
        found = [begin(gate, "busy", {"id": str(number)}, turns)[1] for number in range(20)]
        await all_come(found)
        assert current_claim.get() is None
        return found

    found = in_loop(scene)

    assert [ends[0][0].value for ends in found] == [str(number) for number in range(20)]
    assert seen == [(True, True)] * 20


@pytest.mark.parametrize("surface", ["plain", "called"])
def test_what_one_walk_sets_no_other_sees(gate: Gate, surface: str) -> None:
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

    async def scene(turns: ReadyFlows) -> list[Ends]:
        found = [begin(gate, surface, {"id": str(number)}, turns)[1] for number in range(5)]
        await all_come(found)
        assert own.get() == "nothing"
        return found

    assert [ends[0][1] for ends in in_loop(scene)] == [None] * 5


@pytest.mark.parametrize(("surface", "state"), [("plain", State.COMMITTED), ("called", State.RETRYABLE)])
def test_a_cancelled_walk_ends_as_a_cancelled_task_and_gives_back_what_it_has_not_begun(
    gate: Gate, surface: str, state: State
) -> None:
    """What was asked of the ledger is done: an event is on record, or may be run by the next arrival."""

    @gate.handler("called", key="{id}")
    async def handler(event: Any, once: Any) -> None:
        assert event["id"] == "b"

    gate.check_surfaces()

    async def scene(turns: ReadyFlows) -> Ends:
        # A second one beside it, so that neither is committed before this returns.
        (walk, ends), (_, others) = (begin(gate, surface, {"id": name}, turns) for name in "ab")
        walk.cancel("the server ends")
        await all_come([ends, others])
        return ends

    ((value, error),) = in_loop(scene)

    assert value is None
    assert isinstance(error, asyncio.CancelledError)
    with gate.engine.store.look() as session:
        entries = session.entries(EntryFilter(), None, 10)
    assert {entry.label: entry.state for entry in entries} == {"a": state, "b": State.COMMITTED}


def test_a_cancelled_handler_is_cancelled_at_once(gate: Gate) -> None:
    reached = asyncio.Event()

    @gate.handler("endless", key="{id}")
    async def handler(event: Any, once: Any) -> None:
        reached.set()
        await asyncio.Event().wait()

    async def scene(turns: ReadyFlows) -> Ends:
        walk, ends = begin(gate, "endless", {"id": "a"}, turns)
        await asyncio.wait_for(reached.wait(), 60)
        walk.cancel()
        await ends.come()
        return ends

    ((value, error),) = in_loop(scene)

    assert value is None
    assert isinstance(error, asyncio.CancelledError)


def test_a_closed_gate_is_an_error_that_is_told(gate: Gate) -> None:
    async def scene(turns: ReadyFlows) -> Ends:
        begun, ends = gate.engine.begin("plain", {"id": "a"}), Ends()
        assert isinstance(begun, WaitingFlow)
        gate.engine.commits.close()
        begun.walk(turns, ends.add)
        return ends

    ((value, error),) = in_loop(scene)

    assert value is None
    assert isinstance(error, StoreUnavailable)


def test_an_interrupt_in_one_walk_does_not_stop_the_others(gate: Gate) -> None:
    class Interrupt(BaseException):
        """What a person's interrupt is."""

    def interrupted(value: Any, error: BaseException | None) -> None:
        raise Interrupt

    caught: list[Any] = []

    async def scene(turns: ReadyFlows) -> list[Ends]:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: caught.append(context))
        first = gate.engine.begin("plain", {"id": "first"})
        assert isinstance(first, WaitingFlow)
        first.walk(turns, interrupted)
        others = [begin(gate, "plain", {"id": str(number)}, turns)[1] for number in range(9)]
        await all_come(others)
        return others

    assert [ends[0][1] for ends in in_loop(scene)] == [None] * 9
    assert isinstance(caught[0]["exception"], Interrupt)


def test_a_flow_that_is_left_has_asked_nothing_of_the_ledger(gate: Gate) -> None:
    async def scene(turns: ReadyFlows) -> Admission:
        begun = gate.engine.begin("plain", {"id": "a"})
        assert isinstance(begun, WaitingFlow)
        begun.close()
        return await gate.admit("plain", {"id": "a"})

    assert in_loop(scene).verdict is Verdict.RUN
