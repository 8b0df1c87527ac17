"""`oncegate quarantine`: events that were not run as they stand, and a person's word about them."""

from __future__ import annotations

from typing import Any, Final

from oncegate.cli.people import ReviewCommands, add_desk
from oncegate.model.decisions import Verb
from oncegate.model.states import State

_DESCRIPTION: Final = """\
Look at events that were put in quarantine, and decide: release runs one once, under the key it
has; discard keeps its key, so that it is never run. Every decision needs a reason and is kept
in the log with your name."""

_EPILOG: Final = """\
examples:
  oncegate quarantine list --reason-contains skew
  oncegate quarantine show 42 --payload
  oncegate quarantine release 42 --reason "their clock was wrong, the event is genuine"
  oncegate quarantine release --surface routes --reason-contains skew --reason "clock repaired" --dry-run
  oncegate quarantine discard 42 --reason "a test message" --as Ada"""

DESK: Final = ReviewCommands(
    "quarantine", (State.QUARANTINED,), Verb.RELEASE, Verb.DISCARD, _DESCRIPTION, _EPILOG
)


def add_parser(subparsers: Any) -> None:
    """Adds the command group to the command line."""
    add_desk(subparsers, DESK)
