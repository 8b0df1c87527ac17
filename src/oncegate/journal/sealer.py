"""The sealer: takes committed log records in the order of commits into the tree, and signs its head.

Reads and hashes outside of any transaction; one short transaction writes tiles, head and state, against the
versions that were read. So two sealers never write two trees, and a crash leaves the last head as it was.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from oncegate.clock import Clock
from oncegate.crashpoints import CrashPoints
from oncegate.errors import ConfigError, JournalForked, OncegateError, StoreBusy
from oncegate.journal.erasing import journal_secret
from oncegate.journal.keys import Signer, Verifier
from oncegate.journal.leaves import Salts, with_events
from oncegate.journal.notes import Checkpoint, follow, introduce, open_note, sign_note
from oncegate.journal.publishing import HeadDestination
from oncegate.journal.tiles import (
    HEAD,
    JOURNAL,
    PUBLISHED,
    SealState,
    Tiles,
    head_name,
    read_state,
    state_change,
    tile_changes,
)
from oncegate.store import Document, DocumentChange, LogKind, LogRecord, Session, Store

_log: Final = logging.getLogger("oncegate.journal")
SEAL_EVERY: Final = timedelta(minutes=15)
RECORDS_MAX: Final = 10_000  # so many records are sealed before the interval is over
BATCH_RECORDS: Final = 10_000  # read, hashed and written in one go
BATCHES_MAX: Final = 200  # a bounded run; what is left over comes next time
ACTOR: Final = "sealer"
_PROBLEM_CHARS: Final = 300


class SealReport(Struct):
    """What one run did. `problem` says why nothing more was sealed or published."""

    sealed: int = 0
    size: int = 0
    head: str = ""
    waiting: int = 0  # records that wait for the interval or for more records
    published: int = 0
    problem: str | None = None
    is_complete: bool = True


class Sealer:
    """Seals the log of one ledger. Any number may run; one at a time gets its turn."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        signers: Sequence[Signer],
        *,
        destinations: Sequence[HeadDestination] = (),
        every: timedelta = SEAL_EVERY,
        records_max: int = RECORDS_MAX,
        batch_records: int = BATCH_RECORDS,
        crashpoints: CrashPoints | None = None,
    ) -> None:
        if not signers:
            raise ConfigError("sealing needs a key; make one: oncegate journal keygen journal.key")
        self._store, self._clock, self._signers = store, clock, tuple(signers)
        self._destinations = tuple(destinations)
        self._every_ms = every // timedelta(milliseconds=1)
        self._records_max, self._batch = records_max, batch_records
        self._crashpoints = crashpoints or CrashPoints()

    def run_once(self, stopping: object = None, *, at_once: bool = False) -> SealReport:
        """Seals what is due and publishes the head; with `at_once` whatever is there."""
        report = SealReport()
        session = self._store.connect()
        try:
            self._run(session, report, at_once=at_once, stopping=stopping)
        except StoreBusy:
            report.is_complete = False  # another sealer or writer is at it
        except OncegateError as error:
            report.problem = str(error)[:_PROBLEM_CHARS]
            _log.error("the journal is not sealed: %s", report.problem)
            self._note_problem(session, report)
            if not isinstance(error, JournalForked):
                raise
        finally:
            session.close()
        return report

    def _run(self, session: Session, report: SealReport, *, at_once: bool, stopping: object) -> None:
        salts = Salts(journal_secret(session, self._clock))
        state, version = self._state(session)
        for destination in self._destinations:
            destination.check(state, Tiles(session, state.size))
        for _ in range(BATCHES_MAX):
            with self._store.look() as reader:
                records = reader.read_log(state.position, self._batch)
            if not records or not (at_once or self._is_due(state, len(records))):
                report.waiting = len(records)
                break
            state, version = self._seal(session, salts, state, version, records)
            report.sealed += len(records)
            if callable(stopping) and stopping():
                break
        else:
            report.is_complete = False
        report.size, report.head = state.size, state.head
        self._publish(session, state, report)
        self._note_problem(session, report)

    def _is_due(self, state: SealState, records: int) -> bool:
        is_old = self._clock.wall_ms() - state.at_ms >= self._every_ms
        return is_old or records >= min(self._records_max, self._batch)

    def _state(self, session: Session) -> tuple[SealState, int]:
        """How far the log is sealed; a key that is new since then is introduced."""
        state, version = read_state(session)
        if state is None:
            return SealState(
                self._signers[0].name, keys=tuple(one.verifier.text for one in self._signers)
            ), 0
        known = known_keys(state)
        ours = {signer.verifier for signer in self._signers}
        if not state.head or ours <= {*known}:
            return state, version
        if not ours & {*known}:
            raise ConfigError(
                "the signing key is not the journal's: keep the old key and add the new one,"
                " such as file:old.key,file:new.key, until both have signed"
            )
        return self._introduce(session, state, version, known)

    def _introduce(
        self, session: Session, state: SealState, version: int, known: Sequence[Verifier]
    ) -> tuple[SealState, int]:
        old = [signer for signer in self._signers if signer.verifier in known]
        new = [signer for signer in self._signers if signer.verifier not in known]
        notes = tuple(introduce(state.origin, old, signer) for signer in new)
        changed = replace(state, introductions=(*state.introductions, *notes))
        at_ms = self._clock.wall_ms()
        with session.unit():
            if not session.change_document(state_change(changed, version, ACTOR)):
                raise StoreBusy("another sealer is at work")
            for signer in new:
                told = DocumentChange(
                    JOURNAL, f"key {signer.key_id.hex()}", 0, b"{}", at_ms, ACTOR,
                    signer.verifier.text, LogKind.KEY_INTRODUCED,
                )  # fmt: skip
                session.change_document(told)
        return changed, version + 1

    def _seal(
        self,
        session: Session,
        salts: Salts,
        state: SealState,
        version: int,
        records: Sequence[LogRecord],
    ) -> tuple[SealState, int]:
        with self._store.look() as reader:
            rows = sealed_rows(reader, salts, records)
            tiles = Tiles(reader, state.size)
            changed = tiles.appended(rows)
            size, at_ms = state.size + len(rows), self._clock.wall_ms()
            root = Tiles(_Overlay(reader, changed), size).root()
        self._crashpoints.hit("seal.before")
        head = sign_note(Checkpoint(state.origin, size, root).text, self._signers)
        sealed = replace(
            state, size=size, position=records[-1].position, at_ms=at_ms, head=head, every_ms=self._every_ms
        )
        with session.unit():
            changes = [
                state_change(sealed, version, ACTOR),
                DocumentChange(HEAD, head_name(size), 0, head.encode(), at_ms, ACTOR, "", None),
                *tile_changes(changed, at_ms, ACTOR),
            ]
            if not all(session.change_document(change) for change in changes):
                raise StoreBusy("another sealer is at work")
        self._crashpoints.hit("seal.after")
        return sealed, version + 1

    def _publish(self, session: Session, state: SealState, report: SealReport) -> None:
        """Brings the newest head outside; what a crash left out comes with the next run."""
        if not self._destinations or not state.head:
            return
        found = session.document(JOURNAL, PUBLISHED)
        if found is not None and int(found.body) == state.size:
            return
        self._crashpoints.hit("publish.before")
        for destination in self._destinations:
            destination.publish(state)
        self._crashpoints.hit("publish.after")
        self._write(session, PUBLISHED, found, str(state.size).encode())
        report.published = state.size

    def _note_problem(self, session: Session, report: SealReport) -> None:
        """Keeps what stops the sealer where signals and the page read it; nothing where nothing does."""
        found, body = session.document(JOURNAL, "problem"), (report.problem or "").encode()
        if (b"" if found is None else found.body) != body:
            self._write(session, "problem", found, body)

    def _write(self, session: Session, name: str, found: Document | None, body: bytes) -> None:
        version = 0 if found is None else found.version
        change = DocumentChange(JOURNAL, name, version, body, self._clock.wall_ms(), ACTOR, "", None)
        with session.unit():
            session.change_document(change)


class _Overlay:
    """Tiles as they will be once they are written."""

    def __init__(self, session: Session, changed: dict[tuple[int, int], tuple[int, bytes]]) -> None:
        self._session = session
        self._changed = {f"{level}/{number:012d}": body for (level, number), (_, body) in changed.items()}

    def document(self, kind: str, name: str) -> Document | None:
        body = self._changed.get(name)
        return self._session.document(kind, name) if body is None else Document(kind, name, 1, body, 0)


def sealed_rows(reader: Session, salts: Salts, records: Sequence[LogRecord]) -> list[bytes]:
    """The rows of records, with commitments to what the ledger holds of their entries now."""
    wanted = sorted(set(with_events(records)))
    found = {one.entry_id: one for one in reader.bodies(wanted)} if wanted else {}
    return salts.rows(records, found)


def known_keys(state: SealState, trusted: Sequence[Verifier] = ()) -> tuple[Verifier, ...]:
    """The keys that may sign this journal: trusted ones, else those of its head, and those they introduced.

    Without a trusted key this shows only that the ledger agrees with itself.
    """
    first = list(trusted) or _first_keys(state)
    return follow(state.origin, first, state.introductions)


def _first_keys(state: SealState) -> list[Verifier]:
    return [Verifier.parse(text) for text in state.keys]


def newest_head(state: SealState, verifiers: Sequence[Verifier]) -> Checkpoint:
    """The newest head, with its signature checked."""
    return Checkpoint.parse(open_note(state.head, verifiers).text)
