"""`oncegate journal`: who did what, when and why; with the gate's own records if asked for. Only reads."""

from __future__ import annotations

import argparse
import shlex
from typing import Any, Final

from oncegate.cli.exitcodes import DONE
from oncegate.cli.journal_proofs import add_proofs
from oncegate.cli.ledger import open_ledger, reading
from oncegate.cli.output import Cell, print_json, print_table, tell, utc
from oncegate.cli.parser import PAGE_MAX, add_json, add_url, read_page_size
from oncegate.cli.time_filters import add_times, span_of, time_words
from oncegate.review.wording import happened
from oncegate.store import LaneName, LogRecord, Session

LIMIT_DEFAULT: Final = 50
SCANNED: Final = 1_000  # records of one look, where later ones are passed over
POSITION_DIGITS_MAX: Final = 38  # PostgreSQL's positions are a transaction's number and one of its own

_EPILOG = """\
examples:
  oncegate journal
  oncegate journal --all --limit 200
  oncegate journal verify --head head.txt
  oncegate journal prove 17 --out proof.json
  oncegate journal --json | jq -r 'select(.what == "sign_in_refused") | .note'"""


def add_parser(subparsers: Any) -> None:
    """Adds the command to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "journal",
        help="show who did what, when and why; seal, verify and prove it",
        description=(
            "Show what people did and what was given up, newest first: decisions, looks at content, plans,"
            " sign-ins and those that were refused. Nothing is changed."
        ),
        epilog=_EPILOG,
    )
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    add_proofs(commands)
    for one in commands.choices.values():
        for action in one._actions:  # an option before the command counts as well
            action.default = argparse.SUPPRESS if action.dest in ("url", "json") else action.default
    add_url(parser)
    add_json(parser)
    parser.add_argument("--all", action="store_true", help="the gate's own records as well")
    parser.add_argument(
        "--limit", type=read_page_size, default=LIMIT_DEFAULT, metavar="N",
        help=f"at most so many records, up to {PAGE_MAX} (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--before", type=_read_position, metavar="POSITION", help="only records before this one"
    )
    add_times(parser, "happened")
    parser.set_defaults(run=run)


def _read_position(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= POSITION_DIGITS_MAX):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a position; --json shows them")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Prints one page of records and how to get the next."""
    with reading(open_ledger(arguments.url), arguments.url) as session:
        found = _within(session, arguments)
        page = found[: arguments.limit]
        lanes = session.lane_names([-record.entry_id for record in page if record.entry_id < 0])
    if arguments.json:
        for record in page:
            print_json(_facts(record, lanes.get(-record.entry_id)))
    elif page:
        print_table(
            ("AT (UTC)", "BY", "WHAT", "ABOUT", "NOTE"),
            [_row(record, lanes.get(-record.entry_id)) for record in page],
        )
    else:
        tell(
            "nothing is on record"
            if arguments.all
            else "no person has done anything yet; --all shows the rest"
        )
    if len(found) > len(page):
        tell(f"there are more; the next page: {_next_page(arguments, page[-1].position)}")
    return DONE


def _within(session: Session, arguments: argparse.Namespace) -> list[LogRecord]:
    """One record more than a page; records later than asked for are passed over page by page."""
    span, before, size = span_of(arguments), arguments.before, arguments.limit + 1
    found: list[LogRecord] = []
    while len(found) < size:
        page = session.log_before(before, SCANNED if span.until_ms else size, by_people=not arguments.all)
        found += [record for record in page if span.has(record.at_ms)]
        if not page or (span.since_ms is not None and page[-1].at_ms < span.since_ms):
            break
        before = page[-1].position
    return found[:size]


def _facts(record: LogRecord, lane: LaneName | None) -> dict[str, Any]:
    return {
        "at": utc(record.at_ms),
        "actor": record.actor,
        "what": record.kind.name.lower(),
        "entry": record.entry_id if record.entry_id > 0 else None,
        "lane": None if lane is None else lane._asdict(),
        "note": record.note,
        "position": record.position,
    }


def _row(record: LogRecord, lane: LaneName | None) -> list[Cell]:
    about = f"entry {record.entry_id}" if record.entry_id > 0 else ""
    about = about if lane is None else f"{lane.key} to {lane.destination}"
    values = (utc(record.at_ms)[:19], record.actor, happened(record.kind), about, record.note or "")
    return [Cell.of(value) for value in values]


def _next_page(arguments: argparse.Namespace, last: int) -> str:
    words = ["oncegate", "journal"]
    words += [] if arguments.url is None else ["--url", arguments.url]
    words += ["--all"] if arguments.all else []
    words += time_words(arguments)
    words += [] if arguments.limit == LIMIT_DEFAULT else ["--limit", str(arguments.limit)]
    words += ["--json"] if arguments.json else []
    return shlex.join([*words, "--before", str(last)])
