"""Erasure: removes what entries say of a person, and keeps keys, hashes and records.

A repeat of an erased event is still a replay, and every proof still holds: leaves have commitments where
content was. Each entry that is erased has a record with the author and the reason.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from oncegate.clock import Clock
from oncegate.errors import StoreBusy
from oncegate.gate.codec.outcome import ERASED_OUTCOME
from oncegate.journal.leaves import Salts, erased_note
from oncegate.journal.rollback.copies import copies_of, erase_lines, in_use
from oncegate.journal.tiles import JOURNAL, SECRET
from oncegate.model.decisions import check_actor, check_reason
from oncegate.model.paths import lookup, parse_path
from oncegate.store import DocumentChange, EntryFilter, Erasure, LogKind, Session, Store
from oncegate.store.notices import SUBJECT

STEP: Final = 100  # entries in one transaction
# Records whose note is free text: an error's message, a downstream's answer, why an event waits.
_WITH_TEXT: Final = frozenset({
    LogKind.PROBED, LogKind.FAILED, LogKind.RETRYABLE, LogKind.UNKNOWN, LogKind.HELD, LogKind.QUARANTINED,
    LogKind.CONFLICT,
})  # fmt: skip
PAGE: Final = 500  # entries read in one go


class EraseReport(Struct):
    """What one erasure did: `erased` has the entries that roll-backs made of them too.

    `open` entries still run or wait, or a roll-back of them is being applied: erase them afterwards.
    """

    erased: list[int] = []
    already: int = 0
    open: list[int] = []


class Eraser:
    """Erases entries of one ledger."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock

    def subject_fields(self) -> dict[str, str]:
        """By surface, the field that names a person, as the worker of each program has said it."""
        with self._store.look() as session:
            return {one.name: one.body.decode() for one in session.notices(SUBJECT)}

    def find(self, subject: str, fields: Mapping[str, str]) -> list[int]:
        """The entries whose event names a person in the field of its surface."""
        found: list[int] = []
        for surface, field in fields.items():
            path = parse_path(field.strip("{}"))
            with self._store.look() as session:
                for numbers in _pages(session, EntryFilter(surface=surface)):
                    found += _about(session, numbers, path, subject)
        return sorted(found)

    def matching(self, wanted: EntryFilter) -> list[int]:
        """The entries that a filter names."""
        with self._store.look() as session:
            return sorted(number for numbers in _pages(session, wanted) for number in numbers)

    def erase(self, entries: Sequence[int], *, actor: str, reason: str) -> EraseReport:
        """Erases entries, step by step; what was erased before is passed over.

        What roll-backs keep of their events goes first, so that an erasure that broke off is found again.
        """
        actor, reason, report = check_actor(actor), check_reason(reason), EraseReport()
        session = self._store.connect()
        try:
            entries = self._with_copies(session, entries, actor, report)
            salts = Salts(journal_secret(session, self._clock))
            for start in range(0, len(entries), STEP):
                self._step(session, salts, entries[start : start + STEP], (actor, reason), report)
        finally:
            session.close()
        return report

    def _with_copies(
        self, session: Session, entries: Sequence[int], actor: str, report: EraseReport
    ) -> list[int]:
        wanted = [*copies_of(session, entries), *entries]
        report.open += sorted(in_use(session).intersection(wanted))
        left = list(dict.fromkeys(one for one in wanted if one not in report.open))
        with session.unit():
            erase_lines(session, left, self._clock.wall_ms(), actor)
        return left

    def _step(
        self,
        session: Session,
        salts: Salts,
        entries: Sequence[int],
        by: tuple[str, str],
        report: EraseReport,
    ) -> None:
        details = [one for entry in entries if (one := session.detail(entry)) is not None]
        final = [one for one in details if one.entry.state.is_final]
        report.open += [one.entry.entry_id for one in details if not one.entry.state.is_final]
        notes = tuple(
            (record.position, note)
            for one in final
            for record in one.records
            if (note := erased_note(salts, record)) is not None and record.kind in _WITH_TEXT
        )
        numbers = tuple(one.entry.entry_id for one in final)
        wanted = Erasure(numbers, self._clock.wall_ms(), by[0], ERASED_OUTCOME, by[1], notes)
        with session.unit():
            done = session.erase(wanted)
        report.erased += done
        report.already += len(final) - len(done)


def _pages(session: Session, wanted: EntryFilter) -> Iterator[list[int]]:
    before: int | None = None
    while page := session.entries(wanted, before, PAGE):
        before = page[-1].entry_id
        yield [one.entry_id for one in page]


def _about(session: Session, numbers: Iterable[int], path: tuple[str, ...], subject: str) -> Iterator[int]:
    for one in session.bodies(list(numbers)):
        if one.body is not None and str(lookup(msgspec.json.decode(one.body), path)) == subject:
            yield one.entry_id


def journal_secret(session: Session, clock: Clock) -> bytes:
    """The ledger's secret for salts; its first user makes it."""
    found = session.document(JOURNAL, SECRET)
    if found is None:
        body, at_ms = secrets.token_bytes(32), clock.wall_ms()
        with session.unit():
            session.change_document(DocumentChange(JOURNAL, SECRET, 0, body, at_ms, "sealer", "", None))
        found = session.document(JOURNAL, SECRET)
    if found is None:
        raise StoreBusy("the journal's secret is being written; try again")
    return found.body
