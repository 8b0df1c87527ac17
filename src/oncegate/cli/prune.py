"""`oncegate prune`: forgets old final entries of a surface, in short steps, or counts them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final

from oncegate.cli.confirming import ProgressBar
from oncegate.cli.entries import refuse_unknown_surface
from oncegate.cli.exitcodes import DONE
from oncegate.cli.ledger import open_ledger, reading
from oncegate.cli.output import print_json, tell, utc
from oncegate.cli.parser import add_json, add_url, read_number, read_text
from oncegate.clock import Clock, SystemClock
from oncegate.errors import ConfigError
from oncegate.maintenance.pruner import Bounds, Forgotten, Wanted, find_due, forget_older
from oncegate.model.durations import format_duration, parse_duration
from oncegate.model.retention import RETENTION_FLOOR
from oncegate.store import Facet, Store, ledgers_of, require

LIMIT_DEFAULT: Final = 100_000
_EVERYTHING: Final = 2**63 - 1
_ACTOR: Final = "oncegate prune"

_DESCRIPTION = f"""\
Forget entries of a surface that were received and settled longer ago than an age. Only
committed and failed entries go, with their payloads, outcomes and steps; whatever still waits
for something stays, and the log keeps its records. Give an age that is longer than a sender may
send an event again: a forgotten event that comes again is new. An age below
{RETENTION_FLOOR.days} days is refused.

It works in steps of a few hundred entries, so that no writer waits for long, and may be
stopped and run again at any time."""

_EPILOG = """\
examples:
  oncegate prune --surface orders --older-than 90d --dry-run
  oncegate prune --surface orders --older-than 90d
  oncegate prune --surface orders --older-than 90d --limit 10000 --json"""


def add_parser(subparsers: Any) -> None:
    """Adds the command to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "prune",
        help="forget old entries that are settled",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument("--surface", type=read_text, required=True, help="entries of this surface")
    parser.add_argument(
        "--older-than", required=True, metavar="AGE", help="entries above this age, such as 90d or 2160h"
    )
    parser.add_argument(
        "--believe-clock",
        action="store_true",
        help="the machine's clock is right although it is far ahead of the ledger: it was off for so long",
    )
    parser.add_argument("--dry-run", action="store_true", help="only count; change nothing")
    parser.add_argument(
        "--limit", type=read_number, default=LIMIT_DEFAULT, metavar="N",
        help="forget at most so many entries (default: %(default)s)",
    )  # fmt: skip
    add_url(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Counts or forgets."""
    age = _read_age(arguments.older_than)
    store, clock = open_ledger(arguments.url, needs=None), SystemClock()
    ledgers = ledgers_of(store)
    require(ledgers[0], Facet.REVIEW, "commands such as this one")
    with reading(store, arguments.url) as session:
        refuse_unknown_surface(session, arguments.surface, has_all=True)
    bounds = Bounds(looked_max=_EVERYTHING, forgotten_max=arguments.limit)
    counted = _sum([_count(one, clock, age, bounds, arguments.surface) for one in ledgers])
    if arguments.dry_run or not counted.entries:
        return _tell(counted, arguments)
    bar, is_doubted = ProgressBar(counted.entries, "entries"), False
    done: list[Forgotten] = []
    for one in ledgers:
        before = sum(part.entries for part in done)
        forgotten, is_leap = forget_older(
            one, clock, arguments.surface, age,
            actor=_ACTOR, bounds=replace(bounds, forgotten_max=arguments.limit - before),
            is_certain=arguments.believe_clock, told=partial(_tell_after, bar, before),
        )  # fmt: skip
        done.append(forgotten)
        is_doubted |= is_leap
    for line in store.make_room(clock.wall_ms()):
        tell(line)
    if is_doubted:
        tell(
            "the clock is far ahead of the ledger; the time before the leap was used. If the clock is right"
            " and all was off for so long, run it again with --believe-clock"
        )
    return _tell(_sum(done), arguments)


def _tell_after(bar: ProgressBar, before: int, removed: int) -> None:
    bar.tell(before + removed)


def _read_age(text: str) -> timedelta:
    age = parse_duration(text)
    if age < RETENTION_FLOOR:
        raise ConfigError(
            f"--older-than {format_duration(age)} is below {format_duration(RETENTION_FLOOR)}: events are"
            " sent again that late, and a forgotten one would run twice; a surface with a lower"
            " retention_floor is pruned by its own gate"
        )
    return age


def _count(store: Store, clock: Clock, age: timedelta, bounds: Bounds, surface: str) -> Forgotten:
    now_ms = clock.wall_ms()
    wanted = Wanted(surface, now_ms - age // timedelta(milliseconds=1), _ACTOR)
    with store.look() as session:
        found = find_due(session, wanted, now_ms, 0, bounds)
    return Forgotten(wanted.surface, wanted.before_ms, len(found.entries), found.looked, found.is_complete)


def _sum(parts: Sequence[Forgotten]) -> Forgotten:
    """What was done on all shards."""
    first = parts[0]
    entries, looked = sum(one.entries for one in parts), sum(one.looked for one in parts)
    whole = all(one.is_complete for one in parts)
    return Forgotten(first.surface, first.before_ms, entries, looked, whole)


def _tell(done: Forgotten, arguments: argparse.Namespace) -> int:
    if arguments.json:
        print_json(
            {
                "surface": done.surface,
                "before": utc(done.before_ms),
                "entries": done.entries,
                "dry_run": arguments.dry_run,
                "more": not done.is_complete,
            }
        )
    else:
        verb = "can be forgotten" if arguments.dry_run else "forgotten"
        entries = "entry" if done.entries == 1 else "entries"
        print(f"{done.entries} {entries} of {done.surface} from before {utc(done.before_ms)} {verb}")
    if not done.is_complete:
        tell("there are more; run it again, or with a higher --limit")
    return DONE
