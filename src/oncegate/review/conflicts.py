"""Contents that came under one key: the entry that has it, and what is kept beside it for a person.

Commands and pages show all of them together. Must only describe: which content is meant is the person's to
say, and each has a word of its own.
"""

from __future__ import annotations

import shlex
from typing import Final

from msgspec import Struct

from oncegate.model.conflicts import KEPT_MAX
from oncegate.model.decisions import Verb
from oncegate.model.differences import differing, ignore_hint
from oncegate.model.keys import Key
from oncegate.model.states import State
from oncegate.review.differences import difference
from oncegate.store import Entry, EntryDetail, Session
from oncegate.store.conflicts import kept_beside, wanted_key

VOLATILE_MIN: Final = 2  # contents beside the first that differ from it in the same field alone


class Contest(Struct, frozen=True):
    """Where an entry stands among the contents of one key.

    `is_later` says that it is one that came later and was kept; `first` then has the key, unless it is
    still in its lane, or forgotten. `others` are kept like it.
    """

    is_later: bool = False
    first: Entry | None = None
    others: tuple[Entry, ...] = ()

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All but the one that is looked at."""
        return self.others if self.first is None else (self.first, *self.others)


NONE = Contest()


def contest_of(session: Session, seen: EntryDetail) -> Contest:
    """Finds the other contents of an entry's key."""
    wanted = wanted_key(seen)
    key = wanted or Key(seen.entry.key)
    found = reversed(kept_beside(session, key))
    others = tuple(entry for entry in found if entry.entry_id != seen.entry.entry_id)
    first = None if wanted is None else session.read([key.digest])[0]
    return Contest(wanted is not None, first, others)


def difference_remarks(session: Session, seen: EntryDetail, contest: Contest) -> list[str]:
    """In which fields a later content differs from the one that has the key; names only."""
    if not contest.is_later or contest.first is None:
        return []
    first = session.detail(contest.first.entry_id)
    text = "" if first is None else difference(first.body, seen.body)
    if first is None or not text:
        return []
    return [f"against entry {contest.first.entry_id} {text}", *_volatile(session, first, seen, contest)]


def _volatile(session: Session, first: EntryDetail, seen: EntryDetail, contest: Contest) -> list[str]:
    """What to write where content after content of one key differs in one field only."""
    details = [session.detail(entry.entry_id) for entry in contest.others]
    bodies = [seen.body, *(one.body for one in details if one is not None)]
    found = [differing(first.body, body) for body in bodies]
    name = found[0][0] if found[0] and len(found[0]) == 1 else None
    is_alone = name is not None and len(found) >= VOLATILE_MIN and all(one == [name] for one in found)
    return [ignore_hint(name), _decision(seen.entry.surface, name)] if is_alone and name is not None else []


def _decision(surface: str, name: str) -> str:
    words = ["oncegate", "surfaces", "ignore", surface, name]
    return f"to ignore it from now on, without a release: {shlex.join(words)} --reason WHY"


def contest_remarks(contest: Contest, refused: str) -> list[str]:
    """What the operator should know of the other contents; `refused` is how often they came."""
    said = []
    if contest.is_later:
        said.append(f"it came under a key that {_standing(contest.first)}")
    if refused and not contest.others:
        said.append(
            f"other content came under this key {refused} since; it was refused and not kept, and"
            " stays refused whatever you decide"
        )
    if contest.others:
        kept = ", ".join(f"entry {entry.entry_id} ({entry.state.label})" for entry in contest.others)
        said.append(f"other content under the same key is kept as {kept}: each needs a word of its own")
    if len(contest.others) + contest.is_later >= KEPT_MAX:
        said.append(f"no more than {KEPT_MAX} contents are kept beside a key; any other is only refused")
    return said


def releasing_another(contest: Contest) -> str:
    """What releasing does to a content that came later: it is one more event."""
    own = (
        "it runs once, under a key of its own: a downstream gets another Idempotency-Key than for the first"
    )
    first = contest.first
    if first is None:
        return own
    if first.state is State.COMMITTED:
        return f"{own}. Entry {first.entry_id} has run, so both will have"
    if first.state is State.FAILED:
        return f"{own}. Entry {first.entry_id} is not run any more"
    end = Verb.DISCARD if first.state is State.QUARANTINED else Verb.REJECT
    if first.state in (State.IN_FLIGHT, State.RETRYABLE):
        return f"{own}. Entry {first.entry_id} is under way, so both will have run"
    return f"{own}. Entry {first.entry_id} waits too: {end.value} it, or both run"


def _standing(first: Entry | None) -> str:
    if first is None:
        return "another event has or had, which is still in its lane or forgotten"
    return f"entry {first.entry_id} has with other content, which is {first.state.label}"
