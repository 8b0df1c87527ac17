"""The harness for users' own handlers: sound ones pass, broken ones are caught with a small plan (D7)."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from oncegate import Failed, Gate
from oncegate.errors import ConfigError
from oncegate.gate.flows.key_injection import KeyNotPassedWarning
from oncegate.testing import ManualClock
from oncegate.testing.harness import Chaos
from oncegate.testing.harness.plans import Mishap, PlannedArrival, Trouble

EVENT = {"order": "A-1", "amount": 5, "note": "first"}
ANSWER_SECONDS = 0.5
FEW = 40  # plans at random, beside the systematic ones; the first test plays as many as a user gets


async def answer_of_a_downstream() -> float:
    """Comes when the clock of the loop says so, which jumps in a trial; by that clock, how long it took."""
    loop = asyncio.get_running_loop()
    answered, asked_at = loop.create_future(), loop.time()
    loop.call_later(ANSWER_SECONDS, answered.set_result, None)
    await answered
    return loop.time() - asked_at


class Bank:
    """A fake downstream that knows its keys."""

    def __init__(self) -> None:
        self.charges: list[str] = []
        self.by_key: dict[str, str] = {}
        self.answers_took: list[float] = []

    def reset(self) -> None:
        self.charges, self.by_key = [], {}

    async def charge(self, order: str, idempotency_key: str = "") -> dict[str, str]:
        self.answers_took.append(await answer_of_a_downstream())
        self.charges.append(order)
        self.by_key[idempotency_key] = f"ch-{len(self.charges)}"
        return {"id": self.by_key[idempotency_key]}

    async def find(self, key: str) -> dict[str, str] | None:
        found = self.by_key.get(key)
        return None if found is None else {"id": found}


def handler_that_pays(gate: Gate, fake: Bank) -> Any:
    """Registers a handler with one effect at a bank that can be asked."""
    bank = gate.downstream("bank", probe=fake.find)

    @gate.handler("orders", key="{order}")
    async def pay(event: Any, once: Any) -> Any:
        return await once.effect(bank, fake.charge, event["order"])

    return pay


@pytest.fixture
def gate(tmp_path):
    with Gate(f"sqlite:///{tmp_path}/never-used.db") as gate:
        yield gate


async def take_money(order: str, idempotency_key: str = "") -> dict[str, str]:
    await answer_of_a_downstream()
    return {"id": f"ch-{order}"}


def take_money_plainly(order: str, idempotency_key: str = "") -> dict[str, str]:
    return {"id": f"ch-{order}"}


@pytest.mark.slow
def test_handler_whose_downstream_honours_the_key_passes(gate: Gate, oncegate_chaos: Any):
    bank = gate.downstream("bank", honours_key="7d")

    @gate.handler("orders", key="{order}")
    async def pay(event: Any, once: Any) -> dict[str, str]:
        charge = await once.effect(bank, take_money, event["order"])
        return {"charge": charge["id"]}

    oncegate_chaos(pay, EVENT).assert_effects(take_money=1)
    assert not gate.engine.store.exists(), "the user's own ledger is left alone"


@pytest.mark.slow
def test_handler_with_a_probe_and_a_fake_of_its_own_passes(gate: Gate, oncegate_chaos: Any):
    fake = Bank()
    pay = handler_that_pays(gate, fake)
    chaos = oncegate_chaos(
        pay, EVENT, counts={"charges": lambda: len(fake.charges)}, before_each=fake.reset
    )
    chaos.assert_effects(charges=1)


def test_time_is_virtual_in_a_trial(gate: Gate, oncegate_chaos: Any):
    """It jumps to the very moment that something is due; a real clock is always a little late."""
    fake = Bank()
    pay = handler_that_pays(gate, fake)
    chaos = oncegate_chaos(pay, EVENT, counts={"charges": lambda: len(fake.charges)}, plans=0)
    assert chaos._problem((PlannedArrival(1.0, 0),), 1, {"charges": 1}) is None

    assert fake.answers_took == [pytest.approx(ANSWER_SECONDS, rel=1e-9)]


def test_worker_that_stands_still_before_a_call_is_no_fault_of_the_handler(gate: Gate, oncegate_chaos: Any):
    """At a downstream that can only be asked, nobody could help if the request left minutes later."""
    fake = Bank()
    pay = handler_that_pays(gate, fake)
    chaos = oncegate_chaos(
        pay, EVENT, counts={"charges": lambda: len(fake.charges)}, before_each=fake.reset
    )
    for point in ("reserve.after", "effect.before"):
        plan = (
            PlannedArrival(1.0, 0),
            PlannedArrival(40.0, 1),
            PlannedArrival(400.0, 0),
            Mishap(Trouble.STALL, point=point),
        )
        assert chaos._problem(plan, 1, {"charges": 1}) is None


@pytest.mark.slow
def test_what_is_told_plays_it_again(gate: Gate, oncegate_chaos: Any):
    """A handler that tries again by itself where no answer came: only a lost reply shows that."""
    bank = gate.downstream("bank", honours_key="7d")

    @gate.handler("orders", key="{order}")
    async def pay(event: Any, once: Any) -> Any:
        try:
            return await once.effect(bank, take_money, event["order"])
        except TimeoutError:
            return await take_money(event["order"])

    def told(**options: int) -> str:
        with pytest.raises(AssertionError) as caught:
            oncegate_chaos(pay, EVENT, **options).assert_effects(take_money=1)
        return str(caught.value)

    first = told()
    found = re.search(r"again: oncegate_chaos\(…, seed=(\d+), plans=1\)$", first)

    assert found is not None, first
    assert told(seed=int(found[1]), plans=1) == first


@pytest.mark.slow
def test_plain_handler_passes(gate: Gate, oncegate_chaos: Any):
    bank = gate.downstream("bank", honours_key="7d")

    @gate.handler("orders", key="{order}")
    def pay(event: Any, once: Any) -> Any:
        return once.effect(bank, take_money_plainly, event["order"])["id"]

    oncegate_chaos(pay, EVENT, plans=FEW).assert_effects(take_money_plainly=1)


@pytest.mark.slow
def test_unrepeatable_effect_happens_at_most_once(gate: Gate, oncegate_chaos: Any):
    mail = gate.downstream("mail")

    @gate.handler("orders", key="{order}")
    async def tell(event: Any, once: Any) -> None:
        await once.effect(mail, take_money, event["order"], name="send")

    oncegate_chaos(tell, EVENT, plans=FEW).assert_effects(send=1)


@pytest.mark.slow
def test_opaque_function_passes(gate: Gate, oncegate_chaos: Any):
    bank = gate.downstream("bank", honours_key="7d")

    @gate.handler("orders", key="{order}", downstream=bank)
    async def pay(event: Any, idempotency_key: str = "") -> dict[str, str]:
        return {"id": event["order"]}

    oncegate_chaos(pay, EVENT, plans=FEW).assert_effects(pay=1)


def test_handler_that_calls_past_the_gate_is_caught(gate: Gate, oncegate_chaos: Any):
    @gate.handler("orders", key="{order}")
    async def pay(event: Any, once: Any) -> dict[str, str]:
        return await take_money(event["order"])

    with pytest.raises(AssertionError, match="take_money happened 2 times, not 1") as caught:
        oncegate_chaos(pay, EVENT).assert_effects(take_money=1)

    told = str(caught.value)
    assert "seed" in told
    assert "the worker crashes" in told
    assert len(told.splitlines()) <= 5, "the plan is small"


def test_plain_handler_that_calls_past_the_gate_is_caught(gate: Gate, oncegate_chaos: Any):
    @gate.handler("orders", key="{order}")
    def pay(event: Any, once: Any) -> dict[str, str]:
        return take_money_plainly(event["order"])

    with pytest.raises(AssertionError, match="take_money_plainly happened 2 times"):
        oncegate_chaos(pay, EVENT).assert_effects(take_money_plainly=1)


@pytest.mark.slow
def test_key_that_is_declared_and_not_passed_on_is_caught(gate: Gate, oncegate_chaos: Any):
    bank = gate.downstream("bank", honours_key="7d")

    async def charge(order: str) -> str:
        return order

    @gate.handler("orders", key="{order}")
    async def pay(event: Any, once: Any) -> Any:
        return await once.effect(bank, charge, event["order"])

    with pytest.warns(KeyNotPassedWarning), pytest.raises(AssertionError, match="charge happened 2 times"):
        oncegate_chaos(pay, EVENT).assert_effects(charge=1)


@pytest.mark.slow
def test_near_duplicates_arrive_too_and_add_no_effect(gate: Gate, oncegate_chaos: Any):
    """The same key with one field changed: whichever comes first has the effect, the other conflicts."""
    bank = gate.downstream("bank", honours_key="7d")
    seen: list[Any] = []

    @gate.handler("orders", key="{order}")
    async def pay(event: Any, once: Any) -> None:
        await once.effect(bank, take_money, event["order"])
        seen.append(event["note"])

    oncegate_chaos(pay, EVENT).assert_effects(take_money=1)
    assert {"first~"} <= set(seen), "a near-duplicate came first in some plan"


@pytest.mark.slow
def test_final_failure_is_no_effect(gate: Gate, oncegate_chaos: Any):
    @gate.handler("orders", key="{order}")
    async def refuse(event: Any, once: Any) -> None:
        raise Failed("closed")

    oncegate_chaos(refuse, EVENT, plans=FEW).assert_effects(take_money=0)


def test_handlers_own_mistake_is_shown_as_it_is(gate: Gate, oncegate_chaos: Any):
    @gate.handler("orders", key="{order}")
    async def pay(event: Any, once: Any) -> None:
        raise KeyError("amuont")

    with pytest.raises(KeyError, match="amuont"):
        oncegate_chaos(pay, EVENT).assert_effects(take_money=1)


def test_wrong_expectation_is_told_without_any_trouble(gate: Gate, oncegate_chaos: Any):
    bank = gate.downstream("bank", honours_key="7d")

    @gate.handler("orders", key="{order}")
    async def pay(event: Any, once: Any) -> None:
        await once.effect(bank, take_money, event["order"])

    with pytest.raises(AssertionError, match="without any trouble: take_money happened 1 times, not 2"):
        oncegate_chaos(pay, EVENT).assert_effects(take_money=2)


def test_name_that_nothing_has_is_refused(gate: Gate, oncegate_chaos: Any):
    bank = gate.downstream("bank", honours_key="7d")

    @gate.handler("orders", key="{order}")
    async def pay(event: Any, once: Any) -> None:
        await once.effect(bank, take_money, event["order"])

    with pytest.raises(
        ConfigError, match="nothing called 'take_mony' was seen; effects and steps seen: take_money"
    ):
        oncegate_chaos(pay, EVENT).assert_effects(take_mony=1)


def test_event_that_never_reaches_the_handler_is_told_with_its_reason(gate: Gate, oncegate_chaos: Any):
    bank = gate.downstream("bank", honours_key="7d")

    @gate.handler("orders", key="{order}:{part}")
    async def pay(event: Any, once: Any) -> Any:
        return await once.effect(bank, take_money, event["order"])

    with pytest.raises(AssertionError, match="take_money happened 0 times, not 1; the event waits") as told:
        oncegate_chaos(pay, EVENT).assert_effects(take_money=1)
    assert "part" in str(told.value)


def test_assertion_that_counts_nothing_is_refused(gate: Gate, oncegate_chaos: Any):
    @gate.handler("orders", key="{order}")
    async def pay(event: Any, once: Any) -> None:
        return None

    with pytest.raises(ConfigError, match="name what is counted"):
        oncegate_chaos(pay, EVENT).assert_effects()


def test_function_that_is_no_handler_is_refused():
    with pytest.raises(ConfigError, match="take_money is not registered with a gate"):
        Chaos(take_money, EVENT)


@pytest.mark.slow
@pytest.mark.parametrize("oncegate_store", ["sqlite", "postgres"], indirect=True)
def test_gate_fixture_stands_on_an_empty_ledger_and_a_manual_clock(
    oncegate_gate: Gate, oncegate_clock: ManualClock
):
    @oncegate_gate.once(key="{order}")
    def book(order: str) -> int:
        return oncegate_clock.wall_ms()

    first = book("A-1")
    oncegate_clock.advance(60)

    assert book("A-1") == first
    assert book("A-2") == first + 60_000
