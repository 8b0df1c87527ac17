"""`oncegate timeline compare`: what several sources say of the same events, side by side."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from oncegate.cli.exitcodes import DONE
from oncegate.cli.ledger import open_ledger, reading
from oncegate.cli.output import Cell, print_json, print_table, tell, utc
from oncegate.cli.parser import add_json, add_url, read_number, read_text
from oncegate.errors import ConfigError
from oncegate.journal.timelines import Comparison, SourceLog, compare, read_source
from oncegate.store import EntryFilter

LIMIT: Final = 50
_EPILOG: Final = """\
examples:
  oncegate timeline compare provider=deliveries.csv gateway=access.jsonl
  oncegate timeline compare --ledger orders provider=deliveries.csv:event_id:sent_at --only-odd"""


def add_parser(subparsers: Any) -> None:
    """Adds the command to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "timeline", help="lay sources that disagree on time side by side",
        description="Lay what several sources say of the same events side by side.",
    )  # fmt: skip
    commands = parser.add_subparsers(metavar="COMMAND", title="commands", required=True)
    one: argparse.ArgumentParser = commands.add_parser(
        "compare", help="align two or three sources by id",
        description="Align two or three sources by id, estimate how far their clocks are apart, and show"
        " what is missing or out of place. The first source is the measure. Nothing is changed.",
        epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    one.add_argument("files", nargs="*", metavar="NAME=FILE[:ID[:TIME]]",
                     help="a provider's log, CSV or JSON lines, and the fields of id and time")  # fmt: skip
    one.add_argument("--ledger", type=read_text, metavar="SURFACE",
                     help="the first source: arrivals of this surface, by their label")  # fmt: skip
    one.add_argument("--only-odd", action="store_true", help="only what is missing or out of place")
    one.add_argument(
        "--limit", type=read_number, default=LIMIT, metavar="N", help="rows (default: %(default)s)"
    )
    add_url(one)
    add_json(one)
    one.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the comparison."""
    sources = [] if arguments.ledger is None else [_ledger(arguments)]
    found = compare([*sources, *(_file(text) for text in arguments.files)])
    rows = [row for row in found.rows if row.remark or not arguments.only_odd]
    if arguments.json:
        for one in found.offsets:
            print_json({"source": one.name, "offset_ms": one.offset_ms, "spread_ms": one.spread_ms,
                        "shared": one.shared})  # fmt: skip
        for row in rows[: arguments.limit]:
            print_json({"id": row.id, "remark": row.remark, "times": {
                source.name: None if at is None else utc(at)
                for source, at in zip(found.sources, row.times, strict=True)}})  # fmt: skip
        return DONE
    _tell_clocks(found)
    names = [source.name.upper()[:24] for source in found.sources]
    shown = [
        [row.id, *("" if at is None else utc(at)[:23] for at in row.times), row.remark]
        for row in rows[: arguments.limit]
    ]
    print_table(("ID", *names, "REMARK"), [[Cell.of(value) for value in row] for row in shown])
    if len(rows) > arguments.limit:
        tell(f"{len(rows) - arguments.limit} more; --limit {len(rows)} shows all")
    return DONE


def _tell_clocks(found: Comparison) -> None:
    for source, one in zip(found.sources[1:], found.offsets[1:], strict=True):
        first, repeats = found.sources[0].name, f", {source.repeats} repeats" if source.repeats else ""
        if not one.shared:
            tell(f"{source.name} shares no id with {first}; name the fields: {source.name}=FILE:ID:TIME")
            continue
        side = "ahead of" if one.offset_ms >= 0 else "behind"
        tell(f"the clock of {source.name} is {abs(one.offset_ms) / 1000:g} s {side} that of {first}"
             f" (half within {one.spread_ms / 1000:g} s, {one.shared} shared ids{repeats})")  # fmt: skip


def _file(text: str) -> SourceLog:
    name, mark, rest = text.partition("=")
    path, _, fields = rest.partition(":")
    id_field, _, time_field = fields.partition(":")
    if not mark or not name or not path:
        raise ConfigError(f"{text[:60]!r} names no source; write NAME=FILE or NAME=FILE:ID:TIME")
    try:
        content = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None
    return read_source(name, content, id_field or None, time_field or None)


def _ledger(arguments: argparse.Namespace) -> SourceLog:
    times: dict[str, int] = {}
    with reading(open_ledger(arguments.url), arguments.url) as session:
        before: int | None = None
        while page := session.entries(EntryFilter(surface=arguments.ledger), before, 1000):
            times |= {one.label: one.received_at_ms for one in page}
            before = page[-1].entry_id
    if not times:
        raise ConfigError(f"the ledger has no entries of surface {arguments.ledger}")
    return SourceLog("ledger", times)
