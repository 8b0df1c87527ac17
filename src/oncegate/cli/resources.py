"""`oncegate resources`: second resources of one key or one target, listed and dismissed.

Nothing is cancelled here: a person cancels what is not needed at the downstream, and says so.
"""

from __future__ import annotations

import argparse
from typing import Any, Final

from oncegate.cli.entries import refuse_unknown_surface
from oncegate.cli.exitcodes import DONE, NOT_SO
from oncegate.cli.ledger import open_ledger, reading
from oncegate.cli.output import Cell, complain, print_json, print_table, tell, utc
from oncegate.cli.parser import add_json, add_url, print_help_as_error, read_number, read_text
from oncegate.cli.people import actor_of
from oncegate.clock import SystemClock
from oncegate.model.decisions import check_actor, check_reason
from oncegate.signals.seconds import open_seconds_of
from oncegate.store import ResourceDismissal, SecondResource

_HEADERS: Final = (
    "ID", "SURFACE", "TARGET", "DOWNSTREAM", "RESOURCE", "ENTRY", "OTHER", "OTHER ENTRY", "FOUND (UTC)"
)  # fmt: skip


def add_parser(subparsers: Any) -> None:
    """Adds the command group to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "resources",
        help="list second resources of one key or one target",
        description="Resources that a downstream gave twice: for one key, to a worker that came back late,"
        " or for one target, such as a container, to two events.",
    )
    parser.set_defaults(run=print_help_as_error)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    _add_list(commands)
    _add_dismiss(commands)


def _add_list(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "list",
        help="list what was found, oldest first",
        description="List second resources that no person has decided on, oldest first. Only reads.",
    )
    add_url(parser)
    add_json(parser)
    parser.add_argument("--surface", type=read_text, help="findings of this surface")
    parser.set_defaults(run=run_list)


def _add_dismiss(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "dismiss",
        help="say that a second resource is cancelled, or meant",
        description="Say that a second resource is dealt with, with a reason, which the log keeps.",
    )
    parser.add_argument("number", type=read_number, metavar="ID", help="the finding's id, as listed")
    parser.add_argument("--reason", type=read_text, required=True, help="why, for the next person")
    parser.add_argument(
        "--as", "--by", dest="actor", metavar="NAME", type=read_text,
        help="who you are (default: your login)",
    )  # fmt: skip
    add_url(parser)
    parser.set_defaults(run=run_dismiss)


def run_list(arguments: argparse.Namespace) -> int:
    """Prints the findings."""
    with reading(open_ledger(arguments.url), arguments.url) as session:
        if arguments.surface is not None:
            refuse_unknown_surface(session, arguments.surface)
        found = [one for one in open_seconds_of(session) if arguments.surface in (None, one.surface)]
    if arguments.json:
        for one in found:
            print_json(_facts(one))
    elif found:
        print_table(_HEADERS, [_row(one) for one in found])
    else:
        tell("no second resources are known")
    return DONE


def _row(one: SecondResource) -> list[Cell]:
    target = "(one key)" if one.is_of_key else one.target
    found_at = utc(one.found_at_ms)[:19].replace("T", " ")
    values = (
        one.number, one.surface, target, one.place, one.resource, one.entry_id,
        one.other_resource or "none on record", one.other_id, found_at,
    )  # fmt: skip
    return [Cell.of(value) for value in values]


def _facts(one: SecondResource) -> dict[str, Any]:
    return {
        "id": one.number,
        "of": "key" if one.is_of_key else "target",
        "surface": one.surface,
        "target": one.target or None,
        "downstream": one.place,
        "resource": one.resource,
        "entry": one.entry_id,
        "other_resource": one.other_resource,
        "other_entry": one.other_id,
        "found_at": utc(one.found_at_ms),
    }


def run_dismiss(arguments: argparse.Namespace) -> int:
    """Notes a person's word."""
    actor, reason = check_actor(actor_of(arguments)), check_reason(arguments.reason)
    store = open_ledger(arguments.url)
    with reading(store, arguments.url):
        pass  # a ledger that is missing or out of date is refused, not made
    session = store.connect()
    try:
        with session.unit():
            told = ResourceDismissal(arguments.number, SystemClock().wall_ms(), actor, reason)
            is_done = session.dismiss_resource(told)
    finally:
        session.close()
    if not is_done:
        complain(f"no second resource {arguments.number} is open; see: oncegate resources list")
        return NOT_SO
    tell(f"second resource {arguments.number} is dismissed")
    return DONE
