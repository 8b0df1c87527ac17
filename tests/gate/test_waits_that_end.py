"""Nothing is retried for ever: a wait belongs to the step in doubt, results are kept if they can (I26)."""

from __future__ import annotations

import datetime
import decimal
import uuid
from dataclasses import replace
from typing import Any

import pytest

from oncegate import Gate
from oncegate.crashpoints import CrashPoints
from oncegate.maintenance.reconciler import Reconciler
from oncegate.testing import CrashReached
from tests.support.gates import LEASE, DeadAfter, Ledger

SECONDS_PER_LOOK = 5.0


class Response:
    """What an HTTP client returns: nothing that could be stored."""

    def __init__(self) -> None:
        self.status = 200


class Desk:
    """A handler of two steps: the first honours keys, the second can only be asked about."""

    def __init__(self, ledger: Ledger, first: Any) -> None:
        self.ledger, self.first = ledger, first
        self.calls: dict[str, int] = {"quote": 0, "claim": 0}
        self.got: list[Any] = []

    def process(self, crashpoints: CrashPoints | None = None) -> Gate:
        gate = self.ledger.gate(crashpoints)
        quotes = gate.downstream("quotes", honours_key="7d")
        claims = gate.downstream("claims", probe=lambda key: None)

        def quote(idempotency_key: str) -> Any:
            self.calls["quote"] += 1
            return self.first()

        def claim() -> dict[str, str]:
            self.calls["claim"] += 1
            return {"id": "S-1"}

        @gate.handler("bookings", key="{id}", lease=LEASE)
        def book(event: Any, once: Any) -> Any:
            self.got.append(once.effect(quotes, quote, name="quote"))
            return once.effect(claims, claim, name="claim")["id"]

        return gate

    def crash_in_second_step(self) -> None:
        with pytest.raises(CrashReached):
            self.process(DeadAfter("effect.before", 2)).admit_sync("bookings", {"id": "A-1"})
        self.ledger.lapse()

    def look_after(self, seconds: float) -> None:
        """Lets workers look again and again for so long."""
        reconciler = Reconciler(self.process())
        for _ in range(int(seconds / SECONDS_PER_LOOK)):
            reconciler.run_once()
            self.ledger.clock.advance(SECONDS_PER_LOOK)


STORABLE = {
    "a tuple": lambda: ("EUR", 12),
    "a Decimal in a dict": lambda: {"price": decimal.Decimal("12.50"), "lines": [(1, 2)]},
    "a datetime": lambda: {"at": datetime.datetime(2026, 6, 1, tzinfo=datetime.UTC)},
    "a date and a set": lambda: [datetime.date(2026, 6, 1), {1, 2}],
    "a UUID and bytes": lambda: {"id": uuid.UUID(int=7), "raw": b"\x00\xff"},
    "numbers as names": lambda: {1: "one", 2: "two"},
}


@pytest.mark.slow
@pytest.mark.parametrize("first", STORABLE.values(), ids=STORABLE.keys())
def test_results_that_json_does_not_know_are_kept_all_the_same(ledger: Ledger, first: Any) -> None:
    """The first step is called once and never again: its result comes back whole."""
    desk = Desk(ledger, first)
    with pytest.raises(ZeroDivisionError):
        _fail_in_second_step(desk.process(), desk)
    desk.look_after(300)

    assert ledger.state() == "committed"
    assert desk.calls["quote"] == 1
    assert desk.got[-1] == first()
    assert type(desk.got[-1]) is type(first())


def _fail_in_second_step(gate: Gate, desk: Desk) -> None:
    """A first attempt whose second step raises: the first one's result is recorded with that."""
    claims = gate.engine.downstreams[1]

    def refuse() -> None:
        raise ZeroDivisionError

    def handler(event: Any, once: Any) -> Any:
        once.effect(gate.engine.downstreams[0], _quoting(desk), name="quote")
        once.effect(claims, refuse, name="claim")

    gate.engine._surfaces["bookings"] = replace(gate.engine.surface("bookings"), handler=handler)
    gate.admit_sync("bookings", {"id": "A-1"})


def _quoting(desk: Desk) -> Any:
    def quote(idempotency_key: str) -> Any:
        desk.calls["quote"] += 1
        return desk.first()

    return quote


def test_a_wait_is_not_begun_again_by_calls_of_other_steps(ledger: Ledger) -> None:
    """The first downstream was called 63 times in 300 s, and the event never ended."""
    desk = Desk(ledger, Response)
    desk.crash_in_second_step()

    desk.look_after(300)

    assert ledger.state() == "committed"
    assert desk.calls == {"quote": 3, "claim": 1}


def test_deliveries_during_the_wait_call_nothing(ledger: Ledger) -> None:
    """A sender that repeats every second during the wait reaches neither downstream."""
    desk = Desk(ledger, Response)
    desk.crash_in_second_step()
    gate = desk.process()
    for _ in range(50):
        with pytest.raises(Exception, match="under way"):
            gate.admit_sync("bookings", {"id": "A-1"})
        ledger.clock.advance(1)

    assert desk.calls == {"quote": 2, "claim": 0}
    assert ledger.attempt() == 1, "waiting uses no attempt up"


def test_a_step_on_record_as_done_is_never_called_again_by_a_probe_that_forgets(ledger: Ledger) -> None:
    """Done is done: where its result was lost and the downstream finds nothing, a person decides."""
    gate, calls = ledger.gate(), []
    claims = gate.downstream("claims", probe=lambda key: None)

    def claim() -> Response:
        calls.append("claim")
        return Response()

    @gate.handler("bookings", key="{id}", lease=LEASE)
    def book(event: Any, once: Any) -> None:
        once.effect(claims, claim, name="claim")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        gate.admit_sync("bookings", {"id": "A-1"})
    reconciler = Reconciler(gate)
    for _ in range(60):
        ledger.clock.advance(SECONDS_PER_LOOK)
        reconciler.run_once()

    assert (calls, ledger.state()) == (["claim"], "unknown")
    assert "on record as done" in ledger.reason()


@pytest.mark.slow
def test_an_event_that_fails_for_ever_ends_before_a_person(ledger: Ledger) -> None:
    """A result that cannot be stored and a handler that fails after it: bounded calls, and an end."""
    desk = Desk(ledger, Response)
    gate = desk.process()

    def fail(event: Any, once: Any) -> Any:
        once.effect(gate.engine.downstreams[0], _quoting(desk), name="quote")
        raise ZeroDivisionError

    gate.engine._surfaces["bookings"] = replace(gate.engine.surface("bookings"), handler=fail)
    with pytest.raises(ZeroDivisionError):
        gate.admit_sync("bookings", {"id": "A-1"})
    reconciler = Reconciler(gate)
    for _ in range(330):
        ledger.clock.advance(600)
        reconciler.run_once()

    assert ledger.state() == "held"
    assert desk.calls["quote"] <= 330
