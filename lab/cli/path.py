"""`python -m lab path`: through how many packages one event goes, on both stores."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oncegate.cli.exitcodes import DONE
from oncegate.cli.output import print_json, tell

_DESCRIPTION = """\
Count the packages that one event passes through from `gate.admit` to its commit, and how often
the package changes, with a profiler hook. `--steps` prints the path itself."""


def add_parser(commands: Any) -> None:
    """Registers the command."""
    parser = commands.add_parser(
        "path", help="count the packages that an event passes through", description=_DESCRIPTION
    )
    parser.add_argument("--no-postgres", action="store_true", help="leave PostgreSQL out")
    parser.add_argument("--levels", type=int, default=1, choices=(1, 2), help="of a package's name (1)")
    parser.add_argument("--steps", action="store_true", help="also print every step of the path")
    parser.add_argument("--json", action="store_true", help="print one JSON object a store")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measures and prints."""
    from lab.path_of_an_event import path_of_an_event

    for store, url in _ledgers(postgres=not arguments.no_postgres):
        path = path_of_an_event(url, arguments.levels)
        if arguments.json:
            print_json({"store": store, "changes": path.changes, "packages": path.packages})
            continue
        named = ", ".join(f"{name} {count}" for name, count in path.packages.items())
        print(f"{store}: {len(path.packages)} packages, {path.changes} changes ({named})")
        if arguments.steps:
            print("\n".join(f"  {step}" for step in path.steps))
    return DONE


def _ledgers(*, postgres: bool) -> Iterator[tuple[str, str]]:
    """A fresh ledger of each kind, one after the other."""
    with tempfile.TemporaryDirectory(prefix="oncegate-path-") as folder:
        yield "SQLite", f"sqlite:///{Path(folder) / 'ledger.db'}"
    if postgres:
        from oncegate.testing.postgres import PostgresServer

        tell("starting a PostgreSQL server …")
        with PostgresServer(in_memory=True) as server:
            yield "PostgreSQL", server.new_database()
