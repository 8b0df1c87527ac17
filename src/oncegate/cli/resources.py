"""`oncegate resources`: second resources of one key or one target, listed and decided.

Nothing is cancelled here: a person cancels what is not needed at the downstream, and says so.
"""

from __future__ import annotations

import argparse
from contextlib import closing
from functools import partial
from typing import Any, Final

from oncegate.cli.entries import refuse_unknown_surface
from oncegate.cli.exitcodes import DONE, NOT_SO
from oncegate.cli.ledger import open_ledger, reading
from oncegate.cli.output import Cell, complain, print_json, print_table, tell, utc
from oncegate.cli.parser import add_json, add_url, print_help_as_error, read_number, read_text
from oncegate.cli.people import actor_of
from oncegate.cli.time_filters import add_times, span_of
from oncegate.clock import SystemClock
from oncegate.commit.group_commit import GroupCommit
from oncegate.errors import RulingRefused
from oncegate.model.decisions import check_actor, check_reason
from oncegate.review.second_resources import SecondVerb, SecondWord, decide_second
from oncegate.signals.seconds import SHOWN_MAX, counts_of, judged
from oncegate.store import SecondResource

_HEADERS: Final = (
    "ID", "SURFACE", "TARGET", "DOWNSTREAM", "RESOURCE", "ENTRY", "OTHER", "OTHER ENTRY", "FOUND (UTC)",
    "SEEN BY",
)  # fmt: skip
_HELP: Final = {
    SecondVerb.UNDONE: "say that you have cancelled one resource of two",
    SecondVerb.MEANT: "say that both resources are meant",
    SecondVerb.ACKNOWLEDGE: "say that you look into a second resource, which stays open",
}


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
    for verb in SecondVerb:
        _add_verb(commands, verb)


def _add_list(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "list",
        help="list what was found, oldest first",
        description="List second resources that no person has decided on, oldest first. Only reads.",
    )
    add_url(parser)
    add_json(parser)
    parser.add_argument("--surface", type=read_text, help="findings of this surface")
    add_times(parser, "was found")
    parser.set_defaults(run=run_list)


def _add_verb(commands: Any, verb: SecondVerb) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        verb.value,
        help=_HELP[verb],
        description=f"{_HELP[verb].capitalize()}, with a reason: {verb.consequence}.",
    )
    parser.add_argument("number", type=read_number, metavar="ID", help="the finding's id, as listed")
    parser.add_argument("--reason", type=read_text, required=True, help="why; kept in the log")
    parser.add_argument(
        "--as", "--by", dest="actor", metavar="NAME", type=read_text,
        help="who you are (default: your login)",
    )  # fmt: skip
    add_url(parser)
    parser.set_defaults(run=partial(run_verb, verb))


def run_list(arguments: argparse.Namespace) -> int:
    """Prints the findings."""
    with reading(open_ledger(arguments.url), arguments.url) as session:
        if arguments.surface is not None:
            refuse_unknown_surface(session, arguments.surface)
        span = span_of(arguments)
        read = session.second_resources(0, SHOWN_MAX)
        found = [
            one
            for one in judged(read)
            if arguments.surface in (None, one.surface) and span.has(one.found_at_ms)
        ]
        counts = counts_of(session.second_counts(), read)
        total = sum(one.findings for one in counts if arguments.surface in (None, one.surface))
    if arguments.json:
        for one in found:
            print_json(_facts(one))
    elif found:
        print_table(_HEADERS, [_row(one) for one in found])
        if len(read) == SHOWN_MAX:
            tell(f"the oldest {SHOWN_MAX:,} findings were looked at; {total:,} are open")
    else:
        tell("no second resources are known")
    return DONE


def _row(one: SecondResource) -> list[Cell]:
    target = "(one key)" if one.is_of_key else one.target
    found_at = utc(one.found_at_ms)[:19].replace("T", " ")
    values = (
        one.number, one.surface, target, one.place, one.resource, one.entry_id,
        one.other_resource or "none on record", one.other_id, found_at,
        one.acknowledged_by,
    )  # fmt: skip
    return [Cell.of(value) for value in values]


def _facts(one: SecondResource) -> dict[str, Any]:
    return {
        "id": one.number,
        "of": one.of,
        "surface": one.surface,
        "target": one.target or None,
        "downstream": one.place,
        "resource": one.resource,
        "entry": one.entry_id,
        "other_resource": one.other_resource,
        "other_entry": one.other_id,
        "found_at": utc(one.found_at_ms),
        "acknowledged_by": one.acknowledged_by or None,
        "note": one.note or None,
    }


def run_verb(verb: SecondVerb, arguments: argparse.Namespace) -> int:
    """Notes a person's word."""
    actor, reason = check_actor(actor_of(arguments)), check_reason(arguments.reason)
    store = open_ledger(arguments.url)
    with reading(store, arguments.url):
        pass  # a ledger that is missing or out of date is refused, not made
    with closing(GroupCommit(store)) as commits:
        try:
            decide_second(commits, SystemClock(), arguments.number, SecondWord(verb, actor, reason))
        except RulingRefused:
            complain(f"no second resource {arguments.number} is open; see: oncegate resources list")
            return NOT_SO
    tell(f"second resource {arguments.number}: {verb.said}")
    return DONE
