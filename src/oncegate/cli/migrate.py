"""`oncegate migrate`: creates a ledger or brings an older one up to date, or says what that would do."""

from __future__ import annotations

import argparse
from typing import Any

from oncegate.cli.exitcodes import DONE, PENDING
from oncegate.cli.ledger import command_for, open_ledger
from oncegate.cli.output import complain, print_json, tell
from oncegate.cli.parser import add_json, add_url
from oncegate.errors import ConfigError
from oncegate.store import Migration, Store

_DESCRIPTION = """\
Create a ledger, or bring an older one up to date. All that is pending is applied in one
transaction, so that none of it stays if any of it fails; what --print gives has one for each.
Several processes may migrate at once. A ledger that is up to date is left as it is. For DynamoDB
this creates the table, or adds what it lacks; --template prints the table for other tools."""

_EPILOG = """\
examples:
  oncegate migrate
  oncegate migrate --check || echo "not yet"
  oncegate migrate --print > pending.sql
  oncegate migrate --url dynamodb://ledger --template terraform > ledger.tf"""


def add_parser(subparsers: Any) -> None:
    """Adds the command to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "migrate",
        help="create a ledger, or bring an older one up to date",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    add_url(parser)
    add_json(parser)
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument(
        "--print", action="store_true", dest="only_print", help="print the pending SQL and change nothing"
    )
    modes.add_argument(
        "--check",
        action="store_true",
        help=f"list what is pending, change nothing, and exit with {PENDING} if anything is",
    )
    modes.add_argument(
        "--template",
        choices=("cloudformation", "terraform"),
        help="print a DynamoDB ledger's table as a template, without asking or changing anything",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Applies, prints or checks."""
    store = open_ledger(arguments.url, needs=None)
    if arguments.template:
        return _print_template(store, arguments.template)
    pending = store.pending_migrations()
    if arguments.only_print:
        return _print(pending, arguments.json)
    if arguments.check:
        return _check(store, pending, arguments)
    return _apply(store, arguments.json)


def _print_template(store: Store, form: str) -> int:
    template = getattr(store, "template", None)
    if template is None:
        name = store.capabilities.name
        raise ConfigError(
            f"--template is for DynamoDB ledgers, and this one is {name}; --print shows its SQL"
        )
    print(template(form))
    return DONE


def _print(pending: list[Migration], as_json: bool) -> int:
    for migration in pending:
        script = migration.script
        if as_json:
            print_json({**_facts(migration, "pending"), "sql": script})
        else:
            print(script)
    if not pending:
        tell("nothing is pending")
    return DONE


def _check(store: Store, pending: list[Migration], arguments: argparse.Namespace) -> int:
    _list(pending, "pending", arguments.json)
    if not pending:
        tell(f"{store.address} is up to date")
        return DONE
    count = f"{len(pending)} migration{'s are' if len(pending) > 1 else ' is'}"
    complain(f"{count} pending; apply with: {command_for('oncegate migrate', arguments.url)}")
    return PENDING


def _apply(store: Store, as_json: bool) -> int:
    is_new = not store.exists()
    applied = store.migrate()
    _list(applied, "applied", as_json)
    if not applied:
        tell(f"{store.address} was up to date already")
    else:
        tell(f"{store.address} {'was created' if is_new else 'is up to date now'}")
    return DONE


def _list(migrations: list[Migration], state: str, as_json: bool) -> None:
    for migration in migrations:
        if as_json:
            print_json(_facts(migration, state))
        else:
            print(f"{state} {migration.number:04} {migration.name}")


def _facts(migration: Migration, state: str) -> dict[str, Any]:
    return {"number": migration.number, "name": migration.name, "state": state}
