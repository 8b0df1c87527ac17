"""`oncegate held`: what only a person may move on, and the person's word about it."""

from __future__ import annotations

from typing import Any, Final

from oncegate.cli.people import ReviewCommands, add_desk
from oncegate.model.decisions import Verb
from oncegate.model.states import State

_DESCRIPTION: Final = """\
Look at what waits for a person, and decide: events that need approval first, events that have
used up their attempts, and effects of which only a person can say whether they happened.
Every decision needs a reason and is kept in the log with your name."""

_EPILOG: Final = """\
examples:
  oncegate held list
  oncegate held show 42
  oncegate held approve 42 --reason "seen the invoice"
  oncegate held approve 42 --step claim_slot=happened:S-4711 --reason "found it at the terminal"
  oncegate held approve 42 --step claim_slot=did-not-happen --reason "the terminal has nothing"
  oncegate held reject --surface payouts --older-than 7d --reason "too late" --as Ada"""

DESK: Final = ReviewCommands(
    "held", (State.HELD, State.UNKNOWN), Verb.APPROVE, Verb.REJECT, _DESCRIPTION, _EPILOG
)


def add_parser(subparsers: Any) -> None:
    """Adds the command group to the command line."""
    add_desk(subparsers, DESK)
