"""A way back from failed: a person lets an entry run again, and nothing happens twice (D4, I9, I20)."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from oncegate import Failed, Gate, Once, OutcomeUnknown
from oncegate.errors import RulingRefused
from oncegate.gate.admission import Verdict
from oncegate.maintenance.reconciler import Reconciler
from oncegate.review.decisions import Decisions, StepDecision
from oncegate.store import EntryDetail, LogKind
from oncegate.testing import CrashReached
from tests.support.gates import LEASE, DeadAfter, Ledger

pytestmark = pytest.mark.waits
EVENT = {"id": "N-1"}


class Shop:
    """Three steps: reserve, pay, notify. `pay` does what the script says; all calls are counted."""

    def __init__(self, ledger: Ledger, **promise: Any) -> None:
        self.ledger, self.promise, self.script = ledger, promise, "refuse"
        self.calls: list[str] = []

    def gate(self, dies: DeadAfter | None = None) -> Gate:
        gate = self.ledger.gate(dies)
        stock = gate.downstream("stock", honours_key="30d")
        bank = gate.downstream("bank", **self.promise)

        @gate.handler("orders", key="{id}", lease=LEASE, final_errors=(KeyError,))
        def order(event: dict[str, str], once: Once) -> str:
            slot = once.effect(stock, self._reserve, name="reserve")
            if self.script == "bug":
                raise KeyError("tariff")
            once.effect(bank, self._pay, name="pay")
            return f"{slot} notified {once.effect(stock, self._notify, name='notify')}"

        return gate

    def _reserve(self, idempotency_key: str = "") -> str:
        self.calls.append("reserve")
        return f"slot {self.calls.count('reserve')}"

    def _pay(self, idempotency_key: str = "") -> str:
        self.calls.append("pay")
        if self.script == "refuse":
            raise Failed("the card was declined")
        return "paid"

    def _notify(self, idempotency_key: str = "") -> str:
        self.calls.append("notify")
        return "sent"


def deliver(gate: Gate) -> Any:
    with contextlib.suppress(Failed, KeyError, CrashReached):
        return gate.admit_sync("orders", EVENT)
    return None


def seen(gate: Gate) -> EntryDetail:
    with gate.engine.store.look() as session:
        found = session.detail(1)
    assert found is not None
    return found


def retry(gate: Gate, **more: Any) -> None:
    decisions = Decisions(gate.engine.commits, gate.engine.clock)
    decisions.retry(1, actor="ann", reason="the tariff is known now", **more)


HONOURS: dict[str, Any] = {"honours_key": "30d"}


@pytest.mark.parametrize("promise", [HONOURS, {"probe": lambda key: None}], ids=["honours", "asked"])
def test_failed_entry_runs_again_and_skips_what_is_done(ledger: Ledger, promise: dict[str, Any]) -> None:
    shop = Shop(ledger, **promise)
    gate = shop.gate()
    deliver(gate)
    assert (ledger.state(), shop.calls) == ("failed", ["reserve", "pay"])
    assert deliver(gate).verdict is Verdict.REPLAY
    retry(gate)
    assert (ledger.state(), seen(gate).outcome) == ("retryable", None)
    shop.script = "well"
    ledger.clock.advance(120)  # no earlier request can be under way at a bank that is asked
    assert Reconciler(gate).run_once().looked
    assert ledger.state() == "committed"
    assert shop.calls == ["reserve", "pay", "pay", "notify"]
    assert deliver(gate).value == "slot 1 notified sent"
    kinds = [record.kind for record in seen(gate).records if record.kind is not LogKind.PROBED]
    assert kinds == [LogKind.FAILED, LogKind.RUN_AGAIN, LogKind.TAKEN_UP, LogKind.COMMITTED]


def test_final_error_before_a_call_runs_again_without_a_question(ledger: Ledger) -> None:
    """An unrepeatable call that was never made needs no word of a person."""
    shop = Shop(ledger)
    shop.script = "bug"
    gate = shop.gate()
    deliver(gate)
    assert (ledger.state(), shop.calls) == ("failed", ["reserve"])
    retry(gate)
    shop.script = "well"
    assert deliver(gate).value == "slot 1 notified sent"
    assert shop.calls == ["reserve", "pay", "notify"]


def test_unrepeatable_call_that_was_made_needs_a_persons_word(ledger: Ledger) -> None:
    """At most once: its start is on record, and Failed does not say whether it acted."""
    shop = Shop(ledger)
    gate = shop.gate()
    deliver(gate)
    with pytest.raises(RulingRefused, match="--step pay=did-not-happen"):
        retry(gate)
    assert ledger.state() == "failed"
    retry(gate, steps={"pay": StepDecision(happened=False)})
    shop.script = "well"
    deliver(gate)
    assert (ledger.state(), shop.calls) == ("committed", ["reserve", "pay", "pay", "notify"])


@pytest.mark.parametrize(("promise", "told"), [(HONOURS, "committed"), ({}, "failed")], ids=str)
def test_opaque_handler_that_failed_runs_again(ledger: Ledger, promise: dict[str, Any], told: str) -> None:
    """As a handler's 4xx behind the service."""
    gate, answers = ledger.gate(), [Failed("the handler answered 422")]
    bank = gate.downstream("bank", **promise)

    @gate.handler("orders", key="{id}", downstream=bank)
    def order(event: dict[str, str], idempotency_key: str = "") -> str:
        if answers:
            raise answers.pop()
        return "done"

    deliver(gate)
    with contextlib.suppress(RulingRefused):
        retry(gate)
        deliver(gate)
    assert ledger.state() == told
    if told == "failed":
        retry(gate, steps={"call": StepDecision(happened=False)})
        assert deliver(gate).value == "done"


@pytest.mark.parametrize("is_declared", [True, False], ids=["declared", "recorded"])
def test_call_in_doubt_before_the_failure_is_not_forgotten(ledger: Ledger, is_declared: bool) -> None:
    """I9: the first attempt died after its call; the second failed before it. The doubt stays."""
    shop = Shop(ledger, honours_key="1h")
    shop.script = "well"
    dying = shop.gate(DeadAfter("effect.after", 5 if is_declared else 2))
    if is_declared:  # steps of a second event leave no record before they are called
        dying.admit_sync("orders", {"id": "first"})
    with pytest.raises(CrashReached):
        dying.admit_sync("orders", EVENT)
    ledger.lapse()
    shop.script, gate = "bug", shop.gate()
    with pytest.raises(KeyError):
        gate.admit_sync("orders", EVENT)
    number = len(ledger.states())
    assert ledger.states()[-1] == "failed"
    ledger.clock.advance(7200)
    Decisions(gate.engine.commits, ledger.clock).retry(number, actor="ann", reason="mended")
    shop.script, before = "well", shop.calls.count("pay")
    with pytest.raises(OutcomeUnknown, match="pay at bank may have happened"):
        gate.admit_sync("orders", EVENT)
    assert shop.calls.count("pay") == before, "the bank has forgotten the key"
    assert ledger.states()[-1] == "unknown"


def test_every_process_learns_that_a_failed_entry_ran_again(ledger: Ledger) -> None:
    """I28: a failure is not answered from memory, because it may not be the last word."""
    shop = Shop(ledger, **HONOURS)
    one, other = shop.gate(), shop.gate()
    deliver(one)
    assert deliver(other).error == "the card was declined"
    shop.script = "well"
    retry(one)
    deliver(one)
    assert deliver(other).value == "slot 1 notified sent"


def test_second_click_and_an_ended_entry_change_nothing(ledger: Ledger) -> None:
    """I20: fenced and once; what a person ended stays ended."""
    shop = Shop(ledger, **HONOURS)
    gate = shop.gate()
    deliver(gate)
    fence = seen(gate).entry.fence
    retry(gate, fence=fence)
    with pytest.raises(RulingRefused, match="ann"):
        retry(gate, fence=fence)
    deliver(gate)
    assert (ledger.state(), shop.calls.count("pay")) == ("failed", 2)
    decisions = Decisions(gate.engine.commits, ledger.clock)
    ledger.rows("UPDATE oncegate_entry SET state = 6")
    decisions.reject(1, actor="bob", reason="never")
    with pytest.raises(RulingRefused, match="bob rejected it"):
        retry(gate)


def test_failed_entries_are_told_by_a_signal(ledger: Ledger) -> None:
    """E5: amber at the first within an hour, red at twenty; quiet again afterwards."""
    from oncegate.signals.alerts import evaluate
    from oncegate.signals.measures import measure

    gate = Shop(ledger, **HONOURS).gate()
    levels = []
    for number in range(20):
        with contextlib.suppress(Failed):
            gate.admit_sync("orders", {"id": str(number)})
        if number in (0, 19):
            gate.engine.sightings.flush()
            with gate.engine.store.look() as session:
                found = {one.definition.name: one for one in evaluate(measure(session, ledger.clock))}
            levels.append((found["failed"].level.label, found["failed"].value))
    assert levels == [("ticket", 1), ("page", 20)]


def test_same_database_handler_that_failed_runs_again(ledger: Ledger) -> None:
    """What it declared is kept with its failure: its writes were undone, so nothing is in doubt."""
    gate, answers = ledger.gate(), [Failed("no tariff")]

    @gate.handler("orders", key="{id}", same_database=True)
    def order(event: dict[str, str], once: Once) -> str:
        if answers:
            raise answers.pop()
        return "done"

    deliver(gate)
    assert ledger.state() == "failed"
    retry(gate)
    assert deliver(gate).value == "done"
    assert ledger.state() == "committed"


def test_age_of_a_call_outlives_a_retry_in_the_ledgers_time(ledger: Ledger) -> None:
    """I15: a retry begins the claim again, the wall clock goes back; the bank has forgotten the key.

    The second version promises less than the one that died: it records its call, not the first one's time.
    """
    shop = Shop(ledger, honours_key="2h")
    shop.script = "well"
    dying = shop.gate(DeadAfter("effect.after", 5))
    dying.admit_sync("orders", {"id": "first"})
    with pytest.raises(CrashReached):
        dying.admit_sync("orders", EVENT)
    ledger.lapse()
    shop.script, shop.promise = "refuse", {"honours_key": "1h"}
    gate = shop.gate()
    deliver(gate)
    ledger.clock.advance(7200)
    ledger.clock.step_wall(-7200)
    number = len(ledger.states())
    Decisions(gate.engine.commits, ledger.clock).retry(number, actor="ann", reason="mended")
    shop.script, before = "well", shop.calls.count("pay")
    with pytest.raises(OutcomeUnknown, match="pay at bank may have happened"):
        gate.admit_sync("orders", EVENT)
    assert shop.calls.count("pay") == before
