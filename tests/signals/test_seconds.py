"""Two resources for one key or one target, and calls without the key, are found (A9, F6, F7)."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from oncegate import Gate, Once
from oncegate.errors import ClaimLost
from oncegate.maintenance.reconciler import Reconciler
from oncegate.signals.alerts import Signal, evaluate
from oncegate.signals.definition import Level
from oncegate.signals.measures import measure
from oncegate.signals.seconds import open_seconds_of
from oncegate.signals.watch import Watch
from oncegate.store import LogKind, ResourceDismissal, Store
from oncegate.testing import ManualClock
from oncegate.testing.waiting import DEADLINE_SECONDS

EVENT = {"id": "e-1", "container": "C-1"}


class Terminal:
    """A terminal that forgets the keys it has seen: each call is another slot, unless it remembers."""

    def __init__(self, *, remembers: bool) -> None:
        self.remembers = remembers
        self.slots: dict[str, str] = {}
        self.calls = 0
        self.first_is_there = threading.Event()
        self.first_may_go_on = threading.Event()

    def book(self, idempotency_key: str) -> dict[str, str]:
        """Gives a slot; the first caller's answer comes late."""
        self.calls += 1
        number = self.calls
        known = self.slots.setdefault(idempotency_key, f"slot {number}")
        if number == 1:
            self.first_is_there.set()
            assert self.first_may_go_on.wait(DEADLINE_SECONDS)
        return {"id": known if self.remembers else f"slot {number}"}


@pytest.fixture
def gates(store: Store, clock: ManualClock) -> Iterator[list[Gate]]:
    opened = [Gate(store=store, clock=clock) for _ in range(2)]
    yield opened
    for gate in opened:
        gate.close()


def register(gate: Gate, terminal: Terminal, *, takes_once: bool = True, **more: Any) -> None:
    downstream = gate.downstream("terminal", honours_key="30d")
    if takes_once:

        @gate.handler("orders", key="{id}", target="{container}", **more)
        def book(event: dict[str, Any], once: Once) -> str:
            return str(once.effect(downstream, terminal.book)["id"])

    else:

        @gate.handler("orders", key="{id}", target="{container}", downstream=downstream, **more)
        def book_opaque(event: dict[str, Any], idempotency_key: str = "") -> dict[str, str]:
            return terminal.book(idempotency_key)


def measured(store: Store, clock: ManualClock, name: str) -> Signal:
    with store.look() as session:
        found = evaluate(measure(session, clock))
    (signal,) = [one for one in found if one.definition.name == name and one.surface == "orders"]
    return signal


def lost_worker(gates: list[Gate], clock: ManualClock, terminal: Terminal, **more: Any) -> None:
    """The first worker's answer comes after the second one has finished the key."""
    slow, other = gates
    register(slow, terminal, **more)
    register(other, terminal, **more)
    with ThreadPoolExecutor(1) as threads:
        admitted = threads.submit(slow.admit_sync, "orders", EVENT)
        assert terminal.first_is_there.wait(DEADLINE_SECONDS)
        clock.advance(600)
        assert other.admit_sync("orders", EVENT).value is not None
        terminal.first_may_go_on.set()
        with pytest.raises(ClaimLost):
            admitted.result()
    other.engine.sightings.flush()


def kinds_of_entry(store: Store, entry: int) -> list[LogKind]:
    with store.look() as session:
        detail = session.detail(entry)
    assert detail is not None
    return [record.kind for record in detail.records]


@pytest.mark.parametrize("takes_once", [True, False], ids=["effect", "opaque"])
def test_what_a_late_worker_brings_back_is_recorded_and_pages(
    store: Store, clock: ManualClock, gates: list[Gate], takes_once: bool
) -> None:
    """The downstream forgot its own idempotency: one key, two slots, and the claim of one is lost."""
    lost_worker(gates, clock, Terminal(remembers=False), takes_once=takes_once)
    signal = measured(store, clock, "resources_per_key")
    assert (signal.value, signal.level) == (1, Level.PAGE)
    assert "slot 2, and slot 1 by a late worker" in signal.detail
    with store.look() as session:
        (found,) = open_seconds_of(session)
    assert kinds_of_entry(store, found.entry_id)[-1] is LogKind.SECOND_RESOURCE


@pytest.mark.parametrize("takes_once", [True, False], ids=["effect", "opaque"])
def test_a_late_worker_with_the_same_resource_is_no_finding(
    store: Store, clock: ManualClock, gates: list[Gate], takes_once: bool
) -> None:
    """A downstream that remembers the key gives both workers one slot: nothing is written."""
    lost_worker(gates, clock, Terminal(remembers=True), takes_once=takes_once)
    signal = measured(store, clock, "resources_per_key")
    assert (signal.value, signal.level) == (0, Level.OK)
    with store.look() as session:
        assert session.second_resources(0, 10) == []


def late_before_the_end(
    store: Store, clock: ManualClock, gates: list[Gate], terminal: Terminal, surface: str
) -> None:
    """The first worker's answer comes while the second one is at work still."""
    slow, other = gates
    both, done = threading.Event(), threading.Event()

    def handle(gate: Gate) -> None:
        downstream = gate.downstream(f"terminal {surface}", honours_key="30d")

        @gate.handler(surface, key="{id}")
        def book(event: dict[str, Any], once: Once) -> str:
            slot = once.effect(downstream, terminal.book)["id"]
            if gate is other:
                both.set()
                assert done.wait(DEADLINE_SECONDS)
            return str(slot)

    handle(slow)
    handle(other)
    with ThreadPoolExecutor(2) as threads:
        late = threads.submit(slow.admit_sync, surface, EVENT)
        assert terminal.first_is_there.wait(DEADLINE_SECONDS)
        clock.advance(600)
        second = threads.submit(other.admit_sync, surface, EVENT)
        assert both.wait(DEADLINE_SECONDS)
        terminal.first_may_go_on.set()
        with pytest.raises(ClaimLost):
            late.result()
        with store.look() as session:
            assert [one for one in open_seconds_of(session) if one.surface == surface] == []
        done.set()
        second.result()


def test_one_that_is_brought_before_the_key_is_settled_is_judged_later(
    store: Store, clock: ManualClock, gates: list[Gate]
) -> None:
    """Nothing is known while the other worker is at it; then two slots page, and one slot is closed."""
    for terminal, surface in ((Terminal(remembers=False), "two"), (Terminal(remembers=True), "one")):
        late_before_the_end(store, clock, gates, terminal, surface)
    with store.look() as session:
        assert [one.surface for one in open_seconds_of(session)] == ["two"]
        assert len(session.second_resources(0, 10)) == 2
    Watch(store, clock, notifiers=()).run_once()
    with store.look() as session:
        assert [one.surface for one in session.second_resources(0, 10)] == ["two"]


def test_one_container_with_two_slots_pages_with_the_evidence(
    store: Store, clock: ManualClock, gates: list[Gate]
) -> None:
    """Two keys, one container, two processes: the entries and the slots are named."""
    for number, gate in enumerate(gates, 1):
        terminal = Terminal(remembers=False)
        terminal.calls = number * 10
        register(gate, terminal)
        gate.admit_sync("orders", {"id": f"e-{number}", "container": "C-1"})
        gate.admit_sync("orders", {"id": f"other-{number}", "container": f"C-{number + 1}"})
        gate.engine.sightings.flush()
    signal = measured(store, clock, "resources_per_target")
    assert (signal.value, signal.level) == (1, Level.PAGE)
    assert signal.detail.startswith("C-1 at terminal: slot 11 (entry ")
    assert " and slot 21 (entry " in signal.detail


def booked_untold(gates: list[Gate]) -> None:
    """Two slots for one container; the first process is killed before it tells of its slot."""
    killed, other = gates
    killed.admit_sync("orders", {"id": "e-1", "container": "C-1"})
    killed.engine.sightings.after_fork_in_child()  # forgets, as a killed process does
    other.admit_sync("orders", {"id": "e-2", "container": "C-1"})
    other.engine.sightings.flush()


def registered(gates: list[Gate], **more: Any) -> list[Terminal]:
    terminals = [Terminal(remembers=False) for _ in gates]
    for number, (gate, terminal) in enumerate(zip(gates, terminals, strict=True), 1):
        terminal.calls = number * 10
        register(gate, terminal, **more)
    return terminals


@pytest.mark.parametrize("takes_once", [True, False], ids=["effect", "opaque"])
def test_what_a_killed_process_did_not_tell_is_found_by_the_next_worker(
    store: Store, clock: ManualClock, gates: list[Gate], takes_once: bool
) -> None:
    """F6: its last second was lost, and one container with two slots was right."""
    registered(gates, takes_once=takes_once)
    booked_untold(gates)
    reconciler = Reconciler(gates[1])
    assert measured(store, clock, "resources_per_target").value == 0
    for _ in range(2):  # a worker that starts finds it, and the next one nothing more
        reconciler.run_once()
        assert measured(store, clock, "resources_per_target").value == 1
        with store.look() as session:
            (found,) = open_seconds_of(session)
        reconciler = Reconciler(gates[1])
    word = ResourceDismissal(found.number, clock.wall_ms(), "ann", "moved")
    with closing(store.connect()) as session, session.unit():
        assert session.dismiss_resource(word)
    Reconciler(gates[1]).run_once()
    assert measured(store, clock, "resources_per_target").value == 0, "a decision stands"


def test_a_worker_that_died_later_is_made_good_for_too(
    store: Store, clock: ManualClock, gates: list[Gate]
) -> None:
    """F6: a lapsed lease says that a worker died; without one the ledger is not looked through again."""
    terminals, reconciler = registered(gates), Reconciler(gates[1])
    reconciler.run_once()
    booked_untold(gates)
    clock.advance(61)
    reconciler.run_once()
    assert measured(store, clock, "resources_per_target").value == 0
    terminals[0].calls = 0
    with ThreadPoolExecutor(1) as threads:
        admitted = threads.submit(gates[0].admit_sync, "orders", {"id": "e-3", "container": "C-3"})
        assert terminals[0].first_is_there.wait(DEADLINE_SECONDS)
        clock.advance(300)
        assert reconciler.run_once().finished == 1
        terminals[0].first_may_go_on.set()
        with pytest.raises(ClaimLost):
            admitted.result()
    assert measured(store, clock, "resources_per_target").value == 1


def test_another_slot_after_the_time_of_the_first_is_none(
    store: Store, clock: ManualClock, gates: list[Gate]
) -> None:
    """A container comes again next week; a surface without a target is not looked at."""
    gate, terminal = gates[0], Terminal(remembers=False)
    terminal.first_may_go_on.set()
    register(gate, terminal, target_within="2h")
    for number in range(2):
        gate.admit_sync("orders", {"id": f"e-{number}", "container": "C-1"})
        gate.engine.sightings.flush()
        clock.advance(2 * 3600 + 1)
    assert measured(store, clock, "resources_per_target").value == 0


def test_calls_without_the_key_are_counted_and_named(
    store: Store, clock: ManualClock, gates: list[Gate]
) -> None:
    """A deploy dropped the parameter: the signal names the step and its downstream."""
    gate = gates[0]
    terminal = gate.downstream("terminal", honours_key="30d")

    def claim_slot() -> str:
        return "slot"

    @gate.handler("orders", key="{id}")
    def book(event: dict[str, Any], once: Once) -> str:
        return str(once.effect(terminal, claim_slot))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(10):
            gate.admit_sync("orders", {"id": number})
    gate.engine.sightings.flush()
    signal = measured(store, clock, "sent_without_key")
    assert (signal.value, signal.level) == (10, Level.PAGE)
    assert signal.detail == "claim_slot at terminal"
