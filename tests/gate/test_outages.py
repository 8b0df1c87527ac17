"""Outages: retries have a horizon in time, nothing is called inside a wait, and nobody is asked for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from oncegate import Busy, Gate, NotApplied, Once, OutcomeUnknown
from oncegate.commit.group_commit import GroupCommit
from oncegate.errors import ConfigError, OncegateError
from oncegate.gate.admission import Verdict
from oncegate.gate.flows.downstream_turns import Resting
from oncegate.maintenance.accepted_events import AcceptedWork
from oncegate.maintenance.reconciler import Reconciler
from oncegate.model.backoff import spread
from oncegate.review.decisions import Decisions
from oncegate.signals.alerts import evaluate
from oncegate.signals.definition import Level
from oncegate.signals.measures import measure
from oncegate.signals.snapshot import HOUR
from tests.support.gates import Ledger

pytestmark = pytest.mark.waits
EVENT = {"id": "N-1"}


def refused() -> Any:
    raise ConnectionRefusedError(111, "Connection refused")


def broken() -> Any:
    raise RuntimeError("500")


class Bank:
    """A downstream that does what the test says, and counts."""

    def __init__(self) -> None:
        self.act: Callable[[], Any] = lambda: "S-1"
        self.calls = 0

    def pay(self, idempotency_key: str = "") -> Any:
        self.calls += 1
        return self.act()


def _gate(ledger: Ledger, bank: Bank, *, honours_key: str | None = "7d", **options: Any) -> Gate:
    gate = ledger.gate()
    downstream = gate.downstream("bank", honours_key=honours_key)

    @gate.handler("orders", key="{id}", **options)
    def order(event: dict[str, str], once: Once) -> Any:
        return once.effect(downstream, bank.pay)

    return gate


def _deliver(gate: Gate, event: dict[str, str] = EVENT) -> str:
    try:
        return gate.admit_sync("orders", event).verdict.value
    except Exception as error:  # noqa: BLE001  what a sender sees
        return type(error).__name__


@pytest.mark.slow
def test_event_in_a_loop_is_not_held_and_calls_by_the_schedule(ledger: Ledger) -> None:
    """A6: ten deliveries a second for ten minutes at a downstream that fails: 10 calls, nobody asked."""
    bank = Bank()
    bank.act = broken
    gate = _gate(ledger, bank)
    seen = set()
    for _ in range(6_000):
        seen.add(_deliver(gate))
        ledger.clock.advance(0.1)
    assert seen == {"RuntimeError", "busy"}
    assert bank.calls == 10  # at 0, 1, 3, 7, 15, 31, 63, 127, 255 and 511 s, and a little
    assert ledger.state() == "retryable"


def test_arrival_inside_the_wait_is_busy_with_the_time_and_calls_nothing(ledger: Ledger) -> None:
    """I26: for the library it is `Busy`, with `retry_after_seconds`."""
    bank = Bank()
    bank.act = broken
    gate = _gate(ledger, bank)
    assert _deliver(gate) == "RuntimeError"
    wait = 1 + spread(1, 1) / 10
    ledger.clock.advance(0.4)
    admission = gate.admit_sync("orders", EVENT)
    assert (admission.verdict, admission.delayed, admission.is_down) == (Verdict.BUSY, True, False)
    assert admission.retry_after_seconds == pytest.approx(wait - 0.4, abs=0.002)
    with pytest.raises(Busy, match="waits to be tried again"):
        admission.result()
    assert bank.calls == 1
    ledger.clock.advance(admission.retry_after_seconds)
    bank.act = lambda: "S-1"
    assert gate.admit_sync("orders", EVENT).value == "S-1"


def test_recovery_obeys_the_same_time(ledger: Ledger) -> None:
    """I26: a worker does not run what an arrival may not; a person who asks may."""
    bank = Bank()
    bank.act = broken
    gate = _gate(ledger, bank, retry_base="100s")
    assert _deliver(gate) == "RuntimeError"
    ledger.clock.advance(99)
    assert Reconciler(gate).run_once().looked == []
    assert bank.calls == 1
    assert Reconciler(gate, at_once=True).run_once().count("failed again") == 1
    assert bank.calls == 2


def test_wall_clock_has_no_say_in_waits(ledger: Ledger) -> None:
    """I15: neither a leap ahead ends a wait, nor one back makes it longer."""
    bank = Bank()
    bank.act = broken
    gate = _gate(ledger, bank)
    assert _deliver(gate) == "RuntimeError"
    ledger.clock.step_wall(365 * 86_400)
    assert (_deliver(gate), bank.calls) == ("busy", 1)
    ledger.clock.step_wall(-400 * 86_400)
    ledger.clock.advance(1.2)
    assert (_deliver(gate), bank.calls) == ("RuntimeError", 2)


@pytest.mark.slow
def test_horizon_ends_in_front_of_a_person(ledger: Ledger) -> None:
    """I26: after retry_for of failures, never before, and said so on the entry."""
    bank = Bank()
    bank.act = broken
    gate = _gate(ledger, bank, retry_for="1h")
    elapsed = 0
    while ledger.states() in ([], ["retryable"]):
        _deliver(gate)
        ledger.clock.advance(10)
        elapsed += 10
        assert elapsed < 2 * 3600, "without an end"
    assert ledger.state() == "held"
    assert elapsed >= 3000
    assert "gave up after" in ledger.reason()


def test_explicit_attempts_are_a_further_limit(ledger: Ledger) -> None:
    """`attempts_max=3` ends after three that count, each after its wait."""
    bank = Bank()
    bank.act = broken
    gate = _gate(ledger, bank, attempts_max=3)
    for _ in range(3):
        _deliver(gate)
        ledger.clock.advance(60)
    assert (ledger.state(), bank.calls) == ("held", 3)


def test_retries_without_any_end_are_refused(ledger: Ledger) -> None:
    """I26: who decides when must at least say how often."""
    with pytest.raises(ConfigError, match="retries need an end"):
        ledger.gate().handler("orders", key="{id}", retry_for=None)


@pytest.mark.parametrize("failure", [refused, lambda: (_ for _ in ()).throw(NotApplied("full"))])
def test_what_certainly_did_not_happen_uses_nothing_up(ledger: Ledger, failure: Any) -> None:
    """I26: half an hour of it leaves the first attempt the first."""
    bank = Bank()
    bank.act = failure
    gate = _gate(ledger, bank, attempts_max=2)
    for _ in range(360):
        _deliver(gate)
        ledger.clock.advance(5)
    assert (ledger.state(), ledger.attempt()) == ("retryable", 0)
    assert 30 <= bank.calls <= 90, "by its own schedule, up to 30 s apart"
    bank.act = lambda: "S-1"
    for _ in range(8):
        ledger.clock.advance(5)
        _deliver(gate)
    assert ledger.state() == "committed"


@pytest.mark.slow
def test_even_what_certainly_did_not_happen_has_an_end(ledger: Ledger) -> None:
    """I26: seven horizons later a person is asked, and told why."""
    bank = Bank()

    def full() -> Any:
        raise NotApplied("full")

    bank.act = full
    gate = _gate(ledger, bank, retry_for="1h")
    for _ in range(7 * 60 + 5):
        _deliver(gate)
        ledger.clock.advance(60)
    assert ledger.state() == "held"
    assert "gave up after 7h in which nothing could be done" in ledger.reason()


@pytest.mark.slow
def test_half_an_hour_of_several_processes_needs_nobody_and_few_calls(ledger: Ledger) -> None:
    """B4: circuits are of a process; four of them find an outage, and its end, each for itself."""
    banks = [Bank() for _ in range(4)]
    gates = [_gate(ledger, bank) for bank in banks]
    for bank in banks:
        bank.act = refused
    for second in range(0, 1800, 5):
        for number, gate in enumerate(gates):
            _deliver(gate, {"id": f"N-{second % 60}-{number}"})
        ledger.clock.advance(5)
    # 1, 2, 4, 8 and 16 s, then twice a minute
    assert all(30 <= bank.calls <= 5 + 2 * 30 for bank in banks), [bank.calls for bank in banks]
    assert set(ledger.states()) == {"retryable"}
    for bank in banks:
        bank.act = lambda: "S-1"
    for _ in range(30):
        ledger.clock.advance(2)
        for gate in gates:
            Reconciler(gate).run_once()
    assert ledger.states() == ["committed"] * 48


@pytest.mark.slow
def test_approval_starts_a_new_horizon(ledger: Ledger) -> None:
    """I26: what a person lets through beyond the end is tried as long as before, then held again."""
    bank = Bank()
    bank.act = refused
    gate = _gate(ledger, bank, retry_for="10m")
    for approvals in range(2):
        for minute in range(70):
            _deliver(gate)
            assert ledger.state() == "retryable", (approvals, minute)
            ledger.clock.advance(60)
        ledger.clock.advance(60)
        _deliver(gate)
        assert ledger.state() == "held"
        with closing(GroupCommit(gate.engine.store)) as commits:
            Decisions(commits, ledger.clock).approve(1, actor="ann", reason="the bank says tomorrow")
    bank.act = lambda: "S-1"
    ledger.clock.advance(60)
    _deliver(gate)
    assert ledger.state() == "committed"


@pytest.mark.slow
def test_downstream_that_is_down_is_called_by_one_at_a_time(ledger: Ledger) -> None:
    """B4: a hundred events of an outage are a handful of calls; all are done when it is back."""
    bank = Bank()
    bank.act = refused
    gate = _gate(ledger, bank)
    events = [{"id": f"N-{number}"} for number in range(100)]
    seen = [_deliver(gate, event) for event in events]
    assert seen[0] == "ConnectionRefusedError"
    assert set(seen[1:]) == {"Resting"}
    assert bank.calls == 1
    for _ in range(180):  # half an hour, with a worker every 10 s
        ledger.clock.advance(10)
        Reconciler(gate).run_once()
    assert bank.calls < 80
    assert set(ledger.states()) == {"retryable"}
    bank.act = lambda: "S-1"
    for _ in range(8):
        ledger.clock.advance(10)
        Reconciler(gate).run_once()
    assert ledger.states() == ["committed"] * 100


def test_arrival_learns_that_its_downstream_is_down(ledger: Ledger) -> None:
    """What the service makes 503 of."""
    bank = Bank()
    bank.act = refused
    gate = _gate(ledger, bank)
    _deliver(gate)
    with pytest.raises(Resting, match="bank is down and rests") as caught:
        gate.admit_sync("orders", {"id": "N-2"})
    assert isinstance(caught.value, OncegateError)
    assert caught.value.retry_after_seconds == pytest.approx(1.0, abs=0.11)
    assert gate.admit_sync("orders", EVENT).is_down


def test_refused_connection_of_an_unrepeatable_downstream_asks_nobody(ledger: Ledger) -> None:
    """I9: no byte was sent, so it is as if it had never begun."""
    bank = Bank()
    bank.act = refused
    gate = _gate(ledger, bank, honours_key=None)
    assert _deliver(gate) == "ConnectionRefusedError"
    assert ledger.state() == "retryable"
    bank.act = lambda: "S-1"
    ledger.clock.advance(5)
    assert gate.admit_sync("orders", EVENT).value == "S-1"


@pytest.mark.parametrize("error", [ConnectionResetError, TimeoutError, ValueError])
def test_anything_else_of_an_unrepeatable_downstream_is_in_doubt(
    ledger: Ledger, error: type[Exception]
) -> None:
    """I9: it may have been carried out; only a person may say that it was not."""
    bank = Bank()

    def lost() -> Any:
        raise error("no answer")

    bank.act = lost
    gate = _gate(ledger, bank, honours_key=None)
    _deliver(gate)
    assert ledger.state() == "unknown"


class TooMany(Exception):
    """What a client raises of an answer 429; some clients tell how often they sent the request."""

    def __init__(self, *lost: str) -> None:
        retries = SimpleNamespace(history=lost)
        self.response = SimpleNamespace(status_code=429, raw=SimpleNamespace(retries=retries))


@pytest.mark.parametrize(("error", "state"), [(TooMany(), "retryable"), (TooMany("lost"), "unknown")])
def test_unrepeatable_downstream_that_turned_the_only_request_away_did_nothing(
    ledger: Ledger, error: Exception, state: str
) -> None:
    """I9: 429 answers one request. Of one that the client sent before, it says nothing."""
    bank = Bank()

    def turn_away() -> Any:
        raise error

    bank.act = turn_away
    _deliver(_gate(ledger, bank, honours_key=None))
    assert ledger.state() == state


def test_opaque_function_that_found_its_downstream_resting_did_not_start(ledger: Ledger) -> None:
    """I9: its reservation counts as its start, and here nothing was called."""
    gate, calls = ledger.gate(), list[str]()
    bank = gate.downstream("bank")

    @gate.once(key="{order}", downstream=bank)
    def pay(order: str) -> str:
        calls.append(order)
        if order == "first":
            raise ConnectionRefusedError(111, "refused")
        return "paid"

    with pytest.raises(ConnectionRefusedError):
        pay("first")
    with pytest.raises(Resting):
        pay("second")
    assert calls == ["first"]
    ledger.clock.advance(5)
    assert pay("second") == "paid"
    assert ledger.states() == ["retryable", "committed"]


def test_errors_of_a_handlers_own_code_rest_nothing(ledger: Ledger) -> None:
    """I11: twenty poisoned events in a row hold up no other."""
    bank = Bank()
    bank.act = broken
    gate = _gate(ledger, bank)
    for number in range(20):
        assert _deliver(gate, {"id": f"bad-{number}"}) == "RuntimeError"
    bank.act = lambda: "S-1"
    assert _deliver(gate, {"id": "good"}) == "run"


def test_person_is_still_asked_where_only_a_person_knows(ledger: Ledger) -> None:
    """An outcome that is unknown is not an outage."""
    bank = Bank()

    def unknown() -> Any:
        raise OutcomeUnknown("the answer was cut")

    bank.act = unknown
    _deliver(_gate(ledger, bank))
    assert ledger.state() == "unknown"


def _signals(ledger: Ledger, gate: Gate) -> set[str]:
    gate.engine.sightings.flush()
    with gate.engine.store.look() as session:
        found = evaluate(measure(session, ledger.clock))
    return {one.definition.name for one in found if one.level > Level.OK}


def test_senders_that_were_told_to_come_again_have_no_fault(ledger: Ledger) -> None:
    """C6: in an outage they repeat all events in their order, as one that reads an old position does."""
    bank = Bank()
    bank.act = refused
    gate = _gate(ledger, bank)
    events = [{"id": f"N-{number}"} for number in range(30)]
    for _ in range(20):
        for event in events:
            _deliver(gate, event)
        ledger.clock.advance(2)
    assert "sender_bugs" not in _signals(ledger, gate)


def test_accepted_events_that_are_tried_again_did_not_arrive_again(ledger: Ledger) -> None:
    """D1: each was sent once; attempts of our own are no repeats of the sender."""
    bank = Bank()
    bank.act = broken
    gate = _gate(ledger, bank, mode="accept", lane="{id}")
    work = AcceptedWork(gate, jitter=lambda: 0.5)
    for number in range(30):
        assert _deliver(gate, {"id": f"N-{number}"}) == "accepted"
    for _ in range(12):
        asyncio.run(work.run_once())
        ledger.clock.advance(10)
    assert bank.calls > 60
    assert "repeat_ratio_high" not in _signals(ledger, gate)
    with gate.engine.store.look() as session:
        counts = measure(session, ledger.clock).counts(HOUR, "orders")
    assert (counts.arrivals, counts.repeats) == (30, 0)
