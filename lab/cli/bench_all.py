"""`oncegate bench all`: everything in one run, printed, and written as one page."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncegate.cli.exitcodes import DONE, NOT_SO
from oncegate.errors import ConfigError

if TYPE_CHECKING:
    from argparse import _SubParsersAction

_DESCRIPTION = """\
Measures oncegate, what a user would pick instead, and the limits of the machine on the same work, in one
run: events a second of fresh, repeated and mixed streams; what happens to an event when its worker is
killed, falls asleep, or its payload changes; how costs grow with keys and lanes; what the gate costs
without a store; HTTP beside the bare server and client. Peers are installed into virtual environments of
their own with --install, at exact versions; one that is not there is reported, never left out silently."""


def add_parser(subjects: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the command."""
    parser = subjects.add_parser(
        "all", help="everything, beside the peers and the limits", description=_DESCRIPTION
    )
    parser.add_argument(
        "--extent",
        choices=("quick", "short", "full"),
        default="full",
        help="about 5, 25 or 40 minutes (default: full)",
    )
    parser.add_argument("--install", action="store_true", help="install peers that are not there yet")
    parser.add_argument("--no-peers", action="store_true", help="measure only oncegate and the limits")
    parser.add_argument("--no-postgres", action="store_true", help="leave PostgreSQL out")
    parser.add_argument(
        "--only",
        metavar="SECTIONS",
        help="comma-separated: cost, streams, gate, modes, faults, growth, http, sender, sources, history, "
        "ledgers",
    )
    parser.add_argument(
        "--page",
        metavar="FILE",
        type=Path,
        help="put the tables into this Markdown file, pictures beside it",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measures, prints and writes."""
    from lab.bench.page import as_markdown, write_page
    from lab.bench.peers.roster import PEERS
    from lab.bench.whole import EXTENTS, SECTIONS, WholeBench

    _check_page(arguments.page)
    document = WholeBench(
        EXTENTS[arguments.extent],
        peers=() if arguments.no_peers else PEERS,
        install=arguments.install,
        postgres=not arguments.no_postgres,
        sections=_sections(arguments.only, SECTIONS),
        talk=lambda line: print(line, file=sys.stderr, flush=True),
    ).run()
    if arguments.page:
        for path in write_page(document, arguments.page):
            print(f"wrote {path}", file=sys.stderr)
    print(json.dumps(document, indent=2) if arguments.json else as_markdown(document, []))
    return NOT_SO if document["failed"] else DONE


def _check_page(page: Path | None) -> None:
    """A page that cannot be written is refused before half an hour has gone."""
    if page is None:
        return
    if page.is_dir():
        raise ConfigError(f"--page {page} is a folder; name a file in it, such as {page / 'benchmarks.md'}")
    page.parent.mkdir(parents=True, exist_ok=True)
    with page.open("a", encoding="utf-8"):
        pass


def _sections(chosen: str | None, known: tuple[str, ...]) -> tuple[str, ...]:
    if chosen is None:
        return known
    sections: Any = tuple(part.strip() for part in chosen.split(","))
    unknown = [part for part in sections if part not in known]
    if unknown:
        raise ConfigError(f"there is no section {unknown[0][:40]!r}; there are {', '.join(known)}")
    return sections  # type: ignore[no-any-return]
