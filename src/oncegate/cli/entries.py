"""`oncegate entries`: lists what the gate has seen, and shows one entry with its history.

Must only read: no ledger is created, no entry changed.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, TextIO

import msgspec

from oncegate.cli import timeline
from oncegate.cli.entries_tail import add_tail
from oncegate.cli.entry_fields import EVENTS_READ_MAX, read_field, with_fields
from oncegate.cli.exitcodes import DONE
from oncegate.cli.ledger import open_ledger, reading
from oncegate.cli.output import Cell, age, print_json, print_table, tell, utc
from oncegate.cli.parser import (
    PAGE_MAX,
    add_json,
    add_url,
    is_row_number,
    print_help_as_error,
    read_key_prefix,
    read_number,
    read_page_size,
    read_text,
)
from oncegate.cli.repeats import print_repeats, repeat_facts
from oncegate.cli.time_filters import add_times, span_of, time_words
from oncegate.clock import SystemClock
from oncegate.errors import ConfigError, OncegateError, UnknownSurface
from oncegate.gate.flows.accepting import SURFACE_LANES
from oncegate.model.decisions import Verb
from oncegate.model.states import State
from oncegate.sender.entry_search import RESOURCES_LOOKED_BACK, find_entries, floor_of
from oncegate.store import Entry, EntryDetail, EntryFilter, Facet, Session, offers, require

LIMIT_DEFAULT: Final = 50
CANDIDATES_MAX: Final = 10
KEY_DIGITS_MIN: Final = 12  # of a key that is named by decimal digits only: no ledger has ids this long
KEY_SHOWN: Final = 12  # hex digits; two of a million keys share them once in hundreds of ledgers
SURFACES_SHOWN_MAX: Final = 20

_HEADERS: Final = (
    "ID", "KEY", "SURFACE", "TENANT", "LABEL", "STATE", "ATTEMPT", "RECEIVED (UTC)", "AGE", "REASON"
)  # fmt: skip

_LIST_EPILOG = """\
examples:
  oncegate entries list --state quarantined
  oncegate entries list --surface portbase.cis --label MSKU --limit 20
  oncegate entries list --since 2h --until 30m --field amount=995
  oncegate entries list --json | jq -r 'select(.attempt > 1) | .key'"""

_SHOW_EPILOG = """\
A number is taken for an id first and for the beginning of a key otherwise.

examples:
  oncegate entries show 42
  oncegate entries show 3f9ac2 --payload
  oncegate entries show 3f9ac2 --json"""


_RETRY_EPILOG = """\
Entries that failed by what their handler raised or answered run again, under the key they have:
steps that are done are skipped, and attempts count again. A call at a downstream that neither honours
keys nor can be asked needs your word: --step NAME=did-not-happen. A downstream that honours the key
may give its first answer again. Entries that a person rejected or discarded stay ended.

examples:
  oncegate entries retry 42 --reason "the tariff is in the price list now"
  oncegate entries retry --surface orders --age-under 2h --reason "bug 17 is mended" --dry-run
  oncegate entries retry --surface payouts --step call=did-not-happen --reason "asked the bank" --yes"""


class NoSuchEntry(OncegateError):
    """Nothing in the ledger has this id or key."""


class SeveralEntries(OncegateError):
    """More than one key begins like this."""


def add_parser(subparsers: Any) -> None:
    """Adds the command group to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "entries",
        help="list what the gate has seen, show one entry with its history, let failed ones run again",
        description="Look at what the gate has recorded, and let entries that failed run again.",
    )
    parser.set_defaults(run=print_help_as_error)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    _add_list(commands)
    _add_show(commands)
    _add_retry(commands)
    add_tail(commands, _add_filters)


def _add_retry(commands: Any) -> None:
    from oncegate.cli.people import ReviewCommands, add_verb

    desk = ReviewCommands("entries", (State.FAILED,), Verb.RETRY, Verb.RETRY, "", _RETRY_EPILOG)
    add_verb(commands, desk, Verb.RETRY)


def _add_list(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "list",
        help="list entries, newest first",
        description="List entries, newest first. An entry is listed if all given filters fit it.",
        epilog=_LIST_EPILOG,
    )
    parser.add_argument(
        "text", metavar="TEXT", nargs="?", type=read_text,
        help="an entry's number, the beginning of a key, a label, or a resource that its outcome names",
    )  # fmt: skip
    add_url(parser)
    add_json(parser)
    _add_filters(parser)
    add_times(parser, "arrived")
    parser.add_argument("--resource", type=read_text, help="entries whose outcome names this resource")
    parser.add_argument(
        "--field", action="append", type=read_field, default=[], metavar="PATH=VALUE",
        help=f"entries whose event has this value; looks at up to {EVENTS_READ_MAX:,} events",
    )  # fmt: skip
    parser.add_argument(
        "--limit", type=read_page_size, default=LIMIT_DEFAULT, metavar="N",
        help=f"at most so many entries, up to {PAGE_MAX} (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--before", type=read_number, metavar="ID", help="only entries older than this one")
    parser.set_defaults(run=run_list)


def _add_filters(parser: argparse.ArgumentParser) -> None:
    states = ", ".join(state.label for state in State)
    parser.add_argument(
        "--state", action="append", type=_read_state, default=[], metavar="STATE",
        help=f"entries in this state; may be given several times ({states})",
    )  # fmt: skip
    parser.add_argument("--surface", type=read_text, help="entries of this surface")
    parser.add_argument("--tenant", type=read_text, help="entries of this tenant")
    parser.add_argument("--key", type=read_key_prefix, metavar="PREFIX", help="keys that begin like this")
    parser.add_argument("--label", type=read_text, metavar="TEXT", help="labels that contain this text")


def _add_show(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "show",
        help="show one entry with its history",
        description="Show one entry: what is known of it, its history, steps and outcome.",
        epilog=_SHOW_EPILOG,
    )
    parser.add_argument(
        "entry", metavar="KEY_OR_ID", type=read_text, help="the entry's id, or how its key begins"
    )
    add_url(parser)
    add_json(parser)
    parser.add_argument("--payload", action="store_true", help="also show the event and the steps' results")
    parser.set_defaults(run=run_show)


def _read_state(text: str) -> State:
    try:
        return State[text.strip().replace("-", "_").upper()]
    except KeyError:
        states = ", ".join(state.label for state in State)
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a state; states are {states}") from None


def run_list(arguments: argparse.Namespace) -> int:
    """Prints one page of entries and how to get the next."""
    span = span_of(arguments)
    wanted = EntryFilter(
        tuple(arguments.state), arguments.surface, arguments.tenant, arguments.key, arguments.label,
        received_before_ms=span.until_ms, received_after_ms=span.after_ms, resource=arguments.resource,
    )  # fmt: skip
    store = open_ledger(arguments.url, needs=Facet.OPEN_ENTRIES)
    if arguments.text is not None:
        require(store, Facet.REVIEW, "searches by text")
    with reading(store, arguments.url) as session:
        found = _find(session, wanted, arguments)
        if not found:
            _explain_nothing(session, wanted, arguments)
        waiting = _accepted(session) if offers(session, Facet.LANES) else 0
    page = found[: arguments.limit]
    if arguments.json:
        for entry in page:
            print_json(timeline.facts(entry))
    elif page:
        print_entries(page)
    if len(found) > len(page):
        tell(f"there are more; the next page: {_next_page(arguments, page[-1].entry_id)}")
    if waiting:
        tell(f"accepted and not settled yet: {waiting}, in order of their lanes: oncegate lanes list")
    if Facet.REVIEW not in store.capabilities.facets:
        name = store.capabilities.name
        tell(f"this ledger ({name}) lists open entries only; show others by their whole key")
    return DONE


def _find(session: Session, wanted: EntryFilter, arguments: argparse.Namespace) -> list[Entry]:
    if arguments.text is None and arguments.field:
        found, is_cut = with_fields(session, wanted, arguments.before, arguments.field, arguments.limit + 1)
        if is_cut:
            tell(f"the newest {EVENTS_READ_MAX:,} events that fit were looked at; narrow it with --since")
        return found
    if arguments.text is None:
        is_bounded = arguments.resource is not None and wanted.received_after_ms is None
        if is_bounded and offers(session, Facet.REVIEW):
            wanted = msgspec.structs.replace(wanted, above_id=floor_of(session, RESOURCES_LOOKED_BACK))
        return session.entries(wanted, arguments.before, arguments.limit + 1)
    if wanted != EntryFilter(tenant=wanted.tenant) or arguments.before is not None or arguments.field:
        raise ConfigError("give a text or filters, not both; --tenant goes with either")
    return find_entries(session, arguments.text, wanted.tenant)[: arguments.limit]


def _accepted(session: Session) -> int:
    """How many events of accepting surfaces still stand in their lanes; only their heads have entries."""
    views = session.destinations()
    return sum(view.events for view in views if view.name.startswith(SURFACE_LANES))


def print_entries(entries: Sequence[Entry], stream: TextIO | None = None) -> None:
    """Prints entries as a table."""
    print_table(_HEADERS, list(map(partial(_row, now_ms=SystemClock().wall_ms()), entries)), stream)


def _row(entry: Entry, now_ms: int) -> list[Cell]:
    values = (
        entry.entry_id, entry.key.hex()[:KEY_SHOWN], entry.surface, entry.tenant, entry.label,
        entry.state.label, entry.attempt, utc(entry.received_at_ms)[:19].replace("T", " "),
        age(now_ms - entry.received_at_ms), entry.reason or "",
    )  # fmt: skip
    colours = {5: timeline.COLOURS[entry.state]}
    return [
        Cell.of(value, colours[number]) if number in colours else Cell.of(value)
        for number, value in enumerate(values)
    ]


def _explain_nothing(session: Session, wanted: EntryFilter, arguments: argparse.Namespace) -> None:
    """Says why a list is empty; a surface that the ledger has never seen is a mistake, not an answer."""
    if wanted.surface is not None:
        refuse_unknown_surface(session, wanted.surface)
    if arguments.before is not None or any(session.entries(EntryFilter(), None, 1)):
        tell("no entry fits")
    else:
        tell("the ledger has no entries yet")


def refuse_unknown_surface(session: Session, surface: str, *, has_all: bool = False) -> None:
    """Raises UnknownSurface if the ledger has entries, but none of this surface.

    `has_all`: each shard names all its surfaces. Without review, a list of the open ones is not all.
    """
    surfaces = session.surfaces() if has_all or offers(session, Facet.REVIEW) else []
    if surfaces and surface not in surfaces:
        shown = ", ".join(surfaces[:SURFACES_SHOWN_MAX])
        more = ", …" if len(surfaces) > SURFACES_SHOWN_MAX else ""
        raise UnknownSurface(f"no entry has the surface {surface!r}; surfaces are {shown}{more}")


def _next_page(arguments: argparse.Namespace, last: int) -> str:
    words = ["oncegate", "entries", "list"]
    for option in ("url", "surface", "tenant", "key", "label", "resource"):
        value = getattr(arguments, option)
        words += [] if value is None else [f"--{option}", value]
    for state in arguments.state:
        words += ["--state", state.label]
    words += time_words(arguments)
    for field in arguments.field:
        words += ["--field", f"{'.'.join(field.path)}={field.text}"]
    words += [] if arguments.limit == LIMIT_DEFAULT else ["--limit", str(arguments.limit)]
    words += ["--json"] if arguments.json else []
    return shlex.join([*words, "--before", str(last)])


def run_show(arguments: argparse.Namespace) -> int:
    """Prints everything about one entry."""
    store = open_ledger(arguments.url, needs=Facet.OPEN_ENTRIES)
    with reading(store, arguments.url) as session:
        detail = find_entry(session, arguments.entry)
        is_stranded = timeline.is_stranded(detail.entry, session)
        repeats = session.repeats(detail.entry.entry_id) if offers(session, Facet.STATS) else []
    if arguments.json:
        shown = timeline.all_facts(detail, is_stranded=is_stranded, with_payload=arguments.payload)
        print_json({**shown, "repeats": [repeat_facts(repeat) for repeat in repeats]})
    else:
        timeline.print_detail(detail, is_stranded=is_stranded, with_payload=arguments.payload)
        print_repeats("repeats (UTC)", repeats)
    return DONE


def find_entry(session: Session, text: str) -> EntryDetail:
    """Finds the one entry that an id or the beginning of a key names; raises if that is not one.

    A short number is an id and nothing else: one that was mistyped must not name another entry's key.
    """
    by_number = _by_number(session, text.strip())
    if by_number is not None:
        return by_number
    prefix = read_key_prefix(text)
    if prefix.isdigit() and len(prefix) < KEY_DIGITS_MIN:
        raise NoSuchEntry(f"no entry has the id {prefix}; see: oncegate entries list")
    found = session.entries(EntryFilter(key_prefix=prefix), None, CANDIDATES_MAX + 1)
    if len(found) > 1:
        _refuse_several(prefix, found)
    detail = session.details([found[0].key])[0] if found else None
    if detail is None:
        raise NoSuchEntry(f"no entry has a key that begins with {prefix}; see: oncegate entries list")
    return detail


def _by_number(session: Session, text: str) -> EntryDetail | None:
    if not is_row_number(text):
        return None
    return session.detail(int(text))


def _refuse_several(prefix: str, found: Sequence[Entry]) -> None:
    print_entries(found[:CANDIDATES_MAX], sys.stderr)
    more = f" (the newest {CANDIDATES_MAX} are shown)" if len(found) > CANDIDATES_MAX else ""
    raise SeveralEntries(f"several keys begin with {prefix}{more}; give more digits, or an id")
