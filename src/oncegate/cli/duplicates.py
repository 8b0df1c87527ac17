"""`oncegate duplicates`: the same change wanted twice under different keys, found, listed and decided.

Nothing is dropped or undone here. The command names the compensation, and a person carries it out.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import islice
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
from oncegate.errors import ConfigError
from oncegate.maintenance.content_scan import ContentScan
from oncegate.model.differences import differing
from oncegate.model.durations import parse_duration
from oncegate.model.states import State
from oncegate.review.duplicates import compensation_of
from oncegate.review.pairs import PairVerb, PairWord, decide_pair, find_pair, seen_fences, verbs_of
from oncegate.store import Duplicate, Entry, Session

_HEADERS: Final = (
    "ID", "SURFACE", "LABEL", "STATE", "OTHER", "OTHER STATE", "TARGET", "FLAGGED (UTC)", "COMPENSATION"
)  # fmt: skip
_HELP: Final = {
    PairVerb.MEANT: "say that both changes of a pair were meant",
    PairVerb.UNDONE: "say that you have undone one change of a pair that ran twice",
    PairVerb.KEEP_FIRST: "keep the first change of a pair and end the second, which has not run",
}
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
    for verb in PairVerb:
        _add_verb(commands, verb)


def _add_list(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "list",
        help="list what was found, newest first",
        description="List pairs that were found and not decided, newest first, with what would undo a"
        " change that was made. Nothing is changed.",
    )
    add_url(parser)
    add_json(parser)
    parser.add_argument("--surface", type=read_text, help="pairs of this surface")
    parser.add_argument("--tenant", type=read_text, help="pairs of this tenant")
    parser.add_argument("--all", action="store_true", help="also those that were decided")
    parser.add_argument(
        "--limit", type=read_number, default=LIMIT_DEFAULT, metavar="N",
        help="at most so many pairs (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--before", type=read_number, metavar="ID", help="only pairs older than this one")
    add_times(parser, "was found")
    parser.set_defaults(run=run_list)


def _add_scan(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "scan",
        help="look for duplicates among what has arrived since the last scan",
        description="Look on from where the last scan stopped. What has not run is put in quarantine; what"
        " has run stays as it is and is listed. The worker does this once a day.",
    )
    add_url(parser)
    add_json(parser)
    parser.add_argument(
        "--window", default="72h", metavar="TIME",
        help="pairs received no further apart than this (default: %(default)s)",
    )  # fmt: skip
    parser.set_defaults(run=run_scan)


def _add_verb(commands: Any, verb: PairVerb) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        verb.value,
        help=_HELP[verb],
        description=f"{_HELP[verb].capitalize()}, with a reason: {verb.consequence}.",
    )
    parser.add_argument("entry", type=read_number, metavar="ID", help="the pair's id, as listed")
    parser.add_argument("--reason", type=read_text, required=True, help="why; kept in the log")
    parser.add_argument(
        "--as", "--by", dest="actor", metavar="NAME", type=read_text,
        help="who you are (default: your login)",
    )  # fmt: skip
    parser.add_argument(
        "--fences", type=read_text, metavar="N,M",
        help="only if the fences of the second and the first, as `list --json` prints, are still these",
    )  # fmt: skip
    add_url(parser)
    parser.set_defaults(run=partial(run_verb, verb))


def run_list(arguments: argparse.Namespace) -> int:
    """Prints one page of pairs."""
    with reading(open_ledger(arguments.url), arguments.url) as session:
        if arguments.surface is not None:
            refuse_unknown_surface(session, arguments.surface)
        found = list(islice(_wanted(session, arguments), arguments.limit + 1))
        page = [(pair, _undoing(session, pair)) for pair in found[: arguments.limit]]
        apart = {pair.pair.entry_id: _apart(session, pair) for pair, _ in page} if arguments.json else {}
    if arguments.json:
        for pair, undoing in page:
            print_json({**_facts(pair, undoing), "differs_in": apart[pair.pair.entry_id]})
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
    before, span = arguments.before, span_of(arguments)
    while page := session.duplicates(before, PAGE_PAIRS, dismissed=arguments.all):
        yield from (pair for pair in page if _fits(pair, arguments) and span.has(pair.flagged_at_ms))
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


def _apart(session: Session, pair: Duplicate) -> list[str] | None:
    details = [session.detail(number) for number in (pair.pair.other_id, pair.pair.entry_id)]
    return differing(*(None if seen is None else seen.body for seen in details))


def _row(pair: Duplicate, undoing: str) -> list[Cell]:
    entry = pair.entry
    values = (
        pair.pair.entry_id, "" if entry is None else entry.surface, "" if entry is None else entry.label,
        _state(entry), pair.pair.other_id, _state(pair.other), pair.target,
        utc(pair.flagged_at_ms)[:19].replace("T", " "), _told(pair, undoing),
    )  # fmt: skip
    return [Cell.of(value) for value in values]


def _told(pair: Duplicate, undoing: str) -> str:
    if pair.dismissed_at_ms is not None:
        return f"decided by {pair.dismissed_by}: {pair.note}"
    if pair.ran_with is None or pair.ran_with.entry_id == pair.pair.other_id:
        return undoing
    ran = f"entry {pair.ran_with.entry_id} ran too"  # another than the one it is paired with
    return f"{ran}; {undoing}" if undoing else ran


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
        "ran_with": None if pair.ran_with is None else pair.ran_with.entry_id,
        "target": pair.target,
        "flagged_at": utc(pair.flagged_at_ms),
        "compensation": undoing or None,
        "dismissed_at": utc(pair.dismissed_at_ms) or None,
        "dismissed_by": pair.dismissed_by,
        "note": pair.note,
        "fences": list(seen_fences(pair)),
        "says": [] if pair.dismissed_at_ms is not None else [verb.value for verb in verbs_of(pair)],
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


def run_verb(verb: PairVerb, arguments: argparse.Namespace) -> int:
    """Says a word about a pair; one that is decided already, or not there, is left as it is."""
    word = PairWord(verb, actor_of(arguments), arguments.reason, _fences(arguments.fences))
    store = open_ledger(arguments.url)
    with reading(store, arguments.url) as session:
        if find_pair(session, arguments.entry) is None:
            complain(f"there is no pair {arguments.entry}; see: oncegate duplicates list")
            return NOT_SO
    with closing(GroupCommit(store)) as commits:
        decide_pair(commits, SystemClock(), arguments.entry, word)
    tell(f"pair {arguments.entry} is decided: {verb.said}")
    return DONE


def _fences(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    parts = text.split(",")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
        raise ConfigError(f"--fences {text[:40]!r} cannot be read; write two numbers, such as 12,7")
    return int(parts[0]), int(parts[1])
