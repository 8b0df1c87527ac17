"""`oncegate migrate-ledger`: moves a whole ledger from SQLite to PostgreSQL."""

from __future__ import annotations

import argparse
from typing import Any, Final

from oncegate.cli.exitcodes import DONE, NOT_SO
from oncegate.cli.ledger import open_ledger
from oncegate.cli.output import grouped, print_json, print_table, tell
from oncegate.cli.parser import add_json, read_text
from oncegate.cli.sending import cells
from oncegate.clock import SystemClock
from oncegate.errors import ConfigError
from oncegate.model.ledger_addresses import masked_address
from oncegate.stores.sqlite import SqliteStore

TELL_ROWS: Final = 10_000
_DESCRIPTION = """\
Move a ledger from SQLite to PostgreSQL: keys, events, outcomes, open claims, lanes with their seqs,
the feed with its readers and cursors, documents, operators and the journal. Nothing is forgotten.
From the first moment on, programs on the old ledger are refused with the new address; stop them
first where you can. The new ledger refuses programs until every row was copied and compared.
A move that was killed goes on when the command is run again. Claims in flight are recovered after
the move, as after a crash."""
_EPILOG = """\
examples:
  oncegate migrate-ledger sqlite:///orders.db postgresql://app@db/orders --yes
  oncegate migrate-ledger sqlite:///orders.db postgresql://app@db/orders --undo"""


def add_parser(subparsers: Any) -> None:
    """Adds the command to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "migrate-ledger", help="move a whole ledger from SQLite to PostgreSQL",
        description=_DESCRIPTION, epilog=_EPILOG,
    )  # fmt: skip
    parser.add_argument("source", type=read_text, metavar="FROM", help="sqlite:///…")
    parser.add_argument("target", type=read_text, metavar="TO", help="postgresql://…, an empty database")
    parser.add_argument("--yes", action="store_true", help="fence the old ledger and move it")
    parser.add_argument(
        "--undo", action="store_true", help="open the old ledger again, before the move has ended"
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Moves, and prints what was moved."""
    source = open_ledger(arguments.source)
    is_new = arguments.target.startswith(("postgresql:", "postgres:"))
    if not isinstance(source, SqliteStore) or not is_new:
        raise ConfigError(
            "a ledger is moved from sqlite:///… to postgresql://…, and not otherwise; to use another kind"
            " of ledger, begin an empty one and bring the keys: oncegate import"
        )
    open_ledger(arguments.target)  # says what to install where the driver is missing
    from oncegate.stores.moving.move import LedgerMove

    move = LedgerMove(source, arguments.target, SystemClock())
    if arguments.undo:
        move.undo()
        print(f"{source.address} is open again; do not use {masked_address(arguments.target)} any more")
        return DONE
    if not arguments.yes:
        tell(
            f"{source.address} will be fenced: programs that use it are refused from then on. Stop them,"
            " and say --yes; nothing was changed"
        )
        return NOT_SO
    report = move.run(_tell)
    if arguments.json:
        print_json({"tables": report.tables, "hashes": report.hashes})
        return DONE
    rows = [
        cells(name, grouped(count), report.hashes[name][:16])
        for name, count in report.tables.items()
        if count
    ]
    print_table(("TABLE", "ROWS", "HASH"), rows)
    print(f"moved and compared; programs use {masked_address(arguments.target)} from now on")
    return DONE


def _tell(what: str, done: int, total: int) -> None:
    if total and (done == total or done % TELL_ROWS == 0):
        tell(f"{what}: {grouped(done)} of {grouped(total)}")
