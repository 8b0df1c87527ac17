"""What a person decides about a second resource: seen, one was cancelled, or both are meant.

Nothing is cancelled here: a person cancels what is not needed at the downstream and records it. A decision
is applied once. A finding that is only acknowledged stays open.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from oncegate.clock import Clock
from oncegate.commit.group_commit import GroupCommit
from oncegate.errors import RulingRefused
from oncegate.model.decisions import check_actor, check_reason
from oncegate.store import ResourceDismissal


class SecondVerb(Enum):
    """What is said about a second resource."""

    UNDONE = "undone"
    MEANT = "meant"
    ACKNOWLEDGE = "acknowledge"

    @property
    def consequence(self) -> str:
        """What will happen if a person says this."""
        return _CONSEQUENCES[self]

    @property
    def said(self) -> str:
        """How the journal begins to tell it."""
        return {"undone": "one cancelled", "meant": "both meant", "acknowledge": "acknowledged"}[self.value]


_CONSEQUENCES = {
    SecondVerb.UNDONE: "the finding leaves this list as one whose second resource you have cancelled at the"
    " downstream; this cancels nothing",
    SecondVerb.MEANT: "the finding leaves this list: both resources stay",
    SecondVerb.ACKNOWLEDGE: "your name stands on the finding; it stays open and red until it is decided",
}


class SecondWord(Struct, frozen=True):
    """A decision: the verb, who, and why."""

    verb: SecondVerb
    actor: str
    reason: str


def decide_second(commits: GroupCommit, clock: Clock, number: int, word: SecondWord) -> None:
    """Applies a decision in one commit; raises RulingRefused, and changes nothing, if it cannot count."""
    note = f"{word.verb.said}: {check_reason(word.reason)}"
    closes = word.verb is not SecondVerb.ACKNOWLEDGE
    told = ResourceDismissal(number, clock.wall_ms(), check_actor(word.actor), note, closes)
    with commits.transaction() as session:
        if not session.dismiss_resource(told):
            raise RulingRefused(f"no second resource {number} is open; nothing was changed")
