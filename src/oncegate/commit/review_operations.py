"""Operations about what waits for a person: keeping it, counting it, carrying out decisions."""

from __future__ import annotations

from collections.abc import Sequence

from oncegate.commit.operations import Operation
from oncegate.model.parking import Parked
from oncegate.model.states import Decision
from oncegate.store import Entry, EntryFilter, Reservation, Reserved, Ruling, RulingAnswer, Session
from oncegate.store.people import KIND_OF, latest_ruling


class ReadNamesakes(Operation[list[Entry]]):
    """Reads entries by how their keys begin, in turn with the writes; the newest first."""

    request: tuple[str, int]  # hex digits, and how many entries at most

    @classmethod
    def run(cls, session: Session, operations: Sequence[ReadNamesakes]) -> Sequence[list[Entry]]:
        """Reads many."""
        return [operation.recall(session) for operation in operations]

    def recall(self, session: Session) -> list[Entry]:
        """Reads again."""
        prefix, limit = self.request
        return session.entries(EntryFilter(key_prefix=prefix), None, limit)


class Keep(Operation[Reserved | None]):
    """Keeps an event under a key of its own, unless too many keys begin alike; None if they do.

    Counting and keeping are one step: no number of arrivals at one instant passes the bound. Read back by
    the key, which no other content has.
    """

    request: tuple[Reservation, str, int]  # what to keep, how keys like it begin, and how many may be there

    @classmethod
    def run(cls, session: Session, operations: Sequence[Keep]) -> Sequence[Reserved | None]:
        """Keeps one after the other."""
        session.serialise([operation.request[1] for operation in operations])
        return [operation._keep(session) for operation in operations]

    def _keep(self, session: Session) -> Reserved | None:
        wanted, prefix, kept_max = self.request
        there = session.entries(EntryFilter(key_prefix=prefix), None, kept_max)
        if len(there) >= kept_max and all(entry.key != wanted.key for entry in there):
            return None
        return session.reserve([wanted])[0]

    def recall(self, session: Session) -> Reserved | None:
        """Finds what was kept."""
        (entry,) = session.read([self.request[0].key])
        return None if entry is None else Reserved(Decision.QUARANTINE, entry.entry_id, state=entry.state)


class CountParked(Operation[list[Parked]]):
    """Counts what waits for a person at surfaces, of one tenant or of all. Only reads."""

    request: Sequence[tuple[str, str | None]]

    @classmethod
    def run(cls, session: Session, operations: Sequence[CountParked]) -> Sequence[list[Parked]]:
        """Counts for each."""
        return [operation.recall(session) for operation in operations]

    def recall(self, session: Session) -> list[Parked]:
        """Counts again."""
        return [session.parked(*pair) for pair in self.request]


class Rule(Operation[list[RulingAnswer]]):
    """Carries out what a person decided about some entries. Read back by the log's records."""

    request: tuple[Ruling, ...]

    @classmethod
    def run(cls, session: Session, operations: Sequence[Rule]) -> Sequence[list[RulingAnswer]]:
        """Carries out many in one sweep."""
        answers = iter(session.rule([ruling for operation in operations for ruling in operation.request]))
        return [[next(answers) for _ in operation.request] for operation in operations]

    def recall(self, session: Session) -> list[RulingAnswer] | None:
        """Looks for our own records; one found means that the whole unit was committed."""
        answers = [_recalled(session, ruling) for ruling in self.request]
        return answers if any(answer.done for answer in answers) else None


def _recalled(session: Session, ruling: Ruling) -> RulingAnswer:
    found = session.detail(ruling.entry_id)
    if found is None:
        return RulingAnswer(done=False, entry=None)
    ours = (KIND_OF[ruling.verb], ruling.at_ms, ruling.actor, ruling.note)
    done = any((r.kind, r.at_ms, r.actor, r.note) == ours for r in found.records)
    return RulingAnswer(done, found.entry, latest_ruling(found.records))
