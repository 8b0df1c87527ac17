"""Surfaces that observe, are switched or paused: what runs, what is recorded, and who obeys when (F1)."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncegate import Gate, NotApplied, OutcomeUnknown, Verdict
from oncegate.clock import SystemClock
from oncegate.commit.group_commit import GroupCommit
from oncegate.errors import ConfigError, Paused
from oncegate.maintenance.accepted_events import AcceptedWork
from oncegate.maintenance.reconciler import Reconciler
from oncegate.model.states import State
from oncegate.model.surface_decisions import OBEYED_SECONDS, SurfaceMode, ignoring
from oncegate.review.observation import ObservedSurface, observed_surfaces
from oncegate.review.surface_decisions import decide, decided_about, switched_to
from oncegate.store import EntryFilter
from oncegate.testing import ManualClock
from oncegate.testing.simulation import Ledger as SimulatedLedger
from oncegate.testing.waiting import DEADLINE_SECONDS, wait_until
from oncegate.wiring import open_store
from tests.support.claims_only_store import ClaimsOnlyStore

CLOCK = SystemClock()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A ledger of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    return str(request.getfixturevalue("ledger_url"))


@pytest.fixture
def gate(url: str) -> Iterator[Gate]:
    """A process on the ledger."""
    with Gate(url) as found:
        found.engine.store.connect().close()
        yield found


def switch(url: str, mode: SurfaceMode, surface: str = "orders") -> None:
    """Decides about a surface, as another process."""
    commits = GroupCommit(open_store(url))
    try:
        with commits.store.look() as session:
            seen = decided_about(session, surface)
        made = switched_to(seen.decided, mode, "ann", "why", CLOCK.wall_ms())
        decide(commits, CLOCK, seen, made, what=mode.value, actor="ann", reason="why")
    finally:
        commits.close()


def obey(gate: Gate) -> None:
    """Has the process read what is decided, as its thread does every two seconds."""
    gate.engine._context.decided.read()


def report(gate: Gate, surface: str = "orders") -> ObservedSurface | None:
    """What was observed so far."""
    gate.engine.sightings.flush()
    with gate.engine.store.look() as session:
        now = CLOCK.wall_ms()
        found = {one.surface: one for one in observed_surfaces(session, now - 3_600_000, now)}
    return found.get(surface)


def observed(gate: Gate, arrivals: int) -> ObservedSurface:
    """What was observed, once so many arrivals were noted."""
    wait_until(lambda: (found := report(gate)) is not None and found.arrivals >= arrivals)
    found = report(gate)
    assert found is not None
    return found


def counting(gate: Gate, **options: Any) -> list[Any]:
    """A handler that counts its calls."""
    ran: list[Any] = []

    @gate.handler("orders", key="{id}", **options)
    def take(event: dict[str, Any]) -> int:
        ran.append(event)
        return len(ran)

    return ran


def test_every_arrival_runs_and_what_the_gate_would_have_done_is_counted(gate: Gate) -> None:
    ran = counting(gate, mode="observe")
    given = [{"id": 1}, {"id": 1}, {"id": 1, "more": 2}, {"no": "id"}, {"id": 2}]
    found = [gate.admit_sync("orders", event) for event in given]
    assert [one.value for one in found] == [1, 2, 3, 4, 5]
    assert all(one.verdict is Verdict.RUN for one in found)
    assert ran == given
    seen = observed(gate, 5)
    assert (seen.new, seen.repeats, seen.conflicts, seen.quarantines) == (2, 1, 1, 1)
    assert seen.reasons == {"key_input": 1}
    assert {(one.what, one.label) for one in seen.samples} == {
        ("replay", "1"), ("conflict", "1"), ("quarantined", "id: missing")
    }  # fmt: skip
    assert [one.reason for one in seen.samples if one.what == "conflict"] == ["differs in: more"]


def test_what_ran_while_a_surface_observed_replays_once_it_is_on(url: str, gate: Gate) -> None:
    ran = counting(gate, mode="observe")
    assert gate.admit_sync("orders", {"id": 1}).value == 1
    observed(gate, 1)
    switch(url, SurfaceMode.ON)
    obey(gate)
    again = gate.admit_sync("orders", {"id": 1})
    assert (again.verdict, again.value, len(ran)) == (Verdict.REPLAY, 1, 1)
    assert gate.admit_sync("orders", {"id": 2}).verdict is Verdict.RUN


def test_an_event_in_flight_at_the_switch_is_busy_and_then_replays(url: str, gate: Gate) -> None:
    runs, goes_on = threading.Event(), threading.Event()

    @gate.handler("orders", key="{id}", mode="observe")
    def take(event: dict[str, Any]) -> str:
        runs.set()
        assert goes_on.wait(DEADLINE_SECONDS)
        return "done"

    first = threading.Thread(target=gate.admit_sync, args=("orders", {"id": 1}))
    first.start()
    assert runs.wait(DEADLINE_SECONDS)
    observed(gate, 1)
    switch(url, SurfaceMode.ON)
    obey(gate)
    assert gate.admit_sync("orders", {"id": 1}).verdict is Verdict.BUSY
    goes_on.set()
    first.join(DEADLINE_SECONDS)
    wait_until(lambda: gate.admit_sync("orders", {"id": 1}).verdict is Verdict.REPLAY)
    assert gate.admit_sync("orders", {"id": 1}).value == "done"


def test_a_handler_that_fails_leaves_its_key_unknown(url: str, gate: Gate) -> None:
    ran = []

    @gate.handler("orders", key="{id}", mode="observe")
    def take(event: dict[str, Any]) -> None:
        ran.append(event)
        if len(ran) == 1:
            raise ValueError("first time")

    with pytest.raises(ValueError, match="first time"):
        gate.admit_sync("orders", {"id": 1})
    observed(gate, 1)
    with gate.engine.store.look() as session:
        wait_until(lambda: not session.entries(EntryFilter(), None, 9))
    switch(url, SurfaceMode.ON)
    obey(gate)
    assert gate.admit_sync("orders", {"id": 1}).verdict is Verdict.RUN
    assert len(ran) == 2


@pytest.mark.parametrize(
    "address", ["sqlite:////proc/no-such-folder/ledger.db", "postgresql://nobody@127.0.0.1:1/none"]
)
def test_a_ledger_that_is_down_stops_no_observed_handler(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Gate(address) as gate, caplog.at_level(logging.WARNING, "oncegate.surfaces"):
        ran = counting(gate, mode="observe")
        began = CLOCK.ticks_ms()
        assert [gate.admit_sync("orders", {"id": 1}).value for _ in range(3)] == [1, 2, 3]
        assert CLOCK.ticks_ms() - began < DEADLINE_SECONDS * 1000
        assert len(ran) == 3
        wait_until(lambda: "arrivals are not recorded" in caplog.text)


def test_functions_run_as_they_were_called(gate: Gate) -> None:
    @gate.once(key="{order}", name="shop.pay", mode="observe")
    def pay(order: int, session: Any) -> Any:
        return session

    session = object()
    assert pay(1, session) is session
    assert pay(1, session) is session
    wait_until(lambda: (found := report(gate, "shop.pay")) is not None and found.arrivals == 2)


def test_effects_are_called_every_time_with_the_key(gate: Gate) -> None:
    bank, keys = gate.downstream("bank", honours_key="7d"), []

    @gate.handler("orders", key="{id}", mode="observe")
    def take(event: dict[str, Any], once: Any) -> str:
        once.commit(resource="r-1")
        return str(once.effect(bank, charge, name="charge"))

    def charge(idempotency_key: str) -> None:
        keys.append(idempotency_key)

    for _ in range(2):
        assert gate.admit_sync("orders", {"id": 1}).resource == "r-1"
    assert len(keys) == 2
    assert len(set(keys)) == 1
    assert keys[0].endswith(":charge")


async def test_async_handlers_observe(url: str) -> None:
    async with Gate(url) as gate:
        bank, ran = gate.downstream("bank", honours_key="7d"), []

        async def charge(idempotency_key: str) -> str:
            ran.append(idempotency_key)
            return "paid"

        @gate.handler("orders", key="{id}", mode="observe")
        async def take(event: dict[str, Any], once: Any) -> str:
            return str(await once.effect(bank, charge, name="charge"))

        assert [(await gate.admit("orders", {"id": 1})).value for _ in range(2)] == ["paid", "paid"]
        assert len(ran) == 2


def test_a_paused_surface_runs_nothing_and_asks_to_come_again(url: str, gate: Gate) -> None:
    ran = counting(gate)
    assert gate.admit_sync("orders", {"id": 1}).verdict is Verdict.RUN
    switch(url, SurfaceMode.PAUSED)
    obey(gate)
    for event in ({"id": 1}, {"id": 2}):
        found = gate.admit_sync("orders", event)
        assert (found.verdict, found.is_paused, found.acknowledge) == (Verdict.BUSY, True, False)
        assert found.retry_after_seconds > 0
        with pytest.raises(Paused, match="surface orders is paused"):
            found.result()
    assert ran == [{"id": 1}]
    switch(url, SurfaceMode.ON)
    obey(gate)
    assert gate.admit_sync("orders", {"id": 1}).verdict is Verdict.REPLAY
    assert gate.admit_sync("orders", {"id": 2}).verdict is Verdict.RUN


def test_a_process_that_starts_knows_that_a_surface_is_paused(url: str, gate: Gate) -> None:
    counting(gate)
    gate.admit_sync("orders", {"id": 1})
    switch(url, SurfaceMode.PAUSED)
    with Gate(url) as other:
        ran = counting(other)
        assert other.admit_sync("orders", {"id": 2}).is_paused
        assert not ran


def test_recovery_of_a_paused_surface_rests(url: str, gate: Gate) -> None:
    ran = []

    @gate.handler("orders", key="{id}", retry_base="1ms", retry_cap="1ms")
    def take(event: dict[str, Any], once: Any) -> None:
        ran.append(1)
        if len(ran) == 1:
            raise ValueError("not now")

    with pytest.raises(ValueError, match="not now"):
        gate.admit_sync("orders", {"id": 1})
    switch(url, SurfaceMode.PAUSED)
    obey(gate)
    reconciler = Reconciler(gate, at_once=True)
    (looked,) = reconciler.run_once().looked
    assert (looked.became, len(ran)) == ("busy", 1)
    switch(url, SurfaceMode.ON)
    obey(gate)
    (looked,) = reconciler.run_once().looked
    assert looked.became == "finished"


async def test_accepted_events_of_a_paused_surface_rest(url: str) -> None:
    async with Gate(url) as gate:
        ran = counting(gate, mode="accept")
        assert (await gate.admit("orders", {"id": 1})).verdict is Verdict.ACCEPTED
        switch(url, SurfaceMode.PAUSED)
        obey(gate)
        work = AcceptedWork(gate)
        await work.run_once()
        assert not ran
        assert (await gate.admit("orders", {"id": 2})).is_paused


def test_a_decision_is_made_once_against_what_was_seen(url: str, gate: Gate) -> None:
    counting(gate)
    gate.admit_sync("orders", {"id": 1})
    with gate.engine.store.look() as session:
        seen = decided_about(session, "orders")
    made = switched_to(seen.decided, SurfaceMode.PAUSED, "ann", "why", 1)
    decide(gate.engine.commits, CLOCK, seen, made, what="paused", actor="ann", reason="why")
    with pytest.raises(ConfigError, match="was changed meanwhile"):
        decide(gate.engine.commits, CLOCK, seen, made, what="paused", actor="bob", reason="too")
    with gate.engine.store.look() as session:
        notes = [one.note for one in session.read_log(0, 100) if one.note and "surface orders" in one.note]
    assert notes == ["surface orders: paused; why"]


def test_a_field_that_a_person_ignores_makes_no_more_conflicts(url: str, gate: Gate) -> None:
    ran = counting(gate)
    gate.admit_sync("orders", {"id": 1, "sent": 1, "amount": 5})
    assert gate.admit_sync("orders", {"id": 1, "sent": 2, "amount": 5}).verdict is Verdict.CONFLICT
    with gate.engine.store.look() as session:
        seen = decided_about(session, "orders")
    made = ignoring(seen.decided, "sent")
    decide(gate.engine.commits, CLOCK, seen, made, what="ignores", actor="ann", reason="why")
    obey(gate)
    # Known before the decision, with the field in its fingerprint; and a key that is new after it.
    for sent in (1, 2, 3):
        found = gate.admit_sync("orders", {"id": 1, "sent": sent, "amount": 5})
        assert (found.verdict, found.value) == (Verdict.REPLAY, 1)
    for sent, verdict in ((1, Verdict.RUN), (2, Verdict.REPLAY)):
        assert gate.admit_sync("orders", {"id": 2, "sent": sent, "amount": 5}).verdict is verdict
    assert gate.admit_sync("orders", {"id": 1, "sent": 1, "amount": 6}).verdict is Verdict.CONFLICT
    assert len(ran) == 2


def test_surfaces_that_write_in_the_ledgers_transaction_cannot_observe(gate: Gate) -> None:
    with pytest.raises(ConfigError, match="cannot observe: its handler writes"):
        gate.handler("a", key="{id}", mode="observe", same_database=True)(lambda event, once: None)
    with pytest.raises(ConfigError, match="cannot observe: its handler writes"):
        gate.handler("b", key="{id}", mode="observe", writes=lambda event: ())(lambda event: None)


def test_a_process_that_cannot_observe_stays_on(url: str, gate: Gate) -> None:
    gate.handler("orders", key="{id}", same_database=True)(lambda event, once: None)
    gate.admit_sync("orders", {"id": 1})
    switch(url, SurfaceMode.OBSERVE)
    obey(gate)
    assert gate.admit_sync("orders", {"id": 1}).verdict is Verdict.REPLAY
    assert "cannot observe" in gate.engine._context.decided.refused["orders"]


def test_a_ledger_with_claims_only_refuses_to_observe() -> None:
    store = ClaimsOnlyStore(SimulatedLedger(), ManualClock())
    with Gate(store=store) as gate, pytest.raises(ConfigError, match="mode='observe' need"):
        gate.handler("orders", key="{id}", mode="observe")(lambda event: None)


PROGRAM = """
import json, sys, time
from oncegate import Gate
gate, ran = Gate(sys.argv[1]), []
gate.handler("orders", key="{id}")(ran.append)
gate.admit_sync("orders", {"id": 0})
for line in sys.stdin:
    found = gate.admit_sync("orders", {"id": 0})
    print(json.dumps([found.verdict.value, found.is_paused, len(ran)]), flush=True)
"""


@pytest.mark.slow
def test_running_processes_obey_within_seconds(url: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, "utf-8")
    with subprocess.Popen(
        [sys.executable, str(program), url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert _ask(process)[0] == "replay"
            for mode, says in ((SurfaceMode.PAUSED, "busy"), (SurfaceMode.OBSERVE, "run")):
                switch(url, mode)
                switched_at = CLOCK.ticks_ms()
                wait_until(lambda says=says: _ask(process)[0] == says)  # type: ignore[misc]
                # Twice the promise: the machine may be busy.
                assert CLOCK.ticks_ms() - switched_at < 2 * OBEYED_SECONDS * 1000
        finally:
            process.kill()


def _ask(process: subprocess.Popen[str]) -> list[Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return list(json.loads(process.stdout.readline()))


def test_a_repeat_that_is_observed_changes_nothing_of_its_entry(url: str, gate: Gate) -> None:
    counting(gate, mode="observe")
    gate.admit_sync("orders", {"id": 1})
    observed(gate, 1)
    with gate.engine.store.look() as session:
        before = session.entries(EntryFilter(), None, 9)
        log = len(session.read_log(0, 100))
    assert before[0].state is State.COMMITTED
    gate.admit_sync("orders", {"id": 1})
    gate.admit_sync("orders", {"id": 1, "other": 1})
    observed(gate, 3)
    with gate.engine.store.look() as session:
        assert session.entries(EntryFilter(), None, 9) == before
        assert len(session.read_log(0, 100)) == log


@pytest.mark.slow
def test_an_observed_handler_that_dies_is_not_called_again_once_the_surface_is_on(
    url: str, tmp_path: Path
) -> None:
    """It recorded no start of its effects, so a person decides (I1)."""
    program = """
import os, sys
from pathlib import Path
from oncegate import Gate
gate = Gate(sys.argv[1])
bank = gate.downstream("bank")
def pay():
    with Path("paid").open("a") as file:
        file.write("paid ")
@gate.handler("orders", key="{id}", mode="observe", time_limit="1s")
def order(event, once):
    once.effect(bank, pay, name="pay")
    while not any(one.fence for one in entries()):
        pass
    os._exit(9)
def entries():
    from oncegate.store import EntryFilter
    with gate.engine.store.look() as session:
        return session.entries(EntryFilter(), None, 10)
gate.engine.store.connect().close()
gate.admit_sync("orders", {"id": "N-1"})
"""
    died = subprocess.run(
        [sys.executable, "-c", program, url], cwd=tmp_path, timeout=DEADLINE_SECONDS, check=False
    )
    assert died.returncode == 9
    calls: list[str] = []
    with Gate(url) as gate:
        bank = gate.downstream("bank")

        @gate.handler("orders", key="{id}", time_limit="1s")
        def order(event: Any, once: Any) -> None:
            once.effect(bank, lambda: calls.append("again"), name="pay")

        def verdict() -> Verdict:
            try:
                return gate.admit_sync("orders", {"id": "N-1"}).verdict
            except OutcomeUnknown:
                return Verdict.HOLD

        wait_until(lambda: verdict() is not Verdict.BUSY)
        assert verdict() is Verdict.HOLD
    assert (calls, (tmp_path / "paid").read_text()) == ([], "paid ")


def test_an_observed_failure_of_an_open_key_goes_to_a_person(url: str, gate: Gate) -> None:
    """The steps on record are of the gate's own attempt; the observed handler may have acted (I1)."""
    bank = gate.downstream("bank")
    calls: list[str] = []

    def pay() -> None:
        calls.append("paid")
        if len(calls) == 1:
            raise NotApplied("no connection")

    @gate.handler("orders", key="{id}")
    def order(event: Any, once: Any) -> None:
        once.effect(bank, pay, name="pay")
        raise RuntimeError("after the call")

    with pytest.raises(NotApplied):
        gate.admit_sync("orders", {"id": "N-1"})
    switch(url, SurfaceMode.OBSERVE)
    obey(gate)
    with pytest.raises(RuntimeError):
        gate.admit_sync("orders", {"id": "N-1"})
    observed(gate, 1)

    def state() -> State:
        with gate.engine.store.look() as session:
            (entry,) = session.entries(EntryFilter(), None, 10)
        return entry.state

    wait_until(lambda: state() is State.UNKNOWN)
    switch(url, SurfaceMode.ON)
    obey(gate)
    assert gate.admit_sync("orders", {"id": "N-1"}).verdict is Verdict.HOLD
    assert calls == ["paid", "paid"], "one attempt of the gate, one that was observed, and none after"
