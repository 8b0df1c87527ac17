"""`oncegate erase`: removes what entries say of a person; keys, hashes and records stay."""

from __future__ import annotations

import argparse
from contextlib import closing
from typing import Any, Final

from oncegate.cli.exitcodes import DONE, NOT_SO
from oncegate.cli.ledger import open_ledger, reading
from oncegate.cli.output import print_json, tell
from oncegate.cli.parser import add_json, add_url, read_number, read_text
from oncegate.cli.people import actor_of
from oncegate.clock import SystemClock
from oncegate.errors import ConfigError
from oncegate.journal.erasing import Eraser
from oncegate.store import EntryFilter

_DESCRIPTION: Final = """\
Remove events, outcomes, labels and reasons of settled entries, and what roll-backs keep of them. Keys,
fingerprints and records stay: a repeat is still a replay, and every proof of the journal still holds. What
still runs or waits, or is behind a roll-back that is being applied, is named and left alone. Running
programs may answer repeats from memory until they are restarted."""
_EPILOG: Final = """\
examples:
  oncegate erase --subject c-4711 --reason "request 12 of 18 November" --dry-run
  oncegate erase --subject c-4711 --surface orders --field customer.id --reason "request 12"
  oncegate erase --entry 17 --reason "request 12\""""


def add_parser(subparsers: Any) -> None:
    """Adds the command to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "erase", help="remove what entries say of a person; keys stay",
        description=_DESCRIPTION, epilog=_EPILOG,
    )  # fmt: skip
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--subject", type=read_text, metavar="ID", help="the person's id, in the declared field"
    )
    which.add_argument(
        "--entry", type=read_number, action="append", metavar="ENTRY", help="one entry; repeat it"
    )
    which.add_argument("--label", type=read_text, metavar="TEXT", help="entries whose label has this text")
    parser.add_argument("--surface", type=read_text, help="only entries of this surface")
    parser.add_argument("--field", type=read_text, metavar="PATH", help="the field, where none is declared")
    parser.add_argument("--reason", type=read_text, required=True, help="why; the journal keeps it")
    parser.add_argument("--actor", type=read_text, help="who erases (default: the login name)")
    parser.add_argument("--dry-run", action="store_true", help="only list; change nothing")
    add_url(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Erases what was named."""
    store = open_ledger(arguments.url)
    with reading(store, arguments.url):
        pass
    with closing(store):
        eraser = Eraser(store, SystemClock())
        entries = _entries(eraser, arguments)
        if arguments.dry_run:
            tell(f"{len(entries)} entries would be erased: {', '.join(map(str, entries[:20]))}")
            return DONE
        report = eraser.erase(entries, actor=actor_of(arguments), reason=arguments.reason)
    if arguments.json:
        print_json({"erased": report.erased, "already": report.already, "open": report.open})
    else:
        tell(
            f"erased {len(report.erased)} entries, with those that roll-backs made of them;"
            f" {report.already} were erased before"
        )
    if report.open:
        named = ", ".join(map(str, report.open[:9]))
        tell(f"{len(report.open)} wait or run, or a roll-back of them runs; settle them first: {named}")
    return NOT_SO if report.open or not (report.erased or report.already) else DONE


def _entries(eraser: Eraser, arguments: argparse.Namespace) -> list[int]:
    if arguments.entry:
        return sorted(set(arguments.entry))
    if arguments.label:
        return eraser.matching(EntryFilter(surface=arguments.surface, label_contains=arguments.label))
    fields = eraser.subject_fields()
    if arguments.field:
        if not arguments.surface:
            raise ConfigError("--field needs --surface: the field of which surface?")
        fields = {arguments.surface: arguments.field}
    elif arguments.surface:
        fields = {name: path for name, path in fields.items() if name == arguments.surface}
    if not fields:
        raise ConfigError("no surface declares subject=, or no worker ran yet; give --surface and --field")
    return eraser.find(arguments.subject, fields)
