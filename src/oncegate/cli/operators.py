"""`oncegate operators`: who may use the operations page, and as what. A token is printed once."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

from oncegate.cli.exitcodes import DONE
from oncegate.cli.ledger import open_ledger, reading
from oncegate.cli.output import Cell, print_json, print_table, tell
from oncegate.cli.parser import add_json, add_url, print_help_as_error, read_text
from oncegate.cli.people import actor_of
from oncegate.clock import SystemClock
from oncegate.commit.group_commit import GroupCommit
from oncegate.dashboard.operators import OperatorBook, Role, find_operator, operators, read_role
from oncegate.dashboard.sessions import SessionBook
from oncegate.errors import ConfigError
from oncegate.store import Store

_DESCRIPTION: Final = """\
Say who may use the operations page. Operators sign in with a token, which is printed once; the
ledger keeps its hash. Every change is kept in the log."""

_EPILOG: Final = """\
examples:
  oncegate operators add ada --role approver
  oncegate operators add bob --role viewer --tenant acme    sees that tenant only
  oncegate operators rotate ada                             a new token; the old one is over
  oncegate operators sign-out ada                           ends every session of hers
  oncegate operators remove bob"""


def add_parser(subparsers: Any) -> None:
    """Adds the command group to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "operators", help="say who may use the operations page", description=_DESCRIPTION, epilog=_EPILOG
    )
    parser.set_defaults(run=print_help_as_error)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    add = _command(commands, "add", "add an operator and print their token", run_add)
    roles = "; ".join(f"{role.label} {role.means}" for role in Role)
    add.add_argument("--role", type=read_text, required=True, help=f"what they may do: {roles}")
    add.add_argument("--tenant", type=read_text, help="they see this tenant only (default: all)")
    _command(commands, "rotate", "give an operator a new token and end their sessions", run_rotate)
    _command(commands, "sign-out", "end every session of an operator at once", run_sign_out)
    _command(commands, "remove", "shut an operator out at once", run_remove)
    listing = commands.add_parser("list", help="list operators")
    add_url(listing)
    add_json(listing)
    listing.set_defaults(run=run_list)


def _command(commands: Any, name: str, text: str, run: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text)
    parser.add_argument("name", metavar="NAME", type=read_text, help="the operator's name, as in the log")
    parser.add_argument(
        "--as", dest="actor", metavar="NAME", type=read_text, help="who says so (your login)"
    )
    add_url(parser)
    parser.set_defaults(run=run)
    return parser


@contextmanager
def _book(store: Store) -> Iterator[OperatorBook]:
    with closing(GroupCommit(store)) as commits:
        yield OperatorBook(commits, SystemClock())


def run_add(arguments: argparse.Namespace) -> int:
    """Adds an operator and prints their token."""
    role, store = read_role(arguments.role), open_ledger(arguments.url)
    with reading(store, arguments.url):
        pass
    with _book(store) as book:
        token = book.add(arguments.name, role, arguments.tenant, actor_of(arguments))
    tell(f"{arguments.name} may sign in now, as {role.label}; this token is shown only here:")
    print(token)
    return DONE


def run_rotate(arguments: argparse.Namespace) -> int:
    """Gives an operator a new token and prints it."""
    store = open_ledger(arguments.url)
    with reading(store, arguments.url):
        pass
    with _book(store) as book:
        token = book.rotate(arguments.name, actor_of(arguments))
    tell(f"{arguments.name} has a new token, shown only here; the old one and its sessions are over:")
    print(token)
    return DONE


def run_sign_out(arguments: argparse.Namespace) -> int:
    """Ends every session of an operator."""
    store = open_ledger(arguments.url)
    with reading(store, arguments.url) as session:
        if find_operator(session, arguments.name) is None:
            raise ConfigError(f"no operator is called {arguments.name[:60]!r}")
    with closing(GroupCommit(store)) as commits:
        actor = actor_of(arguments)
        SessionBook(commits, SystemClock()).end_all(
            arguments.name, actor, f"every session of {arguments.name}, by the command line"
        )
    print(f"every session of {arguments.name} is over")
    return DONE


def run_remove(arguments: argparse.Namespace) -> int:
    """Removes an operator."""
    store = open_ledger(arguments.url)
    with reading(store, arguments.url):
        pass
    with _book(store) as book:
        book.remove(arguments.name, actor_of(arguments))
    print(f"{arguments.name} is out; their sessions are over")
    return DONE


def run_list(arguments: argparse.Namespace) -> int:
    """Prints all operators."""
    with reading(open_ledger(arguments.url), arguments.url) as session:
        found = [known.operator for known in operators(session)]
    if arguments.json:
        for one in found:
            print_json({"name": one.name, "role": one.role, "tenant": one.tenant})
    elif found:
        rows = [
            [Cell.of(one.name), Cell.of(one.role), Cell.of("all" if one.tenant is None else one.tenant)]
            for one in found
        ]
        print_table(("NAME", "ROLE", "TENANT"), rows)
    else:
        tell("there are no operators yet; add one with: oncegate operators add NAME --role approver")
    return DONE
