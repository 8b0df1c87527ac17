"""Effects: the key reaches the downstream, each step has its own, and misuse is refused clearly."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from dataclasses import dataclass
from typing import Any

import pytest

from oncegate import Failed, KeyNotPassedWarning, UsageError, Verdict
from oncegate.errors import UnknownSurface
from oncegate.gate.flows.key_injection import KEY_HEADER
from oncegate.model.keys import Key
from tests.support.gates import Ledger, Style, Terminal

EVENT = {"id": "N-1", "equipment": "MSKU1234565"}


def test_the_key_is_passed_as_idempotency_key(ledger: Ledger, style: Style) -> None:
    """A3: a function with that parameter gets the step's key, which is made of the event's key."""
    gate, terminal = ledger.gate(), Terminal()
    ect = gate.downstream("ect", honours_key="7d")

    def body(event, once):
        yield once.effect(ect, style.function(terminal.claim), event["equipment"])
        return once.key

    style.register(gate, "bookings", body)
    answer = style.admit(gate, "bookings", EVENT)
    # Outside of an effect once.key is the event's own key
    assert answer.value == answer.key
    assert terminal.keys == [Key.from_text(answer.key).step("claim")]


def test_the_key_is_merged_into_given_headers(ledger: Ledger, style: Style) -> None:
    """A function with a `headers` parameter gets the key as Idempotency-Key beside its own headers."""
    gate, sent = ledger.gate(), []
    ect = gate.downstream("ect", honours_key="7d")

    def post(url, headers=None):
        sent.append(headers)
        return url

    def body(event, once):
        given = {"Accept": "application/json"}
        yield once.effect(ect, style.function(post), "/slots", headers=given)
        yield once.effect(ect, style.function(post), "/slots", name="bare")
        assert given == {"Accept": "application/json"}, "the caller's own headers are not changed"
        return once.key

    style.register(gate, "bookings", body)
    key = Key.from_text(style.admit(gate, "bookings", EVENT).key)
    assert sent == [
        {"Accept": "application/json", KEY_HEADER: key.step("post")},
        {KEY_HEADER: key.step("bare")},
    ]


def test_a_closure_reads_the_key_from_once_headers(ledger: Ledger, style: Style) -> None:
    """Inside an effect `once.headers` and `once.key` carry that effect's own key."""
    gate, sent = ledger.gate(), []
    ect = gate.downstream("ect", honours_key="7d")

    def body(event, once):
        def claim():
            sent.append((once.headers, once.key))

        yield once.effect(ect, style.function(claim))
        return once.headers

    style.register(gate, "bookings", body)
    answer = style.admit(gate, "bookings", EVENT)
    step_key = Key.from_text(answer.key).step("claim")
    assert sent == [({KEY_HEADER: step_key}, step_key)]
    assert answer.value == {KEY_HEADER: answer.key}


def test_a_plain_function_called_from_an_async_handler_reads_the_key(ledger: Ledger) -> None:
    """It runs in a thread, and the key goes there with it."""
    gate, terminal, sent = ledger.gate(), Terminal(), []
    ect = gate.downstream("ect", honours_key="7d")

    @gate.handler("bookings", key="{id}")
    async def book(event, once):
        def closure():
            sent.append(once.key)

        await once.effect(ect, terminal.claim, event["equipment"])
        await once.effect(ect, closure)

    answer = asyncio.run(gate.admit("bookings", EVENT))
    key = Key.from_text(answer.key)
    assert terminal.keys == [key.step("claim")]
    assert sent == [key.step("closure")]


def test_effects_at_the_same_time_each_have_their_own_key(ledger: Ledger) -> None:
    """Two effects of one handler that overlap do not mix up their keys."""
    gate, sent = ledger.gate(), {}
    ect = gate.downstream("ect", honours_key="7d")

    @gate.handler("bookings", key="{id}")
    async def book(event, once):
        both_inside = asyncio.Barrier(2)

        def effect(name):
            async def call():
                await both_inside.wait()
                sent[name] = once.key

            return once.effect(ect, call, name=name)

        await asyncio.gather(effect("one"), effect("two"))

    key = Key.from_text(asyncio.run(gate.admit("bookings", EVENT)).key)
    assert sent == {"one": key.step("one"), "two": key.step("two")}


def test_a_call_that_does_not_take_the_key_is_warned_about(ledger: Ledger, style: Style) -> None:
    """A downstream declared to honour keys is only safe if it gets them."""
    gate = ledger.gate()
    ect = gate.downstream("ect", honours_key="7d")

    def claim(equipment):
        return equipment

    def body(event, once):
        return (yield once.effect(ect, style.function(claim), event["equipment"]))

    style.register(gate, "bookings", body)
    with pytest.warns(KeyNotPassedWarning, match="claim did not take the key that ect"):
        answer = style.admit(gate, "bookings", EVENT)
    assert answer.value == "MSKU1234565"


def test_a_downstream_that_honours_no_key_needs_none(ledger: Ledger, style: Style) -> None:
    """No warning where nothing was promised; warnings are errors in these tests."""
    gate = ledger.gate()
    ect = gate.downstream("ect", probe=lambda key: None)

    def claim(equipment):
        return equipment

    def body(event, once):
        yield once.effect(ect, style.function(claim), event["equipment"])
        yield once.step("notify", style.function(claim), "somebody")

    style.register(gate, "bookings", body)
    assert style.admit(gate, "bookings", EVENT).verdict is Verdict.RUN


def test_a_key_given_by_the_caller_is_left_as_it_is(ledger: Ledger, style: Style) -> None:
    """Who passes a key of their own means it."""
    gate, terminal = ledger.gate(), Terminal()
    ect = gate.downstream("ect", honours_key="7d")

    def body(event, once):
        yield once.effect(ect, style.function(terminal.claim), "X", idempotency_key="mine")
        yield once.effect(ect, style.function(terminal.claim), "X", "mine too", name="by-place")

    style.register(gate, "bookings", body)
    style.admit(gate, "bookings", EVENT)
    assert terminal.keys == ["mine", "mine too"]


def test_two_effects_have_different_keys(ledger: Ledger, style: Style) -> None:
    """A step's key is the event's and the step's name, so a downstream can tell two effects apart."""
    gate, terminal = ledger.gate(), Terminal()
    ect = gate.downstream("ect", honours_key="7d")

    def body(event, once):
        yield once.effect(ect, style.function(terminal.claim), "one")
        yield once.effect(ect, style.function(terminal.claim), "two", name="claim-again")

    style.register(gate, "bookings", body)
    key = Key.from_text(style.admit(gate, "bookings", EVENT).key)
    assert terminal.keys == [key.step("claim"), key.step("claim-again")]


def test_the_same_step_name_twice_is_refused_before_the_second_call(ledger: Ledger, style: Style) -> None:
    """Two effects under one name would get one key, and the second would never happen."""
    gate, terminal = ledger.gate(), Terminal()
    ect = gate.downstream("ect", honours_key="7d")

    def body(event, once):
        yield once.effect(ect, style.function(terminal.claim), "one")
        yield once.effect(ect, style.function(terminal.claim), "two")

    style.register(gate, "bookings", body)
    with pytest.raises(UsageError, match="'claim' is used twice"):
        style.admit(gate, "bookings", EVENT)
    assert len(terminal.keys) == 1


@pytest.mark.slow
def test_a_lambda_needs_a_name(ledger: Ledger, style: Style) -> None:
    """A step's name must stay the same in the next version of the handler; a lambda has none."""
    gate, calls = ledger.gate(), []
    ect = gate.downstream("ect", probe=lambda key: None)

    def unnamed(event, once):
        yield once.effect(ect, lambda: calls.append("unnamed"))

    def named(event, once):
        yield once.effect(ect, lambda: calls.append("named"), name="claim")

    style.register(gate, "unnamed", unnamed)
    style.register(gate, "named", named)
    with pytest.raises(UsageError, match="give the effect a name="):
        style.admit(gate, "unnamed", EVENT)
    assert style.admit(gate, "named", EVENT).verdict is Verdict.RUN
    assert calls == ["named"]


@pytest.mark.parametrize("name", ["two words", "a/b", "é", "x" * 65])
def test_a_name_that_cannot_be_part_of_a_key_is_refused(ledger: Ledger, style: Style, name: str) -> None:
    """Step names travel in headers; anything else is refused before the call."""
    gate = ledger.gate()
    calls: list[int] = []

    def body(event, once):
        yield once.step(name, style.function(calls.append), 1)

    style.register(gate, "bookings", body)
    with pytest.raises(UsageError, match="cannot name a step"):
        style.admit(gate, "bookings", EVENT)
    assert not calls


def test_partial_objects_and_callables_have_names(ledger: Ledger, style: Style) -> None:
    """A partial is named for its function, an object for its class."""
    gate, terminal = ledger.gate(), Terminal()
    ect = gate.downstream("ect", honours_key="7d")

    class ClaimSlot:
        def __call__(self, equipment, idempotency_key):
            return terminal.claim(equipment, idempotency_key)

    def body(event, once):
        yield once.effect(ect, functools.partial(terminal.claim, "one"))
        yield once.effect(ect, ClaimSlot(), "two")

    style.register(gate, "bookings", body)
    key = Key.from_text(style.admit(gate, "bookings", EVENT).key)
    assert terminal.keys == [key.step("claim"), key.step("ClaimSlot")]


def test_a_callable_that_cannot_be_hashed_can_be_an_effect(ledger: Ledger, style: Style) -> None:
    """A dataclass with `__call__` is an ordinary way to write a client."""

    @dataclass
    class ClaimSlot:
        url: str

        def __call__(self, equipment):
            return f"{self.url}/{equipment}"

    gate = ledger.gate()
    ect = gate.downstream("ect", probe=lambda key: None)

    def body(event, once):
        return (yield once.effect(ect, ClaimSlot("/slots"), "X"))

    style.register(gate, "bookings", body)
    assert style.admit(gate, "bookings", EVENT).value == "/slots/X"


def test_headers_given_by_position_are_merged_too(ledger: Ledger, style: Style) -> None:
    """How an argument is passed is the caller's choice."""
    gate, sent = ledger.gate(), []
    ect = gate.downstream("ect", honours_key="7d")

    def post(url, headers=None):
        sent.append(headers)

    def body(event, once):
        yield once.effect(ect, style.function(post), "/slots", {"Accept": "x"})

    style.register(gate, "bookings", body)
    key = Key.from_text(style.admit(gate, "bookings", EVENT).key)
    assert sent == [{"Accept": "x", KEY_HEADER: key.step("post")}]


def test_an_async_function_in_a_plain_handler_is_a_clear_error(ledger: Ledger) -> None:
    """A plain handler has no loop to await in: it is told so, and nothing is called."""
    gate, terminal = ledger.gate(), Terminal()
    ect = gate.downstream("ect", honours_key="7d")

    async def claim(idempotency_key):
        terminal.claim("X", idempotency_key)

    @gate.handler("bookings", key="{id}")
    def book(event, once):
        return once.effect(ect, claim)

    with pytest.raises(UsageError, match="claim is async"):
        gate.admit_sync("bookings", EVENT)
    assert not terminal.keys
    assert ledger.state() == "retryable"


def test_a_coroutine_returned_to_a_plain_handler_is_a_clear_error(ledger: Ledger) -> None:
    """A lambda around an async function returns a coroutine that nobody would await."""
    gate = ledger.gate()
    ect = gate.downstream("ect", probe=lambda key: None)

    async def claim(equipment):
        raise AssertionError("never awaited")

    def make_coroutine(equipment):
        return claim(equipment)

    @gate.handler("bookings", key="{id}")
    def book(event, once):
        return once.effect(ect, functools.partial(make_coroutine, "X"))

    with pytest.raises(UsageError, match="returned a coroutine"):
        gate.admit_sync("bookings", EVENT)


def test_an_async_function_that_was_never_called_leaves_nothing_in_doubt(ledger: Ledger) -> None:
    """A refusal before the call is not a call that may have happened."""
    gate = ledger.gate()

    async def notify():
        raise AssertionError("never called")

    @gate.handler("bookings", key="{id}")
    def book(event, once):
        once.step("notify", notify)

    with pytest.raises(UsageError, match="notify is async"):
        gate.admit_sync("bookings", EVENT)
    assert ledger.state() == "retryable"


def test_an_async_handler_reached_without_a_loop_takes_no_key(ledger: Ledger) -> None:
    """`admit_sync` on an async handler is a mistake of the program, not an attempt at the event."""
    gate, runs = ledger.gate(), []

    @gate.handler("bookings", key="{id}")
    async def book(event):
        runs.append(event)
        return "done"

    # Given that somebody has called the wrong method
    with pytest.raises(UsageError, match="is async"):
        gate.admit_sync("bookings", EVENT)
    # When the event comes the right way
    answer = asyncio.run(gate.admit("bookings", EVENT))
    # Then it runs
    assert (answer.verdict, len(runs)) == (Verdict.RUN, 1)


def test_a_handler_reached_from_inside_an_effect_has_its_own_key(ledger: Ledger, style: Style) -> None:
    """An effect may be a call to another surface of the same program."""
    gate, keys = ledger.gate(), []
    ect = gate.downstream("ect", honours_key="7d")
    plain = Style("plain")
    plain.register(gate, "inner", lambda event, once: keys.append(once.key))

    def inner(idempotency_key):
        return gate.admit_sync("inner", {"id": "inner"}).key

    def body(event, once):
        # A plain function, so that an async handler calls it in a thread
        return (yield once.effect(ect, inner))

    style.register(gate, "outer", body)
    inner_key = style.admit(gate, "outer", EVENT).value
    assert keys == [inner_key]


@pytest.mark.parametrize(
    "opaque",
    [
        pytest.param(False, id="effect"),
        pytest.param(True, id="whole handler"),
    ],
)
def test_a_warning_made_an_error_does_not_undo_what_was_done(
    ledger: Ledger, style: Style, opaque: bool
) -> None:
    """With `-W error` the caller sees the warning, but the effect is not called a second time."""
    gate, calls = ledger.gate(), []
    ect = gate.downstream("ect", honours_key="7d")

    def claim():
        calls.append("claim")
        return "slot"

    def whole(event):
        return claim()

    def stepped(event, once):
        return (yield once.effect(ect, style.function(claim)))

    with contextlib.suppress(KeyNotPassedWarning):
        if opaque:
            style.register(gate, "bookings", whole, downstream=ect)
        else:
            style.register(gate, "bookings", stepped)
    for _ in range(2):
        with contextlib.suppress(KeyNotPassedWarning, UnknownSurface):
            style.admit(gate, "bookings", EVENT)
    assert len(calls) <= 1


def test_what_a_handler_leaves_behind_may_not_use_its_claim(ledger: Ledger) -> None:
    """`once` belongs to one attempt: kept for later, it makes no call any more."""
    gate, terminal, kept = ledger.gate(), Terminal(), []
    ect = gate.downstream("ect", honours_key="7d")

    @gate.handler("settles", key="{id}")
    def settles(event, once):
        kept.append(once)

    @gate.handler("fails", key="{id}")
    def fails(event, once):
        kept.append(once)
        raise RuntimeError("no luck")

    gate.admit_sync("settles", EVENT)
    with pytest.raises(RuntimeError):
        gate.admit_sync("fails", EVENT)
    for once in kept:
        with pytest.raises(UsageError):
            once.effect(ect, terminal.claim, "X")
    assert not terminal.keys


def test_a_plain_function_that_acts_and_returns_a_coroutine_is_in_doubt(ledger: Ledger) -> None:
    """It has run: that its coroutine was not awaited says nothing of what it did before (I1)."""
    gate, paid = ledger.gate(), list[str]()
    bank = gate.downstream("bank")

    async def tell() -> None: ...

    def pay_and_tell() -> Any:
        paid.append("paid")
        return tell()

    @gate.handler("orders", key="{id}")
    def order(event: Any, once: Any) -> None:
        once.effect(bank, pay_and_tell)

    with pytest.raises(UsageError, match="pay_and_tell returned a coroutine"):
        gate.admit_sync("orders", {"id": 1})
    assert gate.admit_sync("orders", {"id": 1}).verdict is Verdict.HOLD
    assert (paid, ledger.state()) == (["paid"], "unknown")


def test_arguments_that_python_refuses_are_no_call(ledger: Ledger, style: Style) -> None:
    """Nothing of the function was run: nobody has to find out whether it happened."""
    gate, calls = ledger.gate(), list[str]()
    bank = gate.downstream("bank")

    def pay(amount: int, account: str) -> None:
        calls.append(account)

    async def pay_async(amount: int, account: str) -> None:
        calls.append(account)

    def body(event, once):
        yield once.effect(bank, pay_async if style.is_async else pay, 5)

    style.register(gate, "orders", body)
    for _ in range(2):
        with pytest.raises(TypeError, match="account"):
            style.admit(gate, "orders", {"id": 1})
    assert (calls, ledger.state()) == ([], "retryable")


def test_a_type_error_from_inside_a_function_is_in_doubt(ledger: Ledger, style: Style) -> None:
    """It may have acted before."""
    gate, calls = ledger.gate(), list[int]()
    bank = gate.downstream("bank")

    def pay(amount: int) -> None:
        calls.append(amount)
        raise TypeError("pay() missing 1 required positional argument: 'account'")

    def body(event, once):
        yield once.effect(bank, style.function(pay), 5)

    style.register(gate, "orders", body)
    with pytest.raises(TypeError):
        style.admit(gate, "orders", {"id": 1})
    assert style.admit(gate, "orders", {"id": 1}).verdict is Verdict.HOLD
    assert (calls, ledger.state()) == ([5], "unknown")


def test_a_call_that_failed_for_good_leaves_no_doubt_behind(ledger: Ledger, style: Style) -> None:
    """It has said what happened: what the handler runs into afterwards is tried again, by nobody's word."""
    gate = ledger.gate()
    bank = gate.downstream("bank")

    def refuse() -> None:
        raise Failed("no such account")

    def body(event, once):
        try:
            yield once.effect(bank, style.function(refuse))
        except Failed:
            raise RuntimeError("the other bank does not answer") from None

    style.register(gate, "orders", body)
    with pytest.raises(RuntimeError):
        style.admit(gate, "orders", {"id": 1})
    assert ledger.state() == "retryable"
