"""The reconciler among bad neighbours: one stranded key keeps no other from being finished (A6, I11)."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from oncegate import Gate, Once
from oncegate.errors import StoreRejected, StoreUnavailable
from oncegate.maintenance.reconciler import Reconciler
from oncegate.model.states import State
from oncegate.store import EntryFilter
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing import ArmedCrashPoints, CrashReached, Faults, ManualClock, faulty


class World:
    """A ledger on which workers die, and a downstream that honours keys."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        self.faults = Faults()
        self.slots: dict[str, str] = {}
        self.calls: Counter[str] = Counter()
        self._opened: list[Gate] = []
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE booking (ref TEXT)")

    def gate(self, *surfaces: str, **options: Any) -> Gate:
        store = faulty(SqliteStore(self.path, clock=self.clock), self.faults)
        gate = Gate(store=store, clock=self.clock, **options)
        self._opened.append(gate)
        terminal = gate.downstream("terminal", honours_key="24h")

        def book(event: dict[str, Any], once: Once) -> str:
            slot = once.effect(terminal, self.claim_slot)
            once.commit(writes=[(event.get("sql", "INSERT INTO booking VALUES (?)"), (slot,))])
            return slot

        for surface in surfaces:
            gate.handler(surface, key="{id}", attempts_max=4)(book)
        return gate

    def claim_slot(self, idempotency_key: str) -> str:
        self.calls[idempotency_key] += 1
        return self.slots.setdefault(idempotency_key, f"slot {len(self.slots)}")

    def strand(self, surface: str, event: dict[str, Any]) -> None:
        """Lets a worker die after its effect, and its lease lapse a little later."""
        dying = self.gate(surface, crashpoints=ArmedCrashPoints.raising("effect.after"))
        with contextlib.suppress(CrashReached):
            dying.admit_sync(surface, event)
        self._put_back_in_flight()
        self.clock.advance(1)

    def _put_back_in_flight(self) -> None:
        """A raised error is recorded; a real crash would have left the claim in flight."""
        with contextlib.closing(sqlite3.connect(self.path)) as connection:
            connection.execute("UPDATE oncegate_entry SET state = 1 WHERE state = 4")
            connection.execute("DELETE FROM oncegate_step")
            connection.commit()

    def states(self) -> dict[str, State]:
        with SqliteStore(self.path, clock=self.clock).look() as session:
            return {entry.label: entry.state for entry in session.entries(EntryFilter(), None, 1000)}

    def bookings(self) -> list[str]:
        with contextlib.closing(sqlite3.connect(self.path)) as connection:
            return sorted(ref for (ref,) in connection.execute("SELECT ref FROM booking"))

    def close(self) -> None:
        for gate in self._opened:
            gate.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    opened = World(tmp_path / "ledger.db")
    yield opened
    opened.close()


def reconciler(gate: Gate, **options: Any) -> Reconciler:
    return Reconciler(gate, at_once=True, **options)


REFUSED = {"id": "refused", "sql": "INSERT INTO no_such_table VALUES (?)"}


def test_stranded_keys_are_finished_once(world: World) -> None:
    """Every key that a crash stranded is finished, with the slot it already had."""
    for number in range(5):
        world.strand("orders", {"id": number})
    world.clock.advance(60)
    gate = world.gate("orders")

    report = reconciler(gate).run_once()
    again = reconciler(gate).run_once()

    assert (report.finished, again.looked) == (5, [])
    assert set(world.states().values()) == {State.COMMITTED}
    assert world.bookings() == sorted(world.slots.values())
    assert len(world.slots) == 5


def test_reconcilers_at_once_finish_each_key_once(world: World) -> None:
    """Any number of reconcilers may run: a key is taken over by one of them."""
    for number in range(8):
        world.strand("orders", {"id": number})
    world.clock.advance(60)
    workers = [reconciler(world.gate("orders")) for _ in range(4)]

    with ThreadPoolExecutor(4) as threads:
        reports = list(threads.map(lambda worker: worker.run_once(), workers))

    assert sum(report.finished for report in reports) >= 8
    assert len(world.bookings()) == 8
    assert set(world.states().values()) == {State.COMMITTED}


def test_nothing_is_run_while_the_store_is_down(world: World) -> None:
    """A worker that cannot reach the ledger says so, and tries again next time."""
    world.strand("orders", {"id": 1})
    world.clock.advance(60)
    gate, calls = world.gate("orders"), sum(world.calls.values())
    world.faults.down = True

    with pytest.raises(StoreUnavailable):
        reconciler(gate).run_once()

    world.faults.down = False
    assert sum(world.calls.values()) == calls
    assert reconciler(gate).run_once().finished == 1


def test_key_whose_write_is_refused_does_not_stop_the_others(world: World) -> None:
    """One event whose business write the database refuses is reported; the next key is finished."""
    world.strand("orders", REFUSED)
    world.strand("orders", {"id": "good"})
    world.clock.advance(60)
    gate = world.gate("orders")

    reconciler(gate).run_once()

    assert world.states()["good"] is State.COMMITTED


def test_key_whose_write_is_always_refused_comes_in_front_of_a_person(world: World) -> None:
    """An event that can never be committed is not tried for ever: its attempts are bounded (I2, I18)."""
    gate = world.gate("orders")
    for _ in range(12):
        with contextlib.suppress(StoreRejected):
            gate.admit_sync("orders", REFUSED)
        world.clock.advance(60)

    assert world.states()["refused"] is State.HELD
    assert max(world.calls.values()) <= 4


def test_key_that_kills_every_worker_comes_in_front_of_a_person(world: World) -> None:
    """An event that takes its worker down each time is not recovered for ever (I18)."""
    for _ in range(12):
        world.strand("orders", {"id": "deadly"})
        world.clock.advance(60)

    assert world.states()["deadly"] is State.HELD
    assert max(world.calls.values()) <= 4


def test_keys_of_other_surfaces_do_not_crowd_out_our_own(world: World) -> None:
    """Stranded keys that only another service can finish leave room for those that we can."""
    for number in range(3):
        world.strand("of another service", {"id": number})
    world.strand("orders", {"id": "ours"})
    world.clock.advance(60)
    gate = world.gate("orders")

    for _ in range(3):
        reconciler(gate, entries_max=3).run_once()
        world.clock.advance(60)

    assert world.states()["ours"] is State.COMMITTED
