"""Workers that outlive their claim: stopped, too slow, cancelled, or simply not told (I1, I4)."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from oncegate import AsyncOnce, Gate, Once, Verdict
from oncegate.commit import group_commit
from oncegate.errors import ClaimLost, NotApplied
from oncegate.model.states import State
from oncegate.store import EntryFilter
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing import ManualClock, wait_until
from oncegate.testing.waiting import DEADLINE_SECONDS

EVENT = {"id": "e"}


class World:
    """A ledger, a clock, and a downstream that remembers what each key owns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        self.sold: list[str] = []
        self.waiting = threading.Event()
        self.go_on = threading.Event()
        self._opened: list[Gate] = []
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE booking (ref TEXT)")

    def gate(self, **options: Any) -> Gate:
        opened = Gate(f"sqlite:///{self.path}", clock=self.clock, **options)
        self._opened.append(opened)
        return opened

    def claim_slot(self, idempotency_key: str) -> dict[str, str]:
        self.sold.append(idempotency_key)
        return {"id": f"slot {len(self.sold)}"}

    def owned_by(self, key: str) -> list[dict[str, str]]:
        return [{"id": f"slot {n}"} for n, sold in enumerate(self.sold, 1) if sold == key]

    def stall(self) -> None:
        """Says that the worker has come here, and keeps it until it may go on."""
        self.waiting.set()
        assert self.go_on.wait(DEADLINE_SECONDS)

    def state(self) -> State:
        with SqliteStore(self.path, clock=self.clock).look() as session:
            (entry,) = session.entries(EntryFilter(), None, 10)
            return entry.state

    def bookings(self) -> list[str]:
        with contextlib.closing(sqlite3.connect(self.path)) as connection:
            return [ref for (ref,) in connection.execute("SELECT ref FROM booking")]

    def close(self) -> None:
        self.go_on.set()
        for gate in self._opened:
            gate.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    opened = World(tmp_path / "ledger.db")
    yield opened
    opened.close()


def register(world: World, gate: Gate, *, asked: bool, stalls: bool = False) -> None:
    """A slot and a booking; a worker that stalls does so before its first outside call."""
    abilities: dict[str, Any] = {"probe": world.owned_by} if asked else {}
    terminal = gate.downstream("terminal", request_life_max="30s", **abilities)

    @gate.handler("orders", key="{id}", time_limit="1m")
    def book(event: dict[str, Any], once: Once) -> str:
        if stalls:
            world.stall()
        slot = once.effect(terminal, world.claim_slot)
        once.commit(writes=[("INSERT INTO booking VALUES (?)", (slot["id"],))])
        return slot["id"]


def finish_elsewhere(world: World, *, asked: bool) -> None:
    """Lets the first worker's time run out and another one do its work."""
    other = world.gate()
    register(world, other, asked=asked)
    for _ in range(3):
        world.clock.advance(120)
        with contextlib.suppress(NotApplied):
            if other.admit_sync("orders", EVENT).verdict is Verdict.RUN:
                return
    raise AssertionError("the other worker did not finish")


@pytest.mark.parametrize("asked", [True, False], ids=["asked", "unrepeatable"])
def test_worker_past_its_lease_starts_no_effect(world: World, asked: bool) -> None:
    """A handler that comes to its first call after another worker finished the key does not make it."""
    slow = world.gate()
    register(world, slow, asked=asked, stalls=True)
    with ThreadPoolExecutor(1) as threads:
        admitted = threads.submit(slow.admit_sync, "orders", EVENT)
        assert world.waiting.wait(DEADLINE_SECONDS)
        finish_elsewhere(world, asked=asked)
        assert len(world.sold) == 1
        world.go_on.set()

        with pytest.raises(ClaimLost):
            admitted.result()

    assert len(world.sold) == 1, "two slots for one key"
    assert len(world.bookings()) == 1


def test_worker_past_its_lease_books_nothing(world: World) -> None:
    """A handler that returns after another worker finished its key is told, and has written nothing."""
    slow = world.gate()

    @slow.handler("orders", key="{id}", time_limit="1m")
    def book(event: dict[str, Any], once: Once) -> str:
        once.commit(writes=[("INSERT INTO booking VALUES ('zombie')", ())])
        world.stall()
        return "zombie"

    with ThreadPoolExecutor(1) as threads:
        admitted = threads.submit(slow.admit_sync, "orders", EVENT)
        assert world.waiting.wait(DEADLINE_SECONDS)
        finish_elsewhere(world, asked=False)
        world.go_on.set()
        with pytest.raises(ClaimLost):
            admitted.result()

    assert world.bookings() == ["slot 1"]
    assert slow.admit_sync("orders", EVENT).value == "slot 1", "the zombie's value is not remembered"


@pytest.mark.parametrize("kind", ["step", "write"])
def test_worker_whose_own_clock_stood_still_is_stopped_by_the_ledger(world: World, kind: str) -> None:
    """A machine that was suspended believes in its lease; the fence on its next record tells it better."""
    frozen = Gate(f"sqlite:///{world.path}", clock=ManualClock())

    @frozen.handler("orders", key="{id}")
    def book(event: dict[str, Any], once: Once) -> None:
        world.stall()
        if kind == "step":
            once.step("claim", world.claim_slot)
        else:
            once.write("book", [("INSERT INTO booking VALUES ('zombie')", ())])

    with contextlib.closing(frozen), ThreadPoolExecutor(1) as threads:
        admitted = threads.submit(frozen.admit_sync, "orders", EVENT)
        assert world.waiting.wait(DEADLINE_SECONDS)
        finish_elsewhere(world, asked=False)
        world.go_on.set()
        with pytest.raises(ClaimLost):
            admitted.result()

    assert len(world.sold) == 1
    assert world.bookings() == ["slot 1"]


def test_worker_whose_renewal_is_refused_may_not_go_on(world: World) -> None:
    """Once the lease keeper finds the claim gone, what the handler still tries is refused."""
    own_clock = ManualClock()
    slow = Gate(f"sqlite:///{world.path}", clock=own_clock)
    register(world, slow, asked=True, stalls=True)
    with contextlib.closing(slow), ThreadPoolExecutor(1) as threads:
        admitted = threads.submit(slow.admit_sync, "orders", EVENT)
        assert world.waiting.wait(DEADLINE_SECONDS)
        finish_elsewhere(world, asked=True)
        own_clock.advance(10)  # by its own clock the lease lasts, and a renewal is due
        assert slow.engine._context.leases.renew_due() == 0
        world.go_on.set()
        with pytest.raises(ClaimLost):
            admitted.result()

    assert len(world.sold) == 1


# --- cancelled tasks -------------------------------------------------------------------------------


def test_handler_thread_of_a_cancelled_task_starts_no_effect(world: World) -> None:
    """A plain handler whose task was cancelled runs on in its thread, but its claim has ended."""
    gate = world.gate()
    register(world, gate, asked=True, stalls=True)

    async def cancel_while_it_runs() -> None:
        task = asyncio.create_task(gate.admit("orders", EVENT))
        await asyncio.to_thread(world.waiting.wait, DEADLINE_SECONDS)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert world.state() is State.RETRYABLE
        world.go_on.set()

    asyncio.run(cancel_while_it_runs())
    gate.close()  # waits for the handler's thread

    assert world.sold == [], "an effect was started after its claim had ended"


def test_cancelled_unrepeatable_call_is_left_to_a_person(world: World) -> None:
    """A task cancelled in the middle of a call that nobody can be asked about leaves it unknown."""
    gate = world.gate()

    @gate.handler("orders", key="{id}")
    async def book(event: dict[str, Any], once: AsyncOnce) -> None:
        await once.step("claim", sell_slowly)

    async def sell_slowly() -> None:
        world.sold.append("maybe")
        world.waiting.set()
        await asyncio.Event().wait()

    async def cancel_while_it_runs() -> None:
        task = asyncio.create_task(gate.admit("orders", EVENT))
        await asyncio.to_thread(world.waiting.wait, DEADLINE_SECONDS)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(cancel_while_it_runs())

    assert world.state() is State.UNKNOWN
    assert asyncio.run(gate.admit("orders", EVENT)).verdict is Verdict.HOLD
    assert world.sold == ["maybe"]


@pytest.mark.parametrize("same_database", [False, True], ids=["commit block", "same database"])
def test_task_cancelled_while_it_waits_for_its_turn_gives_it_back(
    world: World, monkeypatch: pytest.MonkeyPatch, same_database: bool
) -> None:
    """Whoever stops waiting for the ledger does not lock everybody else out of it."""
    monkeypatch.setattr(group_commit, "TURN_WAIT_SECONDS", 1.0)
    gate = world.gate()
    turn_is_taken = asyncio.Event()

    @gate.handler("orders", key="{id}", same_database=same_database)
    async def book(event: dict[str, Any], once: AsyncOnce) -> None:
        world.waiting.set()
        await turn_is_taken.wait()
        async with once.commit() as tx:
            await tx.execute("INSERT INTO booking VALUES ('b')")

    @gate.handler("others", key="{id}")
    def take(event: dict[str, Any], once: Once) -> str:
        return "taken"

    gate.check_surfaces()

    async def cancel_while_it_waits() -> None:
        with contextlib.ExitStack() as turn:
            if same_database:  # its very first statement waits for the turn
                turn.enter_context(gate.engine._context.commits.transaction())
            task = asyncio.create_task(gate.admit("orders", EVENT))
            if not same_database:
                await asyncio.to_thread(world.waiting.wait, DEADLINE_SECONDS)
                turn.enter_context(gate.engine._context.commits.transaction())
            turn_is_taken.set()
            await asyncio.to_thread(wait_until, somebody_waits_for_a_turn)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, TimeoutError):
                await asyncio.wait_for(asyncio.shield(task), 0.2)

    asyncio.run(cancel_while_it_waits())

    assert gate.admit_sync("others", {"id": "next"}).value == "taken"
    assert world.bookings() == []


def somebody_waits_for_a_turn() -> bool:
    """Whether a thread of the gate's is inside `GroupCommit.transaction`."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, top in sys._current_frames().items():
        if names.get(ident, "").startswith("oncegate-turn"):
            stack = traceback.extract_stack(top)
            return any(frame.name == "transaction" for frame in stack)
    return False
