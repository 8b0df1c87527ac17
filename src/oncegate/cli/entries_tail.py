"""`oncegate entries tail`: entries as they arrive, and what becomes of them. Only reads."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, Final

from oncegate.cli import timeline
from oncegate.cli.exitcodes import DONE
from oncegate.cli.ledger import open_ledger, reading
from oncegate.cli.output import Cell, paint, print_json, shorten, tell, utc
from oncegate.cli.parser import add_json, add_url, read_number, read_text
from oncegate.clock import Clock, SystemClock
from oncegate.model.durations import parse_duration
from oncegate.store import Entry, EntryFilter, Session, Store

OPEN_MAX: Final = 1_000  # entries that are looked at again until they end
ROUND_MAX: Final = 1_000  # entries of one round
_EPILOG = """\
Ctrl-C ends it. Each line is an entry that arrived, or one whose state has changed.

examples:
  oncegate entries tail
  oncegate entries tail --surface payments --json | jq .key
  oncegate entries tail --for 10m --every 5s"""


def add_tail(commands: Any, add_filters: Any) -> None:
    """Adds the command to its group."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "tail",
        help="follow entries as they arrive and change",
        description="Follow the ledger: print entries as they arrive, and again when their state changes.",
        epilog=_EPILOG,
    )
    add_url(parser)
    add_json(parser)
    add_filters(parser)
    parser.add_argument(
        "--every", default="1s", type=read_text, help="how often to look (default: %(default)s)"
    )
    parser.add_argument("--for", dest="within", metavar="DURATION", type=read_text, help="end after this")
    parser.add_argument("--limit", type=read_number, metavar="N", help="end after so many lines")
    parser.set_defaults(run=run_tail)


class Tail:
    """What was shown already, and what may still change."""

    def __init__(self, wanted: EntryFilter) -> None:
        self._wanted = wanted
        self._last: int | None = None
        self._open: dict[int, Entry] = {}

    def look(self, session: Session) -> Iterator[Entry]:
        """What is new since the last look; the first one only notes where the ledger ends."""
        if self._last is None:
            newest = session.entries(EntryFilter(), None, 1)
            self._last = newest[0].entry_id if newest else 0
            return
        yield from self._changed(session)
        for entry in session.oldest_entries(self._wanted, self._last, ROUND_MAX):
            self._last = entry.entry_id
            self._note(entry)
            yield entry

    def _changed(self, session: Session) -> Iterator[Entry]:
        known = list(self._open.values())
        for before, now in zip(known, session.read([entry.key for entry in known]), strict=True):
            if now is None or now.entry_id != before.entry_id:
                del self._open[before.entry_id]
            elif now.state is not before.state:
                self._note(now)
                yield now

    def _note(self, entry: Entry) -> None:
        self._open.pop(entry.entry_id, None)
        if not entry.state.is_final:
            self._open[entry.entry_id] = entry
        if len(self._open) > OPEN_MAX:
            del self._open[next(iter(self._open))]


def run_tail(arguments: argparse.Namespace) -> int:
    """Follows until Ctrl-C, `--for` or `--limit`."""
    wanted = EntryFilter(
        tuple(arguments.state), arguments.surface, arguments.tenant, arguments.key, arguments.label
    )
    store = open_ledger(arguments.url)
    with reading(store, arguments.url):
        pass  # says what is wrong with the ledger before anything is waited for
    tell(f"following {store.address}; Ctrl-C ends it")
    try:
        follow(store, Tail(wanted), arguments, SystemClock())
    except KeyboardInterrupt:
        tell("")
    return DONE


def follow(store: Store, tail: Tail, arguments: argparse.Namespace, clock: Clock) -> None:
    """Looks again and again; each look is a moment of its own."""
    every = max(0.1, parse_duration(arguments.every).total_seconds())
    within = None if arguments.within is None else parse_duration(arguments.within).total_seconds() * 1000
    began, shown = clock.ticks_ms(), 0
    while True:
        with store.look(again=True) as session:
            found = list(tail.look(session))
        for entry in found:
            print_json(timeline.facts(entry)) if arguments.json else print(_line(entry), flush=True)
            shown += 1
            if arguments.limit is not None and shown >= arguments.limit:
                return
        if within is not None and clock.ticks_ms() - began >= within:
            return
        clock.pause(every)


def _line(entry: Entry) -> str:
    state = paint(f"{entry.state.label:<11}", timeline.COLOURS[entry.state])
    label, reason = Cell.of(entry.label).text, Cell.of(entry.reason or "").text
    parts = (
        utc(entry.received_at_ms)[11:19],
        str(entry.entry_id),
        state,
        entry.surface,
        shorten(label, 40),
    )
    return "  ".join(part for part in (*parts, reason) if part)
