"""How circuits stand, in words and for programs; shared by `endpoints` and `lanes`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oncegate.cli.output import age, tell, utc
from oncegate.lanes.circuit import CircuitState
from oncegate.lanes.circuit_board import CircuitView


def circuit_facts(view: CircuitView | None) -> dict[str, Any]:
    """A circuit for programs; one that nobody spoke about is closed."""
    if view is None:
        return {"state": CircuitState.CLOSED.value}
    return {
        "state": view.state.value,
        "since": utc(view.since_ms),
        "next_try_in_ms": view.next_try_in_ms,
        "openings": view.openings,
        "failing_keys": view.lanes,
        "error": view.error or None,
        "told_by": view.told_by,
        "told_ago_ms": view.told_ago_ms,
    }


def circuit_words(view: CircuitView | None) -> str:
    """A circuit in a table: its state, and when it is tried next."""
    if view is None or view.next_try_in_ms is None:
        return CircuitState.CLOSED.value
    if view.state is CircuitState.HALF_OPEN:
        return f"{view.state.value}, one try at a time"
    return f"{view.state.value}, next try in {age(view.next_try_in_ms)}"


def circuit_sentence(view: CircuitView | None) -> str:
    """A circuit with all that is known of it."""
    if view is None:
        return "closed; nobody has told of an opening"
    words = f"{circuit_words(view)}, since {utc(view.since_ms)}"
    if view.error and view.state is not CircuitState.CLOSED:
        words += f"; {view.lanes} keys failed in a row, the last with: {view.error}"
    return f"{words} (told {age(view.told_ago_ms)} ago by {view.told_by})"


def tell_circuits(circuits: Mapping[str, CircuitView]) -> None:
    """Says on the error stream which endpoints are left alone for the moment."""
    for name, view in sorted(circuits.items()):
        if view.state is not CircuitState.CLOSED:
            tell(f"the circuit of {name} is {circuit_sentence(view)}")
