"""`oncegate reconcile`: finishes what crashes stranded, once, or lists it and says what is known.

Without `--app` it must only read: only the handlers can finish anything.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from typing import Any, Final

from oncegate.cli.app import add_app, load_gate
from oncegate.cli.exitcodes import DONE
from oncegate.cli.ledger import open_ledger, reading
from oncegate.cli.output import Cell, Colour, age, print_json, print_table, tell
from oncegate.cli.parser import add_json, add_url, read_number
from oncegate.errors import ConfigError
from oncegate.maintenance.reconciler import ENTRIES_PER_RUN_MAX, Looked, Reconciler
from oncegate.model.states import State
from oncegate.store import EntryDetail, EntryFilter, Facet, Session, StepState

_DESCRIPTION = """\
Look at every stranded key once: claims whose lease is over, and failed attempts that may be made
again. With --app, each runs through its handler once more, and there its downstreams decide: call
again with the same key, ask first, wait, or leave it to a person. Without --app nothing is done;
what is stranded is listed, with what the ledger knows of it.

Claims with a running lease are not touched: they are counted, with the time until the first lease
expires. To have recovery done all the time, use `oncegate worker`, or gate.worker() in the program."""

_EPILOG = """\
examples:
  oncegate reconcile --once
  oncegate reconcile --once --app bookings:gate
  oncegate reconcile --once --app bookings:gate --json"""

_FOUND: Final = ("ID", "KEY", "SURFACE", "LABEL", "STATE", "ATTEMPT", "LAPSED", "NEXT")
_DONE: Final = ("ID", "KEY", "SURFACE", "LABEL", "BECAME", "REASON")
_KEY_SHOWN: Final = 12
RUNNING_MAX: Final = 10_000
_COLOURS: Final = {"finished": Colour.GREEN, "left to a person": Colour.RED, "hold": Colour.RED}


def add_parser(subparsers: Any) -> None:
    """Adds the command to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "reconcile",
        help="finish what crashes stranded, or list it",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument("--once", action="store_true", help="look once and end; the only way there is here")
    add_app(parser, required=False)
    parser.add_argument(
        "--limit", type=read_number, default=ENTRIES_PER_RUN_MAX, metavar="N",
        help="look at no more than so many keys (default: %(default)s)",
    )  # fmt: skip
    add_url(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Reconciles with the user's handlers, or lists without them."""
    if arguments.app is None:
        return _list(arguments)
    if arguments.url is not None:
        raise ConfigError("--url and --app exclude each other: the gate knows its own ledger")
    return _reconcile(arguments)


def _reconcile(arguments: argparse.Namespace) -> int:
    gate = load_gate(arguments.app)
    try:
        # No backoff: whoever calls this wants it looked at now.
        reconciler = Reconciler(gate, entries_max=arguments.limit, at_once=True, run_within=None)
        report = asyncio.run(reconciler.run_once_async())
        with gate.engine.store.look() as session:
            running = running_leases(session, {surface.name for surface in gate.engine.surfaces})
    finally:
        gate.close()
    if arguments.json:
        for item in report.looked:
            print_json(_facts(item))
    elif report.looked:
        print_table(_DONE, [_done_row(item) for item in report.looked])
    if report.looked:
        tell(f"{len(report.looked)} looked at, {report.finished} finished")
    _tell_running(running, is_empty=not report.looked)
    if not report.is_complete:
        tell("there are more; run it again, or with a higher --limit")
    return DONE


def running_leases(session: Session, surfaces: set[str] | None = None) -> list[int]:
    """How long each running lease still lasts, in milliseconds, the shortest first.

    Only the newest claims are counted, up to RUNNING_MAX.
    """
    now, wanted = session.now_ticks(), EntryFilter((State.IN_FLIGHT,))
    found = session.entries(wanted, None, RUNNING_MAX)
    among = [entry for entry in found if surfaces is None or entry.surface in surfaces]
    return sorted(end - now for entry in among if (end := entry.lease_until_ticks or 0) > now)


def _tell_running(running: Sequence[int], *, is_empty: bool) -> None:
    """Says what cannot be looked at yet: the worker of a running lease may be alive or dead."""
    if not running:
        if is_empty:
            tell("nothing is stranded")
        return
    number = f"{len(running)}{' or more' if len(running) >= RUNNING_MAX else ''}"
    entries = "entry is" if len(running) == 1 else "entries are"
    first, last = (max(1, round(ms / 1000)) for ms in (running[0], running[-1]))
    span = f"{first} s" if first == last else f"{first} to {last} s"
    tell(
        f"{'nothing is stranded yet: ' if is_empty else ''}"
        f"{number} {entries} in flight with a running lease;"
        f" if a worker died, its entries can be recovered in {span}"
    )


def _facts(item: Looked) -> dict[str, Any]:
    return {
        "id": item.entry_id,
        "key": item.key,
        "surface": item.surface,
        "label": item.label,
        "became": item.became,
        "reason": item.reason,
    }


def _done_row(item: Looked) -> list[Cell]:
    head = (item.entry_id, item.key[:_KEY_SHOWN], item.surface, item.label)
    became = Cell.of(item.became, _COLOURS.get(item.became, Colour.YELLOW))
    return [*map(Cell.of, head), became, Cell.of(item.reason or "")]


def _list(arguments: argparse.Namespace) -> int:
    store = open_ledger(arguments.url, needs=Facet.OPEN_ENTRIES)
    with reading(store, arguments.url) as session:
        found = session.stranded(arguments.limit + 1)
        now, running = session.now_ticks(), running_leases(session)
    shown = found[: arguments.limit]
    if arguments.json:
        for item in shown:
            print_json(_found_facts(item, now))
    elif shown:
        print_table(_FOUND, _found_rows(shown, now))
    _tell_running(running, is_empty=not shown)
    if shown:
        tell("nothing was done: the handlers are needed for that; give the gate with --app module:name")
    if len(found) > len(shown):
        tell("there are more; list them with a higher --limit")
    return DONE


def _found_facts(item: EntryDetail, now: int) -> dict[str, Any]:
    entry = item.entry
    return {
        "id": entry.entry_id,
        "key": entry.key.hex(),
        "surface": entry.surface,
        "label": entry.label,
        "state": entry.state.label,
        "attempt": entry.attempt,
        "lapsed_ms": now - (entry.lease_until_ticks or now),
        "next": next_of(item),
        "steps": [
            {"name": step.name, "state": step.state.name.lower(), "downstream": step.downstream}
            for step in item.steps
        ],
    }


def _found_rows(items: Sequence[EntryDetail], now: int) -> list[list[Cell]]:
    return [
        [
            Cell.of(value)
            for value in (
                item.entry.entry_id, item.entry.key.hex()[:_KEY_SHOWN], item.entry.surface,
                item.entry.label,
                item.entry.state.label, item.entry.attempt,
                age(now - (item.entry.lease_until_ticks or now)), next_of(item),
            )
        ]
        for item in items
    ]  # fmt: skip


def next_of(item: EntryDetail) -> str:
    """What a reconciler would do, as far as the ledger tells: only the program knows its downstreams."""
    started = [step for step in item.steps if step.state is StepState.STARTED]
    if started:
        step = started[0]
        return f"{step.name} was begun at {step.downstream}, which can only be called once: a person"
    done = sum(1 for step in item.steps if step.state is StepState.DONE)
    skipped = f" after {done} finished steps" if done else ""
    if item.entry.state is State.RETRYABLE:
        return f"tried again{skipped}"
    return f"run again{skipped}, each effect by what its downstream can do"
