"""`oncegate duplicates`: the same change wanted twice under different keys, found, listed and dismissed.

Nothing is dropped or undone here: what a compensation would be is told, and a person carries it out.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from oncegate.cli.entries import refuse_unknown_surface
from oncegate.cli.exitcodes import DONE, NOT_SO
from oncegate.cli.ledger import open_ledger, reading
from oncegate.cli.output import Cell, complain, print_json, print_table, tell, utc
from oncegate.cli.parser import add_json, add_url, print_help_as_error, read_number, read_text
from oncegate.cli.people import actor_of
from oncegate.clock import SystemClock
from oncegate.model.durations import parse_duration
from oncegate.model.rulings import check_actor, check_reason
from oncegate.model.states import State
from oncegate.store import Dismissal, Duplicate, Entry, Session
from oncegate.upkeep.content_scan import ContentScan
from oncegate.upkeep.duplicates import compensation_of

_HEADERS: Final = (
    "ID", "SURFACE", "LABEL", "STATE", "OTHER", "OTHER STATE", "TARGET", "FLAGGED (UTC)", "COMPENSATION"
)  # fmt: skip
LIMIT_DEFAULT: Final = 50
PAGE_PAIRS: Final = 200


def add_parser(subparsers: Any) -> None:
    """Adds the command group to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "duplicates",
        help="find the same change wanted twice under different keys",
        description="Events that would change the same thing in the same way, under different keys.",
    )
    parser.set_defaults(run=print_help_as_error)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    _add_list(commands)
    _add_scan(commands)
    _add_dismiss(commands)


def _add_list(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "list",
        help="list what was found, newest first",
        description="List pairs that were found and not dismissed, newest first, with what would undo a"
        " change that was made. Nothing is changed.",
    )
    add_url(parser)
    add_json(parser)
    parser.add_argument("--surface", type=read_text, help="pairs of this surface")
    parser.add_argument("--tenant", type=read_text, help="pairs of this tenant")
    parser.add_argument("--all", action="store_true", help="also those that were dismissed")
    parser.add_argument(
        "--limit", type=read_number, default=LIMIT_DEFAULT, metavar="N",
        help="at most so many pairs (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--before", type=read_number, metavar="ID", help="only pairs older than this one")
    parser.set_defaults(run=run_list)


def _add_scan(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "scan",
        help="look for duplicates among what has arrived since the last scan",
        description="Look on from where the last scan stopped. What has not run is put in quarantine; what"
        " has run stays as it is and is listed. Caretakers do this once a day.",
    )
    add_url(parser)
    add_json(parser)
    parser.add_argument(
        "--window", default="72h", metavar="TIME",
        help="pairs received no further apart than this (default: %(default)s)",
    )  # fmt: skip
    parser.set_defaults(run=run_scan)


def _add_dismiss(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "dismiss",
        help="say that a pair is meant to be two",
        description="Say that a pair is no duplicate, with a reason; both are kept. An entry that was put"
        " in quarantine stays there until it is released.",
    )
    parser.add_argument("entry", type=read_number, metavar="ID", help="the pair's id, as listed")
    parser.add_argument("--reason", type=read_text, required=True, help="why, for whoever reads it later")
    parser.add_argument(
        "--as", "--by", dest="actor", metavar="NAME", type=read_text,
        help="who you are (default: your login)",
    )  # fmt: skip
    add_url(parser)
    parser.set_defaults(run=run_dismiss)


def run_list(arguments: argparse.Namespace) -> int:
    """Prints one page of pairs."""
    with reading(open_ledger(arguments.url), arguments.url) as session:
        if arguments.surface is not None:
            refuse_unknown_surface(session, arguments.surface)
        found = list(islice(_wanted(session, arguments), arguments.limit + 1))
        page = [(pair, _undoing(session, pair)) for pair in found[: arguments.limit]]
    if arguments.json:
        for pair, undoing in page:
            print_json(_facts(pair, undoing))
    elif page:
        print_table(_HEADERS, [_row(pair, undoing) for pair, undoing in page])
    else:
        is_all = arguments.surface is None and arguments.tenant is None
        tell("no duplicates are known" + ("" if is_all else " that fit"))
    if len(found) > len(page):
        tell(f"there are more; the next page: --before {page[-1][0].pair.entry_id}")
    return DONE


def _wanted(session: Session, arguments: argparse.Namespace) -> Iterator[Duplicate]:
    """The pairs that fit, newest first, page by page; both entries of a pair have the same tenant."""
    before = arguments.before
    while page := session.duplicates(before, PAGE_PAIRS, dismissed=arguments.all):
        yield from (pair for pair in page if _fits(pair, arguments))
        before = page[-1].pair.entry_id


def _fits(pair: Duplicate, arguments: argparse.Namespace) -> bool:
    known = [entry for entry in (pair.entry, pair.other) if entry is not None]
    surface, tenant = arguments.surface, arguments.tenant
    is_of_surface = surface is None or surface in [entry.surface for entry in known]
    return is_of_surface and (tenant is None or tenant in [entry.tenant for entry in known])


def _undoing(session: Session, pair: Duplicate) -> str:
    """What would undo the later change, if it was made."""
    if pair.entry is None or pair.entry.state is not State.COMMITTED or pair.dismissed_at_ms is not None:
        return ""
    return compensation_of(session, pair) or ""


def _row(pair: Duplicate, undoing: str) -> list[Cell]:
    entry = pair.entry
    values = (
        pair.pair.entry_id, "" if entry is None else entry.surface, "" if entry is None else entry.label,
        _state(entry), pair.pair.other_id, _state(pair.other), pair.target,
        utc(pair.flagged_at_ms)[:19].replace("T", " "), _told(pair, undoing),
    )  # fmt: skip
    return [Cell.of(value) for value in values]


def _told(pair: Duplicate, undoing: str) -> str:
    return undoing if pair.dismissed_at_ms is None else f"dismissed by {pair.dismissed_by}: {pair.note}"


def _state(entry: Entry | None) -> str:
    return "forgotten" if entry is None else entry.state.label


def _facts(pair: Duplicate, undoing: str) -> dict[str, Any]:
    return {
        "id": pair.pair.entry_id,
        "key": None if pair.entry is None else pair.entry.key.hex(),
        "surface": None if pair.entry is None else pair.entry.surface,
        "label": None if pair.entry is None else pair.entry.label,
        "state": _state(pair.entry),
        "other": pair.pair.other_id,
        "other_key": None if pair.other is None else pair.other.key.hex(),
        "other_state": _state(pair.other),
        "target": pair.target,
        "flagged_at": utc(pair.flagged_at_ms),
        "compensation": undoing or None,
        "dismissed_at": utc(pair.dismissed_at_ms) or None,
        "dismissed_by": pair.dismissed_by,
        "note": pair.note,
    }


def run_scan(arguments: argparse.Namespace) -> int:
    """Scans to the end of what has arrived."""
    window, store = parse_duration(arguments.window), open_ledger(arguments.url)
    with reading(store, arguments.url):
        pass  # a ledger that is missing or out of date is refused, not made
    scan = ContentScan(store, SystemClock(), window=window, actor="oncegate duplicates scan")
    report = scan.run_once()
    told = {
        "looked": report.looked,
        "pairs": [{"id": pair.entry_id, "other": pair.other_id} for pair in report.pairs],
        "stopped": report.stopped,
        "more": not report.is_complete,
    }
    if arguments.json:
        print_json(told)
    else:
        print(f"{report.looked} looked at, {len(report.pairs)} new pairs, {len(report.stopped)} stopped")
    if not report.is_complete:
        tell("there are more; run it again")
    return DONE


def run_dismiss(arguments: argparse.Namespace) -> int:
    """Dismisses a pair; one that is dismissed already, or not there, is told and left as it is."""
    note, actor = check_reason(arguments.reason), check_actor(actor_of(arguments))
    known = _pair(arguments)
    if known is None:
        complain(f"there is no pair {arguments.entry}; see: oncegate duplicates list")
        return NOT_SO
    if known.dismissed_at_ms is None and _dismiss(arguments, actor, note):
        tell(f"pair {arguments.entry} is dismissed")
        return DONE
    known = _pair(arguments) or known  # somebody else may have been first, a moment ago
    tell(f"pair {arguments.entry} was dismissed by {known.dismissed_by} before: {known.note}")
    return DONE


def _pair(arguments: argparse.Namespace) -> Duplicate | None:
    with reading(open_ledger(arguments.url), arguments.url) as session:
        known = session.duplicates(arguments.entry + 1, 1, dismissed=True)
    return known[0] if known and known[0].pair.entry_id == arguments.entry else None


def _dismiss(arguments: argparse.Namespace, actor: str, note: str) -> bool:
    """Dismisses a pair; False if it was dismissed meanwhile."""
    session = open_ledger(arguments.url).connect()
    try:
        with session.unit():
            return session.dismiss(Dismissal(arguments.entry, SystemClock().wall_ms(), actor, note))
    finally:
        session.close()
