"""A gate that is used on both sides of a fork: neither process loses, blocks or disturbs the other.

Servers fork after they have loaded the application, and an application that has already admitted an event
by then has its ledger open.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oncegate import Gate, Once
from oncegate.clock import SystemClock
from oncegate.commit import group_commit
from oncegate.errors import StoreUnavailable
from oncegate.model.states import State
from oncegate.store import EntryFilter
from oncegate.stores.sqlite import SqliteStore, files, session
from oncegate.testing import Faults, Forked, faulty, run_forked, wait_until
from oncegate.testing.waiting import DEADLINE_SECONDS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def gate(path: Path) -> Iterator[Gate]:
    """A gate that has already been used, so that its session is open."""
    opened = Gate(f"sqlite:///{path}")

    @opened.handler("orders", key="{id}")
    def take(event: dict[str, Any], once: Once) -> str:
        return str(event["id"])

    opened.admit_sync("orders", {"id": "before the fork"})
    yield opened
    opened.close()


def committed(path: Path) -> set[str]:
    with SqliteStore(path).look() as opened:
        return {entry.label for entry in opened.entries(EntryFilter((State.COMMITTED,)), None, 1000)}


def test_child_and_parent_both_use_the_gate(path: Path, gate: Gate) -> None:
    """Events admitted on either side are there, and replays work across."""

    def admit_some() -> list[bool]:
        return [gate.admit_sync("orders", {"id": f"child-{number}"}).replay for number in range(5)]

    with Forked(admit_some) as child:
        for number in range(5):
            gate.admit_sync("orders", {"id": f"parent-{number}"})
        assert child.answer() == [False] * 5

    assert gate.admit_sync("orders", {"id": "child-3"}).replay
    assert len(committed(path)) == 11


def test_child_that_closes_the_gate_leaves_the_parents_open(path: Path, gate: Gate) -> None:
    """Closing in the child, used or not, takes nothing from the parent."""

    def use_and_close() -> None:
        gate.admit_sync("orders", {"id": "child"})
        gate.close()

    assert run_forked(gate.close)[0] == 0
    assert run_forked(use_and_close)[0] == 0

    gate.admit_sync("orders", {"id": "parent"})
    assert committed(path) == {"before the fork", "child", "parent"}


def test_what_the_child_was_told_outlives_the_parents_close(path: Path, gate: Gate) -> None:
    """An event that was acknowledged in the child is in the ledger, also when the parent closes first."""
    (go, tell), (ready, say) = os.pipe(), os.pipe()

    def admit_before_and_after() -> list[str]:
        gate.admit_sync("orders", {"id": "child early"})
        os.write(say, b"x")
        os.read(go, 1)
        return [str(gate.admit_sync("orders", {"id": f"child late {n}"}).result()) for n in range(3)]

    with Forked(admit_before_and_after) as child:
        os.read(ready, 1)
        gate.close()
        os.write(tell, b"x")
        told = child.answer()
    for end in (go, tell, ready, say):
        os.close(end)

    assert len(told) == 3
    assert committed(path) == {"before the fork", "child early", *told}


def test_fork_waits_for_a_commit_under_way(path: Path) -> None:
    """A fork in the middle of the parent's commit lets it end first, and both go on."""
    faults, entered = Faults(), threading.Event()
    gate = Gate(store=faulty(SqliteStore(path), faults))
    gate.handler("orders", key="{id}")(lambda event, once: None)
    gate.admit_sync("orders", {"id": "before the fork"})
    clock = SystemClock()

    def take_a_while() -> None:
        entered.set()
        clock.pause(0.1)

    faults.before_commit = take_a_while
    writing = threading.Thread(target=gate.admit_sync, args=("orders", {"id": "parent"}))
    writing.start()
    assert entered.wait(DEADLINE_SECONDS)

    code, _ = run_forked(lambda: gate.admit_sync("orders", {"id": "child"}).result())
    writing.join()
    gate.close()

    assert code == 0
    assert committed(path) == {"before the fork", "parent", "child"}


@pytest.fixture
def unquiet(
    path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Callable[[], Any]], Forked]]:
    """Forks while a handler's transaction is open and stays so, which no fork can wait for."""
    monkeypatch.setattr(group_commit, "FORK_WAIT_SECONDS", 0.05)
    monkeypatch.setattr(files, "BUSY_WAIT_MS", 100)
    monkeypatch.setattr(session, "BUSY_WAIT_MS", 100)
    with contextlib.ExitStack() as cleanup:

        def fork(work: Callable[[], Any]) -> Forked:
            with gate.engine._context.commits.transaction():
                return cleanup.enter_context(Forked(work))

        yield fork


def test_child_forked_during_a_transaction_is_refused(
    gate: Gate, unquiet: Callable[[Callable[[], Any]], Forked]
) -> None:
    """What cannot be made safe is refused at once, in a thread and in a task."""

    def try_both() -> list[str]:
        told = []
        for admit in (gate.admit_sync, lambda *event: asyncio.run(gate.admit(*event))):
            try:
                admit("orders", {"id": "child"})
            except StoreUnavailable as error:
                told.append(str(error))
        return told

    told = unquiet(try_both).answer()

    assert len(told) == 2
    assert all("fork" in reason for reason in told)


def test_gate_of_its_own_does_not_lose_what_an_unquiet_fork_inherits(
    path: Path, gate: Gate, unquiet: Callable[[Callable[[], Any]], Forked]
) -> None:
    """Following the advice, a gate made after the fork keeps its events, or refuses them."""
    (go, tell), (ready, say) = os.pipe(), os.pipe()

    def admit_with_a_gate_of_its_own() -> list[str]:
        told = []
        own = Gate(f"sqlite:///{path}")
        own.handler("orders", key="{id}")(lambda event, once: event["id"])
        os.read(go, 1)  # the parent's transaction is over
        for name in ("child early", "child late"):
            with contextlib.suppress(StoreUnavailable):
                told.append(str(own.admit_sync("orders", {"id": name}).result()))
            os.write(say, b"x")
            os.read(go, 1)
        return told

    child = unquiet(admit_with_a_gate_of_its_own)
    os.write(tell, b"x")
    os.read(ready, 1)
    gate.close()
    os.write(tell, b"x")
    os.read(ready, 1)
    os.write(tell, b"x")
    told = child.answer()
    for end in (go, tell, ready, say):
        os.close(end)

    assert committed(path) == {"before the fork", *told}


def test_leases_are_renewed_in_the_child(path: Path) -> None:
    """A handler that takes long keeps its claim in the child too, where the parent's keeper is not."""
    gate = Gate(f"sqlite:///{path}")

    @gate.handler("orders", key="{id}", lease="300ms")
    def take(event: dict[str, Any], once: Once) -> None:
        if event["id"] == "long":
            first = lease_until(path, "long")
            wait_until(lambda: lease_until(path, "long") > first, what="a renewal")

    gate.admit_sync("orders", {"id": "before the fork"})

    code, _ = run_forked(lambda: gate.admit_sync("orders", {"id": "long"}).result())
    gate.close()

    assert code == 0
    assert "long" in committed(path)


def lease_until(path: Path, label: str) -> int:
    with SqliteStore(path).look() as opened:
        (entry,) = opened.entries(EntryFilter(label_contains=label), None, 10)
        return entry.lease_until_ticks or 0


def test_plain_functions_run_in_the_child_of_an_async_parent(path: Path) -> None:
    """Threads for plain functions, which a task's handler calls, exist again in the child."""
    gate = Gate(f"sqlite:///{path}")
    terminal = gate.downstream("terminal", honours_key="24h")

    @gate.handler("orders", key="{id}")
    async def take(event: dict[str, Any], once: Any) -> str:
        return str(await once.effect(terminal, claim_slot, event["id"]))

    def claim_slot(name: str, idempotency_key: str) -> str:
        return f"slot for {name}"

    asyncio.run(gate.admit("orders", {"id": "before the fork"}))

    def admit_in_child() -> str:
        return str(asyncio.run(gate.admit("orders", {"id": "child"})).result())

    with Forked(admit_in_child) as child:
        assert child.answer() == "slot for child"
    gate.close()


def test_randomness_is_not_shared_across_a_fork(path: Path, gate: Gate) -> None:
    """Tokens, by which a doubtful reservation is found again, differ between parent and child."""

    def draw() -> list[int]:
        return [gate.engine._context.new_token() for _ in range(20)]

    draw()  # whatever is kept in store for later is there at the fork
    _, children = run_forked(draw)

    assert not set(children) & set(draw())


def test_child_forked_while_somebody_looks_loses_nothing(path: Path, gate: Gate) -> None:
    """A ledger that is being read in the parent at the fork does not cost the child its events."""
    (go, tell), (ready, say) = os.pipe(), os.pipe()

    def admit_before_and_after() -> list[str]:
        told = []
        for name in ("child early", "child late"):
            with contextlib.suppress(StoreUnavailable):
                told.append(str(gate.admit_sync("orders", {"id": name}).result()))
            os.write(say, b"x")
            os.read(go, 1)
        return told

    with contextlib.ExitStack() as cleanup:
        with SqliteStore(path).look() as reader:
            assert reader.counts() == {State.COMMITTED: 1}
            child = cleanup.enter_context(Forked(admit_before_and_after))
        os.read(ready, 1)
        gate.admit_sync("orders", {"id": "parent"})
        gate.close()
        os.write(tell, b"xx")
        told = child.answer()
    for end in (go, tell, ready, say):
        os.close(end)

    assert committed(path) == {"before the fork", "parent", *told}


def test_claims_of_a_dead_parent_are_not_kept_alive_by_its_child(path: Path) -> None:
    """A child that was forked while the parent worked renews its own claims, not the parent's."""
    gate = Gate(f"sqlite:///{path}")
    working, (ready, say) = threading.Event(), os.pipe()

    @gate.handler("orders", key="{id}", lease="300ms")
    def take(event: dict[str, Any], once: Once) -> None:
        if event["id"] == "parent":
            working.set()
            signal.pause()

    def be_the_parent() -> None:
        threading.Thread(target=gate.admit_sync, args=("orders", {"id": "parent"}), daemon=True).start()
        assert working.wait(DEADLINE_SECONDS)
        with Forked(be_the_child) as child:
            os.write(say, str(child.pid).encode())
            signal.pause()

    def be_the_child() -> None:
        gate.admit_sync("orders", {"id": "child"})  # its own lease keeper runs from now on
        signal.pause()

    with Forked(be_the_parent) as parent:
        child_pid = int(os.read(ready, 20))
        wait_until(lambda: "child" in committed(path), what="work in the child")
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
    try:
        wait_until(lambda: stranded(path) == ["parent"], what="the lapse of the dead one's claim")
    finally:
        os.kill(child_pid, signal.SIGKILL)
        os.close(ready)
        os.close(say)


def stranded(path: Path) -> list[str]:
    with SqliteStore(path).look() as opened:
        return [item.entry.label for item in opened.stranded(10)]
