"""`oncegate import`: old keys from a file or a table, so that their next arrival is a replay."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any, Final, TextIO

from oncegate.cli.exitcodes import DONE, NOT_SO
from oncegate.cli.ledger import open_ledger, table_rows
from oncegate.cli.output import grouped, print_json, tell
from oncegate.cli.parser import add_json, add_url, read_text
from oncegate.clock import SystemClock
from oncegate.commit.group_commit import GroupCommit
from oncegate.errors import ConfigError
from oncegate.maintenance.key_import import Columns, ImportReport, KeyImport, Row, import_target
from oncegate.model.identity import HANDLER, Identity
from oncegate.model.template import KeyTemplate

TELL_ROWS: Final = 10_000
_DESCRIPTION = """\
Bring the keys of events that were handled before the gate came. Their content is not known: any
arrival under such a key is a replay, with the outcome of the row or with none. A key that the
ledger has is left as it is, so that the command can be run again after it was interrupted.
The key is made by the surface's own template, from columns of the same names or by --map."""
_EPILOG = """\
examples:
  oncegate import orders.csv --surface orders --map id=order_id --time handled_at --dry-run
  oncegate import orders.jsonl --surface orders --key '{tenant}:{id}' --outcome result
  oncegate import table:processed_orders --surface orders --map id=order_id"""


def add_parser(subparsers: Any) -> None:
    """Adds the command to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "import", help="bring old keys, so that their next arrival is a replay",
        description=_DESCRIPTION, epilog=_EPILOG,
    )  # fmt: skip
    parser.add_argument(
        "source", type=read_text, metavar="SOURCE",
        help="FILE.csv, FILE.jsonl, - for JSON lines from stdin, or table:NAME in the ledger's database",
    )  # fmt: skip
    parser.add_argument("--surface", type=read_text, required=True, help="the surface's name")
    parser.add_argument(
        "--map", action="append", default=[], type=read_text, metavar="FIELD=COLUMN",
        help="which column has a field of the key; may be repeated (default: the column of that name)",
    )  # fmt: skip
    parser.add_argument(
        "--time", type=read_text, metavar="COLUMN", help="when it came; retention counts from it"
    )
    parser.add_argument(
        "--outcome", type=read_text, metavar="COLUMN", help="the recorded value, as JSON or text"
    )
    parser.add_argument("--tenant", type=read_text, default="", help="whose events these are")
    parser.add_argument("--tenant-column", type=read_text, metavar="COLUMN", help="which column says that")
    parser.add_argument(
        "--key", type=read_text, metavar="TEMPLATE", help="for a surface that no program has used yet"
    )
    parser.add_argument(
        "--tenant-from", type=read_text, metavar="PATH", help="with --key: where events have their tenant"
    )
    parser.add_argument(
        "--origin", type=read_text, default=HANDLER, metavar="MODULE:NAME",
        help="with --key: the function under @gate.once",
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="count; change nothing")
    add_url(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Imports, and prints what became of the rows."""
    store, clock = open_ledger(arguments.url), SystemClock()
    columns = Columns(_mapped(arguments.map), arguments.time, arguments.outcome, arguments.tenant_column)
    with closing(GroupCommit(store)) as commits, _opened(arguments.source) as stream:
        if not arguments.dry_run:
            store.connect().close()
        wanted = commits, clock, arguments.surface, _declared(arguments), arguments.tenant
        job = KeyImport(commits, clock, import_target(*wanted, dry_run=True), columns)
        rows: Iterator[Row]
        if stream is None:
            rows = table_rows(store, arguments.url, arguments.source.removeprefix("table:"))
        else:
            rows = _rows(stream, is_csv=arguments.source.lower().endswith(".csv"))
        if stream is None or arguments.source.lower().endswith(".csv"):  # each row has the same columns
            rows = job.checked(rows)
        if not arguments.dry_run:
            import_target(*wanted)
        began_ms = clock.ticks_ms()
        try:
            for report in job.run(rows, dry_run=arguments.dry_run):
                if report.read % TELL_ROWS == 0:
                    tell(f"{grouped(report.read)} rows read, {grouped(report.imported)} keys imported")
        except UnicodeDecodeError:
            raise ConfigError(f"{arguments.source} is not UTF-8 text; save it as UTF-8") from None
    return _tell(arguments, job.report, (clock.ticks_ms() - began_ms) / 1000)


def _declared(arguments: argparse.Namespace) -> Identity | None:
    if arguments.key is None:
        return None
    KeyTemplate.parse_kept(arguments.key)
    return Identity(arguments.key, arguments.tenant_from, (arguments.origin,))


def _mapped(pairs: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        field, sign, column = pair.partition("=")
        if not (field and sign and column):
            raise ConfigError(f"--map {pair[:60]!r} is not FIELD=COLUMN, such as id=order_id")
        if (name := field.strip("{}")) in found:
            raise ConfigError(f"--map names two columns for {name[:60]!r}: {found[name]}, {column}"[:200])
        found[name] = column
    return found


def _opened(source: str) -> Any:
    """The file to read; None for a table."""
    if source.startswith("table:"):
        return nullcontext(None)
    if source == "-":
        return nullcontext(sys.stdin)
    if not source.lower().endswith((".csv", ".jsonl", ".ndjson")):
        raise ConfigError(f"{source[:80]!r} is neither FILE.csv, FILE.jsonl, - nor table:NAME")
    try:
        return Path(source).open(encoding="utf-8-sig", newline="")
    except OSError as error:
        raise ConfigError(f"{source}: {(error.strerror or str(error)).lower()}") from None


def _rows(stream: TextIO, *, is_csv: bool) -> Iterator[Row]:
    if is_csv:
        yield from csv.DictReader(stream)
        return
    for number, line in enumerate(stream, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise ConfigError(
                f"line {number} is not a JSON object; correct it and import again: known keys are skipped"
            )
        yield row


def _tell(arguments: argparse.Namespace, report: ImportReport, seconds: float) -> int:
    counts = {
        "read": report.read, "imported": report.imported, "known": report.known, "refused": report.refused
    }  # fmt: skip
    if arguments.json:
        samples = [{"row": one.number, "why": one.why} for one in report.samples]
        print_json(
            {**counts, "samples": samples, "dry_run": arguments.dry_run, "seconds": round(seconds, 3)}
        )
    else:
        does = "would be imported" if arguments.dry_run else "imported"
        print(
            f"{grouped(report.read)} rows: {grouped(report.imported)} {does}, {grouped(report.known)} known"
            f" before, {grouped(report.refused)} without a key; {seconds:.1f} s"
        )
        for one in report.samples:
            tell(f"row {one.number}: {one.why}")
    return NOT_SO if report.refused else DONE
