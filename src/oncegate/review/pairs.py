"""What a person decides about a pair of equal changes: both were meant, one was undone, or keep the first.

Each decision is applied once, carries the fences that the person saw, and is in the journal with its
reason. Nothing is undone here: a person carries a compensation out and records it.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from oncegate.clock import Clock
from oncegate.commit.group_commit import GroupCommit
from oncegate.errors import RulingRefused
from oncegate.model.decisions import Verb, check_actor, check_reason, verbs_for
from oncegate.review.decisions import EntryDecision, ruling_of
from oncegate.store import Dismissal, Duplicate, Entry, Session


class PairVerb(Enum):
    """What is said about a pair."""

    MEANT = "meant"
    UNDONE = "undone"
    KEEP_FIRST = "keep-first"

    @property
    def consequence(self) -> str:
        """What will happen if a person says this."""
        return _CONSEQUENCES[self]

    @property
    def said(self) -> str:
        """How the journal begins to tell it."""
        return {"meant": "both meant", "undone": "one undone", "keep-first": "first kept"}[self.value]


_CONSEQUENCES = {
    PairVerb.MEANT: "the pair leaves this list, with your reason on record; an entry that was stopped stays"
    " in quarantine until it is released or discarded",
    PairVerb.UNDONE: "the pair leaves this list as one whose second change you have undone at its target;"
    " nothing is undone by this button",
    PairVerb.KEEP_FIRST: "the second entry ends permanently and never runs; the first stays as it is, and"
    " the pair leaves this list",
}


class PairWord(Struct, frozen=True):
    """A decision: the verb, who, why, and the fences of the second and the first entry as seen."""

    verb: PairVerb
    actor: str
    reason: str
    fences: tuple[int, int] | None = None


def verbs_of(pair: Duplicate) -> tuple[PairVerb, ...]:
    """What can be said about a pair as it stands."""
    if pair.ran_with is not None:  # it ran, and so did an equal one before it
        return (PairVerb.UNDONE, PairVerb.MEANT)
    if pair.entry is not None and _ending(pair.entry) is not None:
        return (PairVerb.KEEP_FIRST, PairVerb.MEANT)
    return (PairVerb.MEANT,)


def find_pair(session: Session, entry_id: int) -> Duplicate | None:
    """A pair by its number, which is the later entry's; dismissed or not."""
    known = session.duplicates(entry_id + 1, 1, dismissed=True)
    return known[0] if known and known[0].pair.entry_id == entry_id else None


def seen_fences(pair: Duplicate) -> tuple[int, int]:
    """The fences that a decision names; 0 for an entry that is forgotten."""
    return (pair.entry.fence if pair.entry else 0, pair.other.fence if pair.other else 0)


def decide_pair(commits: GroupCommit, clock: Clock, entry_id: int, word: PairWord) -> None:
    """Applies a decision in one commit; raises RulingRefused, and changes nothing, if it cannot count."""
    actor, reason = check_actor(word.actor), check_reason(word.reason)
    at_ms = clock.wall_ms()
    with commits.transaction() as session:
        pair = find_pair(session, entry_id)
        if pair is None:
            raise RulingRefused(f"there is no pair {entry_id}; nothing was changed")
        _check(pair, word)
        if word.verb is PairVerb.KEEP_FIRST:
            _end_second(session, entry_id, EntryDecision(_verb_for(pair), actor, reason), at_ms)
        if not session.dismiss(Dismissal(entry_id, at_ms, actor, f"{word.verb.said}: {reason}")):
            raise RulingRefused(f"pair {entry_id} was decided meanwhile; nothing was changed")


def _check(pair: Duplicate, word: PairWord) -> None:
    number = pair.pair.entry_id
    if pair.dismissed_at_ms is not None:
        raise RulingRefused(
            f"pair {number} was decided by {pair.dismissed_by} before: {pair.note}; nothing was changed"
        )
    if word.fences is not None and word.fences != seen_fences(pair):
        raise RulingRefused(f"pair {number} has changed since you saw it; nothing was changed. Look again")
    possible = verbs_of(pair)
    if word.verb not in possible:
        names = " or ".join(one.value for one in possible)
        raise RulingRefused(f"pair {number} as it stands cannot be said to be that; say {names}")


def _ending(entry: Entry) -> Verb | None:
    """The verb that ends an entry that waits, without running it."""
    return next((verb for verb in verbs_for(entry.state) if not verb.runs), None)


def _verb_for(pair: Duplicate) -> Verb:
    verb = None if pair.entry is None else _ending(pair.entry)
    if verb is None:
        raise RulingRefused(f"entry {pair.pair.entry_id} does not wait any more; nothing was changed")
    return verb


def _end_second(session: Session, entry_id: int, word: EntryDecision, at_ms: int) -> None:
    seen = session.detail(entry_id)
    if seen is None:
        raise RulingRefused(f"there is no entry {entry_id}; nothing was changed")
    (answer,) = session.rule([ruling_of(seen, word, at_ms)])
    if not answer.done:
        raise RulingRefused(f"entry {entry_id} has changed meanwhile; nothing was changed")
