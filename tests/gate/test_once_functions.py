"""`gate.once`: a plain function that runs once for each key and otherwise returns what it returned."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from oncegate import (
    Busy,
    ConfigError,
    Conflict,
    Gate,
    Held,
    KeyNotPassedWarning,
    NotApplied,
    OutcomeUnknown,
    Quarantined,
    RecordedFailure,
)
from oncegate.errors import BadTemplate, EventError, Failed
from oncegate.testing import CrashReached
from tests.support.gates import LEASE, DeadAfter, Ledger, Style, Terminal, running, wait_for


@dataclass
class Receipt:
    order: str
    cents: int


def wrapped(gate: Gate, style: Style, function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """The function made once, async where the style is."""
    settings = {"key": "{order}", "lease": LEASE, **options}
    return gate.once(**settings)(style.function(function))


def test_one_call_one_key_however_the_arguments_are_given(ledger: Ledger, style: Style) -> None:
    """By position, by name, by default: the same arguments are the same event."""
    gate, calls = ledger.gate(), []

    def pay(order, cents=100, *, currency="EUR"):
        calls.append((order, cents, currency))
        return f"{order}: {cents} {currency}"

    once = wrapped(gate, style, pay)
    answers = {
        style.call(once, "o-1"),
        style.call(once, "o-1", 100),
        style.call(once, order="o-1", cents=100),
        style.call(once, "o-1", currency="EUR", cents=100),
    }
    assert answers == {"o-1: 100 EUR"}
    assert calls == [("o-1", 100, "EUR")]
    assert ledger.states() == ["committed"]
    # And another order is another event
    assert style.call(once, "o-2") == "o-2: 100 EUR"


def test_a_repeat_returns_the_recorded_value_of_its_type(ledger: Ledger) -> None:
    """In this process and in another one."""
    calls: list[str] = []

    def process() -> Callable[..., Any]:
        # Written with real annotations, as in a module without postponed ones
        def pay(order, cents):
            calls.append(order)
            return Receipt(order, cents)

        pay.__annotations__["return"] = Receipt
        return ledger.gate().once(key="{order}", name="pay")(pay)

    first, second = process(), process()
    assert [first("o-1", 7), first("o-1", 7), second("o-1", 7)] == [Receipt("o-1", 7)] * 3
    assert calls == ["o-1"]


def test_a_postponed_return_annotation_declares_the_type_too(ledger: Ledger) -> None:
    """This very module postpones its annotations."""
    gate = ledger.gate()

    @gate.once(key="{order}")
    def pay(order: str, cents: int) -> Receipt:
        return Receipt(order, cents)

    assert [pay("o-1", 7), pay("o-1", 7)] == [Receipt("o-1", 7)] * 2


def test_the_wrapper_looks_like_the_function(ledger: Ledger, style: Style) -> None:
    """Name, docstring and kind stay; only the behaviour changes."""

    def pay(order):
        """Pays."""

    once = wrapped(ledger.gate(), style, pay)
    assert (once.__name__, once.__doc__) == ("pay", "Pays.")
    assert asyncio.iscoroutinefunction(once) == style.is_async


def test_variable_arguments_are_part_of_the_event(ledger: Ledger, style: Style) -> None:
    """`*args` and `**kwargs` reach the function as they were given."""
    gate, calls = ledger.gate(), []

    def pay(order, *lines, **extra):
        calls.append((order, lines, extra))
        return [order, list(lines), extra]

    once = wrapped(gate, style, pay)
    assert style.call(once, "o-1", 1, 2, note="x") == ["o-1", [1, 2], {"note": "x"}]
    assert style.call(once, "o-1", 1, 2, note="x") == ["o-1", [1, 2], {"note": "x"}]
    assert calls == [("o-1", (1, 2), {"note": "x"})]


def test_the_key_is_injected_as_idempotency_key(ledger: Ledger, style: Style) -> None:
    """The parameter belongs to the gate: callers leave it out, the downstream gets it."""
    gate, terminal = ledger.gate(), Terminal(honours_key=True)
    ect = gate.downstream("ect", honours_key="7d")

    def claim(order, idempotency_key):
        return terminal.claim(order, idempotency_key)["id"]

    once = wrapped(gate, style, claim, downstream=ect)
    assert [style.call(once, "o-1"), style.call(once, order="o-1")] == ["o-1-1", "o-1-1"]
    ((key,),) = ledger.rows("SELECT key FROM oncegate_entries")
    assert terminal.keys == [f"{key}:call"]


def test_the_key_is_not_part_of_the_event(ledger: Ledger, style: Style) -> None:
    """Two callers that pass keys of their own still mean the same event."""
    gate, terminal = ledger.gate(), Terminal()

    def claim(order, idempotency_key=None):
        return terminal.claim(order, idempotency_key)["id"]

    once = wrapped(gate, style, claim)
    assert style.call(once, "o-1") == style.call(once, "o-1", idempotency_key="mine")
    assert len(terminal.keys) == 1


def test_a_function_that_does_not_take_the_key_is_warned_about(ledger: Ledger, style: Style) -> None:
    """A3: a downstream declared to honour keys is only safe if it gets them."""
    gate = ledger.gate()
    ect = gate.downstream("ect", honours_key="7d")
    with pytest.warns(KeyNotPassedWarning):
        wrapped(gate, style, lambda order: order, downstream=ect, name="pay")


def test_an_error_without_a_downstream_goes_to_a_person(ledger: Ledger, style: Style) -> None:
    """At most once: nobody knows what the function did before it raised."""
    gate, calls = ledger.gate(), []

    def pay(order):
        calls.append(order)
        raise TimeoutError("no answer")

    once = wrapped(gate, style, pay)
    with pytest.raises(TimeoutError):
        style.call(once, "o-1")
    with pytest.raises(Held, match="no answer"):
        style.call(once, "o-1")
    assert (calls, ledger.state()) == (["o-1"], "unknown")


def test_not_applied_may_be_called_again(ledger: Ledger, style: Style) -> None:
    """The function says that nothing happened."""
    gate, trouble = ledger.gate(), [NotApplied("refused")]

    def pay(order):
        if trouble:
            raise trouble.pop()
        return "paid"

    once = wrapped(gate, style, pay)
    with pytest.raises(NotApplied):
        style.call(once, "o-1")
    assert style.call(once, "o-1") == "paid"


def test_a_final_failure_is_raised_again_as_recorded(ledger: Ledger, style: Style) -> None:
    """The first caller gets the function's own error, later ones the recorded failure."""
    gate, calls = ledger.gate(), []

    def pay(order):
        calls.append(order)
        raise ValueError("no such order")

    once = wrapped(gate, style, pay, final_errors=(ValueError,))
    with pytest.raises(ValueError, match="no such order"):
        style.call(once, "o-1")
    with pytest.raises(RecordedFailure, match="no such order") as raised:
        style.call(once, "o-1")
    assert isinstance(raised.value, Failed)
    assert calls == ["o-1"]


def test_other_arguments_under_the_same_key_conflict(ledger: Ledger, style: Style) -> None:
    """I7: not silently the first answer."""
    gate = ledger.gate()

    def pay(order, cents):
        return cents

    once = wrapped(gate, style, pay)
    style.call(once, "o-1", 100)
    with pytest.raises(Conflict):
        style.call(once, "o-1", 999)


def test_a_malformed_key_argument_is_quarantined(ledger: Ledger, style: Style) -> None:
    """A1: never guessed."""
    gate, calls = ledger.gate(), []

    def pay(order):
        calls.append(order)

    once = wrapped(gate, style, pay)
    for order in ("", None, 1.5):
        with pytest.raises(Quarantined):
            style.call(once, order)
    assert not calls


def test_a_concurrent_call_is_busy(ledger: Ledger, style: Style) -> None:
    """One key, one run; the other caller is told when to come back."""
    gate, inside, leave = ledger.gate(), threading.Event(), threading.Event()

    def pay(order):
        inside.set()
        wait_for(leave)
        return "paid"

    once = wrapped(gate, style, pay)
    with running(lambda: style.call(once, "o-1")) as first:
        wait_for(inside)
        with pytest.raises(Busy) as raised:
            style.call(once, "o-1")
        leave.set()
    assert raised.value.retry_after_seconds == 600
    assert first == ["paid"]


def test_a_function_that_calls_itself_with_the_same_key_is_busy(ledger: Ledger, style: Style) -> None:
    """It would wait for itself; it is refused instead, and goes on with another key."""
    gate, calls = ledger.gate(), []
    plain = Style("plain")

    def count(order):
        calls.append(order)
        if order > 0:
            return once(order - 1) + 1
        try:
            return once(0)
        except Busy:
            return 0

    once = wrapped(gate, plain, count)
    assert once(3) == 3
    assert calls == [3, 2, 1, 0]


def test_a_crash_is_decided_by_the_downstream(ledger: Ledger, style: Style) -> None:
    """Without one a person decides; with one that honours keys it is called again."""

    def process(crashpoints: Any, honours_key: str | None) -> Callable[..., Any]:
        gate = ledger.gate(crashpoints)
        ect = gate.downstream("ect", honours_key=honours_key) if honours_key else None

        def claim(order, idempotency_key):
            return terminal.claim(order, idempotency_key)["id"]

        return wrapped(gate, style, claim, downstream=ect, name=f"claim {honours_key}")

    for honours_key in ("7d", None):
        terminal = Terminal(honours_key=True)
        with pytest.raises(CrashReached):
            style.call(process(DeadAfter("effect.after"), honours_key), "o-1")
        ledger.lapse()
        again = process(None, honours_key)
        if honours_key:
            assert style.call(again, "o-1") == "o-1-1"
        else:
            with pytest.raises(OutcomeUnknown):
                style.call(again, "o-1")
        assert terminal.sold == 1


def test_two_functions_of_one_name_are_refused(ledger: Ledger, style: Style) -> None:
    """Both would own the same keys; a name= tells them apart."""
    gate = ledger.gate()

    def make() -> Callable[..., Any]:
        def pay(order):
            return order

        return pay

    wrapped(gate, style, make())
    with pytest.raises(ConfigError, match="registered twice"):
        wrapped(gate, style, make())
    assert style.call(wrapped(gate, style, make(), name="another"), "o-1") == "o-1"


def test_arguments_that_are_not_json_are_refused_and_leave_nothing(ledger: Ledger, style: Style) -> None:
    """What cannot be stored cannot be run again after a crash."""
    gate, calls = ledger.gate(), []
    once = wrapped(gate, style, lambda order, extra: calls.append(order), name="pay")
    with pytest.raises(EventError, match=r"\$\.extra"):
        style.call(once, "o-1", object())
    assert not calls
    assert ledger.gate().engine.store.connect().counts() == {}


def test_a_key_template_must_name_an_argument_of_the_business(ledger: Ledger, style: Style) -> None:
    """D1: transport-level parts are refused here as everywhere."""
    with pytest.raises(BadTemplate):
        wrapped(ledger.gate(), style, lambda message_id: None, key="{message_id}")


@pytest.mark.parametrize("arguments", [(), ("o-1",)], ids=["none", "too few"])
def test_a_call_with_wrong_arguments_is_a_type_error_and_leaves_nothing(
    ledger: Ledger, style: Style, arguments: tuple[Any, ...]
) -> None:
    """The caller's mistake is found before any key is taken; the corrected call runs."""
    gate, calls = ledger.gate(), []

    def pay(order, cents):
        calls.append(order)
        return cents

    once = wrapped(gate, style, pay)
    with pytest.raises(TypeError):
        style.call(once, *arguments)
    assert style.call(once, "o-1", 100) == 100
    assert ledger.states() == ["committed"]


def test_one_decorator_may_wrap_several_functions(ledger: Ledger) -> None:
    """What is found out about one function does not stick to the next."""
    gate = ledger.gate()
    by_order = gate.once(key="{order}")

    @by_order
    def pay(order: str) -> Receipt:
        return Receipt(order, 7)

    @by_order
    def look(order: str) -> dict[str, Any]:
        return {"order": order, "cents": 7}

    assert [pay("o-1"), pay("o-1")] == [Receipt("o-1", 7)] * 2
    assert [look("o-1"), look("o-1")] == [{"order": "o-1", "cents": 7}] * 2


@pytest.mark.parametrize(
    ("key", "function", "said"),
    [
        ("{nope}", lambda order_id: order_id, "no parameter 'nope'; its parameters are order_id"),
        ("{order_id}:{nope.deep}", lambda order_id: order_id, "no parameter 'nope'"),
        ("{nope}", lambda: 1, "its parameters are none"),
        ("{nope}", lambda **more: more, r"for one of \*\*more write \{more.nope\}"),
        ("{idempotency_key}", lambda idempotency_key: 1, "no parameter 'idempotency_key'"),
    ],
)
def test_key_of_what_is_no_parameter_is_told_at_once(
    ledger: Ledger, key: str, function: Any, said: str
) -> None:
    """Every call would be quarantined: its event has no such field."""
    with pytest.raises(BadTemplate, match=said):
        ledger.gate().once(key=key, allow_transport=["idempotency_key"])(function)


def test_key_may_be_of_keywords_that_have_no_parameter(ledger: Ledger) -> None:
    """They are fields of the parameter that takes them."""
    ran = ledger.gate().once(key="{more.id}", name="more")(lambda **more: more["id"])

    assert ran(id="N-1") == "N-1"


ORDERS = """
import multiprocessing
import sys
from oncegate import Gate

gate = Gate("sqlite:///orders.db")

@gate.once(key="{order_id}")
def charge(order_id: str) -> str:
    with open("charged", "a") as file:
        file.write(order_id + "\\n")
    return order_id

if __name__ == "__main__":
    if "--spawn" in sys.argv:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(pool.map(charge, ["A-1"]))
    else:
        print(charge("A-1"))
"""


AGAIN = (
    ["-c", "import orders; orders.charge('A-1')"],
    ["-m", "orders"],
    ["orders.py", "--spawn"],
    ["-c", "import runpy; runpy.run_path('orders.py', run_name='__main__')"],
)


@pytest.mark.slow
def test_a_function_has_one_name_however_its_program_is_started(tmp_path: Path) -> None:
    # Given a program that was started by its file, and has charged
    (tmp_path / "orders.py").write_text(ORDERS, "utf-8")
    _python(tmp_path, "orders.py")
    for again in AGAIN:
        # When it is imported, run as a module, or starts a process that does it
        _python(tmp_path, *again)
        # Then the order is known
        assert (tmp_path / "charged").read_text("utf-8") == "A-1\n", again


def _python(folder: Path, *words: str) -> None:
    ended = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
