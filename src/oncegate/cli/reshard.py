"""`oncegate reshard`: gives a sharded ledger more shards or fewer, or divides one ledger."""

from __future__ import annotations

import argparse
from typing import Any

from oncegate.cli.exitcodes import DONE, NOT_SO
from oncegate.cli.output import grouped, print_json, tell
from oncegate.cli.parser import add_json, read_text
from oncegate.clock import SystemClock
from oncegate.errors import StoreError
from oncegate.model.ledger_addresses import masked_address
from oncegate.wiring.ledgers import open_parts

_DESCRIPTION = """\
Move keys to their places in a new list of shards, while programs use the ledger. Shards are added
or removed at the end of the list. Keys move a few at a time, and events of those are refused for
that moment. From the first moment on, programs can have the new list. Programs with the old one are
refused for keys that have moved: the databases themselves see to it. Keys whose handlers are running
are left for the end; if one runs for longer than 30 s, run the command again. Run it again also when
it was killed or has failed: it goes on where it stopped.

One ledger is divided into other, empty databases. Stop its programs first: from the first moment on
it takes no new key, and programs with the new list are refused for keys that have not moved yet."""
_EPILOG = """\
examples:
  oncegate reshard "shards: postgresql://db1/a postgresql://db2/a" \\
                   "shards: postgresql://db1/a postgresql://db2/a postgresql://db3/a" --yes
  oncegate reshard postgresql://db/ledger "shards: postgresql://db1/a postgresql://db2/a" --yes"""


def add_parser(subparsers: Any) -> None:
    """Adds the command to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "reshard", help="give a sharded ledger more shards or fewer",
        description=_DESCRIPTION, epilog=_EPILOG,
    )  # fmt: skip
    parser.add_argument("old", type=read_text, metavar="FROM", help="shards: … or one ledger")
    parser.add_argument("new", type=read_text, metavar="TO", help="shards: …, the new list")
    parser.add_argument("--yes", action="store_true", help="move")
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Moves, and prints how much."""
    from oncegate.stores.sharded.reshard import Resharding

    move = Resharding(open_parts(arguments.old), open_parts(arguments.new), SystemClock())
    shown = " ".join(masked_address(part) for part in arguments.new.split())
    if not arguments.yes:
        tell(
            f"keys will be moved to their places in {shown}; programs with the old list are refused from"
            " then on for what has moved. Say --yes; nothing was changed"
        )
        return NOT_SO
    try:
        report = move.run(_tell)
    except StoreError:
        tell("the move has stopped and no key is lost; run the command again")
        raise
    if arguments.json:
        print_json(
            {"shards": report.shards, "virtual_shards": report.virtual_shards,
             "entries": report.entries, "left": report.left}
        )  # fmt: skip
    elif not report.left:
        print(f"{grouped(report.entries)} entries moved; programs use the new list from now on: {shown}")
    if report.left:
        tell(f"{report.left} of 4,096 parts have handlers that run for long; run the command again")
        return NOT_SO
    return DONE


def _tell(what: str, done: int, total: int) -> None:
    if done == total or done % 512 < 32:
        tell(f"{what}: {grouped(done)} of {grouped(total)}")
