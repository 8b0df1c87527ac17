"""A loop that is closed over a handler that waits inside its transaction: that is undone, once (I18)."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from oncegate import Admission, AsyncOnce, Gate, Once
from oncegate.commit import group_commit
from oncegate.errors import StoreBusy
from oncegate.gate.admission import Verdict
from oncegate.testing import run_forked
from oncegate.testing.waiting import DEADLINE_SECONDS

EVENT = {"id": "left"}


class Waiting:
    """A handler that may wait for the word inside its transaction."""

    def __init__(self) -> None:
        self.waits = False

    async def __call__(self, event: dict[str, str], once: AsyncOnce) -> None:
        await once.tx.execute("SELECT 1")
        if self.waits:
            self.waits = False
            self.go_on = asyncio.Event()
            self.began.set()
            await self.go_on.wait()

    async def begin(self, gate: Gate) -> asyncio.Task[Any]:
        """Waits until it waits inside."""
        self.began, self.waits = asyncio.Event(), True
        task = asyncio.create_task(gate.admit("bookings", EVENT))
        await self.began.wait()
        return task


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.db"
    return str(request.getfixturevalue("ledger_url"))


@pytest.fixture
def handler() -> Waiting:
    return Waiting()


@pytest.fixture
def gate(url: str, handler: Waiting, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """A gate where one handler has a transaction at a time, and another gives up soon."""
    monkeypatch.setattr(group_commit, "TRANSACTIONS_MAX", 1)
    monkeypatch.setattr(group_commit, "TURN_WAIT_SECONDS", 0.2)
    with closing(Gate(url)) as opened:
        opened.handler("bookings", key="{id}", same_database=True)(handler)
        yield opened


def leave_open(gate: Gate, handler: Waiting) -> asyncio.Task[Any]:
    """Closes a loop over a task that waits."""
    with closing(asyncio.new_event_loop()) as loop:
        task = loop.run_until_complete(handler.begin(gate))
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    return task


def admit(gate: Gate, event: dict[str, str]) -> Verdict:
    return asyncio.run(gate.admit("bookings", event)).verdict


def test_next_loop_undoes_it_and_has_the_place(gate: Gate, handler: Waiting) -> None:
    """Given a task that never goes on; then its event is a new one, and when it is gone nothing changes."""
    task = leave_open(gate, handler)

    assert admit(gate, EVENT) is Verdict.RUN

    del task
    gc.collect()
    with gate.engine.commits.transaction(), pytest.raises(StoreBusy), gate.engine.commits.transaction():
        pytest.fail("the one place was given twice")


def test_thread_undoes_it_and_has_the_place(gate: Gate, handler: Waiting) -> None:
    """Given a task that never goes on, and no loop after its own; then threads are not refused for ever."""

    @gate.handler("payments", key="{id}", same_database=True)
    def pay(event: dict[str, str], once: Once) -> None:
        once.tx.execute("SELECT 1")

    @gate.handler("notes", key="{id}")
    def note(event: dict[str, str]) -> None:
        pass

    task = leave_open(gate, handler)

    assert gate.admit_sync("notes", EVENT).verdict is Verdict.RUN
    assert gate.admit_sync("payments", EVENT).verdict is Verdict.RUN
    assert not task.done()


def test_loop_that_was_there_before_undoes_it_and_has_the_place(gate: Gate, handler: Waiting) -> None:
    """Given a loop that has used the gate, and one beside it that was closed; then the first goes on."""

    async def main() -> list[Verdict]:
        before = await gate.admit("bookings", {"id": "before"})
        task = await asyncio.to_thread(leave_open, gate, handler)
        after = await gate.admit("bookings", {"id": "after"})
        assert not task.done()
        return [before.verdict, after.verdict]

    assert asyncio.run(main()) == [Verdict.RUN, Verdict.RUN]


def test_whoever_waits_already_has_the_place(
    gate: Gate, handler: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given somebody who waits for the place of a loop; when that is closed, then they have it soon."""
    monkeypatch.setattr(group_commit, "TURN_WAIT_SECONDS", DEADLINE_SECONDS)
    monkeypatch.setattr(group_commit, "STRANDED_LOOK_SECONDS", 0.05)
    waits = threading.Event()
    free = gate.engine.commits._drop_stranded

    def look() -> None:
        free()
        waits.set()

    def have_place() -> bool:
        with gate.engine.commits.transaction():
            return True

    monkeypatch.setattr(gate.engine.commits, "_drop_stranded", look)
    with ThreadPoolExecutor(1) as threads, closing(asyncio.new_event_loop()) as loop:
        task = loop.run_until_complete(handler.begin(gate))
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        waits.clear()
        next_one = threads.submit(have_place)
        assert waits.wait(DEADLINE_SECONDS)
        loop.close()
        assert next_one.result(DEADLINE_SECONDS)
    assert not task.done()


def test_forked_process_can_use_its_gate(gate: Gate, handler: Waiting) -> None:
    """Given a task that never goes on, and a fork; then child and parent go on."""
    task = leave_open(gate, handler)

    assert run_forked(lambda: admit(gate, {"id": "child"}) is Verdict.RUN) == (0, True)
    assert admit(gate, {"id": "parent"}) is Verdict.RUN
    assert not task.done()


def test_loop_that_goes_on_keeps_its_transaction(gate: Gate, handler: Waiting) -> None:
    """Given a handler inside its transaction, and a loop that begins beside it; then that one waits."""

    async def main() -> Verdict:
        task = await handler.begin(gate)
        with pytest.raises(StoreBusy):
            await asyncio.to_thread(admit, gate, {"id": "beside"})
        handler.go_on.set()
        admission: Admission = await task
        return admission.verdict

    assert asyncio.run(main()) is Verdict.RUN
    assert admit(gate, EVENT) is Verdict.REPLAY
