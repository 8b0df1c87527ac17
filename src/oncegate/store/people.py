"""People: what persons decide about entries that wait for them, fenced, attributed and on record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from msgspec import Struct

from oncegate.model.decisions import Verb
from oncegate.store.claims import Entry, StepRecord
from oncegate.store.log import LogKind, LogRecord

KIND_OF: Final = {
    Verb.APPROVE: LogKind.APPROVED,
    Verb.REJECT: LogKind.REJECTED,
    Verb.RELEASE: LogKind.RELEASED,
    Verb.DISCARD: LogKind.DISCARDED,
    Verb.RETRY: LogKind.RUN_AGAIN,
}
RULING_KINDS: Final = frozenset(KIND_OF.values())


class Ruling(Struct, frozen=True):
    """One person's decision about one entry, as that person saw it: `fence` and `key` are what stood there.

    `note` is what the log says; `reason` what the entry says from now on. `steps` are what the person knows
    about steps in doubt, `outcome` what replays get where the verb ends the entry. `declared` is what the
    first claim of an entry that failed declared: an ended entry does not keep it.
    """

    entry_id: int
    fence: int
    key: bytes
    verb: Verb
    actor: str
    note: str
    reason: str
    at_ms: int
    steps: tuple[StepRecord, ...] = ()
    outcome: bytes | None = None
    declared: str | None = None


class RulingAnswer(Struct, frozen=True):
    """What came of a ruling.

    If it is not `done`, nothing was changed: `entry` is what stands there now (None: there is no such
    entry) and `decided` the latest word that a person said about it, if any did.
    """

    done: bool
    entry: Entry | None
    decided: LogRecord | None = None


class People(Protocol):
    """Decisions of persons."""

    def rule(self, rulings: Sequence[Ruling]) -> list[RulingAnswer]:
        """Carries out each ruling atomically, in order, and returns one answer each.

        A ruling takes effect only where fence and key are those it names and the state is one that its verb
        starts from. Then, in one transaction: the state becomes what the verb leads to, the fence grows,
        `reason` and the time stand on the entry, the steps are recorded, the outcome is kept, and the log
        gets exactly one record with `note`. Where the verb runs the entry, attempts count from zero and it
        may be taken up at once; what it knows of earlier calls stays, and the outcome of a failure goes.
        Otherwise nothing changes at all.
        """


def latest_ruling(records: Sequence[LogRecord]) -> LogRecord | None:
    """The last word that a person said, among an entry's records."""
    return next((record for record in reversed(records) if record.kind in RULING_KINDS), None)
