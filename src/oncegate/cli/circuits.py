"""`oncegate circuits`: which downstreams and endpoints rest; `endpoints` and `lanes` share the words."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, Final

from oncegate.cli.exitcodes import DONE
from oncegate.cli.ledger import open_ledger, reading
from oncegate.cli.output import age, print_json, print_table, tell, utc
from oncegate.cli.parser import add_json, add_url
from oncegate.cli.sending import cells
from oncegate.lanes.circuit_status import CircuitView, read_circuits
from oncegate.model.circuit import CircuitState
from oncegate.store import Facet

_HEADERS: Final = ("CIRCUIT", "STATE", "SINCE (UTC)", "OPENED", "FAILING KEYS", "TOLD", "ERROR")


def add_parser(subparsers: Any) -> None:
    """Adds the command to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "circuits",
        help="see which downstreams and endpoints are down and rest",
        description="List the circuits that any process has told of in the last day. Nothing is changed.",
    )
    add_url(parser)
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    with reading(open_ledger(arguments.url, needs=Facet.LANES), arguments.url) as session:
        circuits = sorted(read_circuits(session).items())
    if arguments.json:
        for name, view in circuits:
            print_json({"circuit": name} | circuit_facts(view))
        return DONE
    if not circuits:
        tell("none has opened in the last day")
        return DONE
    rows = [
        (name, circuit_words(view), utc(view.since_ms), view.openings, view.lanes,
         f"{age(view.told_ago_ms)} ago", view.error)
        for name, view in circuits
    ]  # fmt: skip
    print_table(_HEADERS, [cells(*row) for row in rows])
    return DONE


def circuit_facts(view: CircuitView | None) -> dict[str, Any]:
    """A circuit for programs. A circuit without a report is closed."""
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
        return "closed; no process has reported an opening"
    words = f"{circuit_words(view)}, since {utc(view.since_ms)}"
    if view.error and view.state is not CircuitState.CLOSED:
        words += f"; {view.lanes} keys failed in a row, the last with: {view.error}"
    return f"{words} (told {age(view.told_ago_ms)} ago by {view.told_by})"


def tell_circuits(circuits: Mapping[str, CircuitView]) -> None:
    """Says on the error stream which endpoints are left alone for the moment."""
    for name, view in sorted(circuits.items()):
        if view.state is not CircuitState.CLOSED:
            tell(f"the circuit of {name} is {circuit_sentence(view)}")
