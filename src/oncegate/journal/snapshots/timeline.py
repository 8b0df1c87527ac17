"""The timeline of snapshots in the ledger: for pages and signals that cannot reach the vault.

One document: the snapshots of the last week, one a day before that, and whether the last one failed.
"""

from __future__ import annotations

import secrets
from contextlib import closing
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from oncegate.clock import Clock
from oncegate.errors import StoreBusy
from oncegate.journal.snapshots.suspicion import SnapshotFacts
from oncegate.store import DocumentChange, LogKind, Session, Store
from oncegate.store.registry import SNAPSHOTS_KIND

KIND: Final = SNAPSHOTS_KIND
NAME: Final = "timeline"
RECENT_MAX: Final = 700  # a week of quarters of an hour
DAILY_MAX: Final = 400
DAY_MS: Final = 86_400_000
_TRIES: Final = 5


class SnapshotTimeline(Struct, frozen=True):
    """What is known of a ledger's snapshots. `ticks` is the ledger's time of the last one."""

    ledger_id: str = ""
    vault: str = ""
    promise: str = ""
    every_ms: int = 0
    ticks: int = 0
    number: int = 0
    hash: str = ""
    failure: str | None = None
    failed_at_ms: int | None = None
    items: tuple[SnapshotFacts, ...] = ()

    def with_taken(self, facts: SnapshotFacts, ticks: int) -> SnapshotTimeline:
        """The same with one more."""
        return replace(
            self,
            ticks=ticks,
            number=facts.number,
            hash=facts.hash,
            failure=None,
            failed_at_ms=None,
            items=_thinned((*self.items, facts)),
        )


def _thinned(items: tuple[SnapshotFacts, ...]) -> tuple[SnapshotFacts, ...]:
    old, recent = items[:-RECENT_MAX], items[-RECENT_MAX:]
    daily = {one.wall_ms // DAY_MS: one for one in old}  # the last of each day
    return (*list(daily.values())[-DAILY_MAX:], *recent)


def read_timeline(session: Session) -> SnapshotTimeline:
    """The timeline; an empty one where no snapshot was ever taken."""
    found = session.document(KIND, NAME)
    return SnapshotTimeline() if found is None else msgspec.json.decode(found.body, type=SnapshotTimeline)


def change_timeline(
    store: Store, clock: Clock, change: msgspec.Struct | None, note: str, **values: object
) -> SnapshotTimeline:
    """Adds a snapshot (`change` is its facts) or sets values; another writer is waited for."""
    for _ in range(_TRIES):
        with closing(store.connect()) as session, session.unit():
            found = session.document(KIND, NAME)
            known = read_timeline(session)
            made = replace(known, **values, ledger_id=known.ledger_id or secrets.token_hex(8))
            if isinstance(change, SnapshotFacts):
                made = made.with_taken(change, session.now_ticks())
            wanted = DocumentChange(
                KIND,
                NAME,
                0 if found is None else found.version,
                msgspec.json.encode(made),
                clock.wall_ms(),
                "snapshots",
                note[:300],
                LogKind.DOCUMENT_CHANGED if note else None,
            )
            if session.change_document(wanted):
                return made
    raise StoreBusy("the timeline of snapshots is changed by others all the time; try again")
