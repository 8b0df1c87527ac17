"""`oncegate trace`: one event's whole journey across the surfaces and endpoints of a ledger."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec

from oncegate.cli.exitcodes import DONE, NOT_SO
from oncegate.cli.ledger import open_ledger, reading
from oncegate.cli.output import Cell, print_json, print_table, tell, utc
from oncegate.cli.parser import add_json, add_url, read_text
from oncegate.model.ledger_addresses import masked_address
from oncegate.sender.entry_search import LOOKED_BACK, RESOURCES_LOOKED_BACK
from oncegate.sender.trace import Hop, TraceReport, journey, merged, names_in
from oncegate.store import Facet

_DESCRIPTION = """\
Show everything that belongs to one journey, in order of time: events that came in, what was called at
downstreams for them, and events that were emitted because of them, with what came of each. Name it by an
emitted event's id, the key of a lane, the key of an entry (48 hex digits), a correlation id or a
traceparent."""

_EPILOG = """\
examples:
  oncegate trace evt_0198c2f0a1b2c3d4
  oncegate trace order-1017
  oncegate trace 4bf92f3577b34da6a3ce929d0e0e4736 --json
  oncegate trace order-1017 --also postgresql://app@db/shipping --also sqlite:////var/lib/billing.db"""

_HEADERS = ("AT (UTC)", "WHAT", "WHERE", "TENANT", "KEY", "SEQ", "ID", "STATE", "BECAUSE OF")
_SHOWN = 16


def add_parser(subparsers: Any) -> None:
    """Adds the command to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "trace",
        help="show an event's whole journey across surfaces and endpoints",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument("name", metavar="ID", type=read_text, help="what to look for")
    parser.add_argument("--tenant", type=read_text, help="show this tenant's part of it (default: all)")
    parser.add_argument(
        "--also", action="append", default=[], type=read_text, metavar="URL",
        help="another ledger that the journey may go on in; may be repeated",
    )  # fmt: skip
    add_url(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the journey."""
    with reading(open_ledger(arguments.url, needs=Facet.STATS), arguments.url) as session:
        found = journey(session, arguments.name, arguments.tenant)
    others = [(masked_address(url), _elsewhere(url, found, arguments)) for url in arguments.also]
    hops = merged(found, others)
    if arguments.json:
        for ledger, hop in hops:
            print_json({**msgspec.to_builtins(hop), "at": utc(hop.at_ms), "ledger": ledger or None})
    elif hops and others:
        print_table(
            (*_HEADERS[:3], "LEDGER", *_HEADERS[3:]),
            [_row(hop, ledger or "(this)") for ledger, hop in hops],
        )
    elif hops:
        print_table(_HEADERS, [_row(hop) for _, hop in hops])
    if not hops:
        tell("nothing in this ledger has that id, key, label, resource or correlation id;")
        tell(
            "whole labels are looked up in the whole ledger, parts of labels among the latest"
            f" {LOOKED_BACK:,} entries, resources among the latest {RESOURCES_LOOKED_BACK:,}"
        )
        return NOT_SO
    if found.is_cut or any(report.is_cut for _, report in others):
        tell("there is more than is shown; name an event's id, or a tenant with --tenant, to see less")
    return DONE


def _elsewhere(url: str, found: TraceReport, arguments: argparse.Namespace) -> TraceReport:
    """What another ledger knows of the journey, by every name that travels."""
    hops: dict[tuple[Any, ...], Hop] = {}
    is_cut = False
    with reading(open_ledger(url, needs=Facet.STATS), url) as session:
        for name in names_in(found, arguments.name):
            report = journey(session, name, arguments.tenant, labels=name == arguments.name)
            hops |= {(hop.kind, hop.place, hop.id, hop.seq): hop for hop in report.hops}
            is_cut = is_cut or report.is_cut
    return TraceReport(tuple(hops.values()), is_cut)


def _row(hop: Hop, ledger: str | None = None) -> list[Cell]:
    where = () if ledger is None else (ledger,)
    values = (
        utc(hop.at_ms)[:23].replace("T", " "), hop.kind.value, hop.place, *where, hop.tenant, hop.key,
        "" if hop.seq is None else hop.seq, _id(hop), hop.state,
        (hop.cause or "")[:_SHOWN],
    )  # fmt: skip
    return [Cell.of(value) for value in values]


def _id(hop: Hop) -> str:
    """Keys of entries are shown by their beginning; `KEY:step` keeps its step."""
    if hop.seq is not None:
        return hop.id
    key, colon, step = hop.id.partition(":")
    return f"{key[:_SHOWN]}{colon}{step}"
