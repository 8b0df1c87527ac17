"""What the sender's commands share: who speaks and why, and a sender opened for changing things."""

from __future__ import annotations

import argparse
import getpass
from collections.abc import Iterator
from contextlib import closing, contextmanager

from oncegate.cli.ledger import open_ledger
from oncegate.cli.output import Cell
from oncegate.cli.parser import add_json, add_url, read_text
from oncegate.clock import SystemClock
from oncegate.commit.group_commit import GroupCommit
from oncegate.errors import UnknownEndpoint
from oncegate.sender.endpoint_registry import KIND, EndpointChange
from oncegate.sender.operator_actions import LaneDecision, OperatorActions, checked_word
from oncegate.sender.sender import SenderOnCommits
from oncegate.sender.settings import policy_from_environment
from oncegate.store import Facet, Session


def add_word(parser: argparse.ArgumentParser) -> None:
    """Adds the options that say who and why, and which ledger."""
    parser.add_argument("--reason", type=read_text, required=True, help="why; kept in the log")
    parser.add_argument(
        "--as", dest="actor", type=read_text, metavar="NAME", help="who (default: your login name)"
    )
    add_url(parser)


def add_confirming(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a command that shows a plan first."""
    parser.add_argument("--dry-run", action="store_true", help="show the plan; change nothing")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    add_word(parser)
    add_json(parser)


def word_of(arguments: argparse.Namespace) -> LaneDecision:
    """Who says it, and why."""
    return checked_word(LaneDecision(arguments.actor or login_name(), arguments.reason))


def change_of(arguments: argparse.Namespace) -> EndpointChange:
    """The same, for changes of endpoints."""
    word = word_of(arguments)
    return EndpointChange(word.actor, word.reason)


def login_name() -> str:
    """The name of the person who runs the command."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"


@contextmanager
def opened_sender(url: str | None) -> Iterator[SenderOnCommits]:
    """A sender on the ledger, closed at the end."""
    with closing(GroupCommit(open_ledger(url, needs=Facet.LANES))) as commits:
        yield SenderOnCommits(commits, policy=policy_from_environment())


@contextmanager
def opened_desk(url: str | None) -> Iterator[OperatorActions]:
    """The operators' desk on the ledger, closed at the end."""
    with closing(GroupCommit(open_ledger(url, needs=Facet.LANES))) as commits:
        yield OperatorActions(commits, SystemClock())


def refuse_unknown_endpoint(session: Session, name: str | None) -> None:
    """Raises UnknownEndpoint for a name that is in no lane and in no book: a slip, not an empty answer."""
    if name is None or any(one.name == name for one in session.documents(KIND)):
        return
    names = [one.name for one in session.destinations()]
    if name not in names:
        raise UnknownEndpoint(f"no endpoint is called {name[:60]!r}; see: oncegate endpoints list")


def cells(*values: object) -> tuple[Cell, ...]:
    """A table's row of any values."""
    return tuple(Cell.of(value) for value in values)
