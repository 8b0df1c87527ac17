"""`oncegate partners`: who may call the service. A token is printed once and never kept."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from oncegate.cli.exitcodes import DONE
from oncegate.cli.ledger import open_ledger
from oncegate.cli.output import print_json, tell
from oncegate.cli.parser import add_json, add_url, print_help_as_error, read_text
from oncegate.cli.sending import login_name
from oncegate.cli.serve import add_config
from oncegate.store import Facet

_ROLES = ("send", "read", "publish")
_DESCRIPTION = """\
Partners call the service with a token, which says who they are and for which tenant. They are
kept in the service's ledger, hashes of tokens only; every running service knows of a change
within two seconds."""

_EPILOG = """\
examples:
  oncegate partners add exec-1 --tenant acme --role send --role read
  oncegate partners rotate exec-1      the old token stays good until the next rotation
  oncegate partners revoke exec-1"""


def add_parser(subparsers: Any) -> None:
    """Adds the commands to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "partners", help="say who may call the service", description=_DESCRIPTION, epilog=_EPILOG
    )
    parser.set_defaults(run=print_help_as_error)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    add = _command(commands, "add", "add a partner and print its token", run_add)
    add.add_argument("--tenant", type=read_text, required=True, help="whose events it sends and reads")
    add.add_argument(
        "--role", action="append", choices=_ROLES, required=True, help="what it may do; may be repeated"
    )
    _command(commands, "rotate", "print a new token; the one before stays good", run_rotate)
    _command(commands, "revoke", "shut a partner out", run_revoke)
    shown = commands.add_parser("list", help="list partners")
    add_url(shown)
    add_config(shown)
    add_json(shown)
    shown.set_defaults(run=run_list)


def _command(commands: Any, name: str, text: str, run: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text)
    parser.add_argument("name", type=read_text, metavar="NAME", help="the partner's name")
    add_url(parser)
    add_config(parser)
    parser.set_defaults(run=run)
    return parser


@contextmanager
def _book(arguments: argparse.Namespace) -> Iterator[Any]:
    from oncegate.clock import SystemClock
    from oncegate.commit.group_commit import GroupCommit
    from oncegate.service.partners import PartnerBook

    with closing(GroupCommit(open_ledger(arguments.url, arguments.config, needs=Facet.LANES))) as commits:
        yield PartnerBook(commits, SystemClock())


def run_add(arguments: argparse.Namespace) -> int:
    """Adds a partner."""
    from oncegate.service.partners import PartnerRole

    roles = [PartnerRole(role) for role in dict.fromkeys(arguments.role)]
    with _book(arguments) as book:
        token = book.add(arguments.name, arguments.tenant, roles, login_name())
    tell(f"{arguments.name} may call now; this token is shown only here:")
    print(token)
    return DONE


def run_rotate(arguments: argparse.Namespace) -> int:
    """Gives a partner a new token."""
    with _book(arguments) as book:
        token = book.rotate(arguments.name, login_name())
    tell(f"a new token for {arguments.name}; the one before stays good until the next rotation:")
    print(token)
    return DONE


def run_revoke(arguments: argparse.Namespace) -> int:
    """Shuts a partner out."""
    with _book(arguments) as book:
        book.revoke(arguments.name, login_name())
    tell(f"{arguments.name} is shut out; a running service may take its token for two more seconds")
    return DONE


def run_list(arguments: argparse.Namespace) -> int:
    """Lists partners, without anything of their tokens but how many there are."""
    with _book(arguments) as book:
        partners = list(book.partners.values())
    for partner in partners:
        roles = [role.value for role in partner.roles]
        if arguments.json:
            tokens = len(partner.tokens)
            print_json({"name": partner.name, "tenant": partner.tenant, "roles": roles, "tokens": tokens})
        else:
            state = "" if partner.tokens else "  (shut out)"
            print(f"{partner.name}  {partner.tenant}  {','.join(roles)}{state}")
    return DONE
