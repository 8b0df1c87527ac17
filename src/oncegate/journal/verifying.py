"""Checks the journal: the log against the sealed rows, the rows against signed heads, bodies against rows.

Finds records that were changed, removed, added, swapped or given other numbers, heads that were forged, a
ledger that went back, and content that was changed or removed without a record. Only reads.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from oncegate.errors import JournalForked, OncegateError, StoreCorrupt
from oncegate.journal.keys import Verifier
from oncegate.journal.leaves import NONE, WITH_EVENT, WITH_OUTCOME, Commitments, Salts, with_events
from oncegate.journal.notes import Checkpoint, open_note
from oncegate.journal.publishing import check_head
from oncegate.journal.sealer import known_keys, sealed_rows
from oncegate.journal.tiles import (
    HASH_BYTES,
    HEAD,
    JOURNAL,
    SECRET,
    WIDTH,
    SealedRow,
    SealState,
    Tiles,
    read_state,
)
from oncegate.journal.tree import CompactRange, full_root
from oncegate.store import EntryBodies, LogKind, LogRecord, Session

FINDINGS_MAX: Final = 100
BATCH: Final = 20 * WIDTH  # as many as fill tiles


class TamperFinding(Struct, frozen=True):
    """What does not fit, and the range of sealed records that it concerns: from `first` up to `last`."""

    what: str
    first: int
    last: int
    entry: int | None = None


class VerifyReport(Struct):
    """What was checked, and what does not fit."""

    size: int = 0
    heads: int = 0
    bodies: int = 0
    unsealed: int = 0
    findings: list[TamperFinding] = []
    more: int = 0
    head: str = ""

    @property
    def is_intact(self) -> bool:
        """Whether everything fits."""
        return not self.findings

    def add(self, what: str, first: int, last: int, entry: int | None = None) -> None:
        """Keeps a finding; of many, the first."""
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(TamperFinding(what, first, last, entry))
        else:
            self.more += 1


class Verification:
    """One check of a ledger's whole journal, over a session that sees one moment."""

    def __init__(
        self,
        session: Session,
        *,
        trusted: Sequence[Verifier] = (),
        heads: Sequence[tuple[str, str]] = (),
        with_bodies: bool = True,
    ) -> None:
        self._session, self._trusted, self._given = session, trusted, heads
        self._with_bodies = with_bodies
        self.report = VerifyReport()
        self._erased: set[int] = set()
        self._pruned: dict[str, int] = {}
        self._gone: set[int] = set()

    def run(self) -> VerifyReport:
        """Checks everything; an unsealed ledger has nothing to check."""
        state = self._read_state()
        if state is None:
            for where, _ in self._given:
                self.report.add(f"{where} was signed for a journal, and this ledger has none", 0, 0)
            return self.report
        self.report.size, self.report.head = state.size, state.head
        found = self._session.document(JOURNAL, SECRET)
        salts = Salts(b"" if found is None else found.body)
        self._note_erasures()
        tiles = Tiles(self._session, state.size)
        self._check_rows(state, tiles, salts)
        self._check_heads(state, tiles)
        self._check_gone()
        return self.report

    def _read_state(self) -> SealState | None:
        try:
            return read_state(self._session)[0]
        except ValueError:
            self.report.add("the journal's state cannot be read", 0, 0)
            return None

    # Records -----------------------------------------------------------------------------------------

    def _check_rows(self, state: SealState, tiles: Tiles, salts: Salts) -> None:
        """Joins sealed rows and records by position: what has no partner was removed or added."""
        index = last_position = 0
        for records in self._batches(tiles):
            if self._with_bodies and self._is_as_sealed(tiles, index, records, salts):
                index, last_position = index + len(records), records[-1].position
                continue
            row = tiles.row(index)
            pairs: list[tuple[int, LogRecord, SealedRow]] = []
            for record in records:
                while row is not None and row.position < record.position:
                    self._missing(index, row)
                    last_position, row, index = row.position, tiles.row(index + 1), index + 1
                if row is None or record.position < row.position:
                    self._without_row(state, record, index)
                    continue
                if salts.leaf_hash(record, row.content) != row.leaf:
                    self.report.add(f"record {index} was changed", index, index, _entry(record))
                elif record.entry_id > 0 and record.kind in WITH_EVENT:
                    pairs.append((index, record, row))
                if row.position <= last_position and index:
                    self.report.add(f"sealed rows are out of order at {index}", index, index)
                last_position, row, index = row.position, tiles.row(index + 1), index + 1
            self._check_bodies(pairs, salts)
        while (row := tiles.row(index)) is not None:
            self._missing(index, row)
            last_position, index = row.position, index + 1
        if last_position != state.position and index:
            self.report.add("the newest sealed row is not where the journal says", index - 1, index - 1)
        if index != state.size:
            self.report.add(f"{state.size - index} sealed rows are missing", index, state.size - 1)

    def _is_as_sealed(self, tiles: Tiles, index: int, records: Sequence[LogRecord], salts: Salts) -> bool:
        """Whether the next rows are those that sealing the records now would make.

        Then nothing has to be looked at one by one: position, leaf, event and outcome of each are the same.
        """
        try:
            made = sealed_rows(self._session, salts, records)
        except Exception:  # noqa: BLE001  changed rows may hold anything; the walk one by one names them
            return False
        if b"".join(made) != tiles.raw(index, len(records)):
            return False
        self.report.bodies += sum(1 for _ in with_events(records))
        return True

    def _batches(self, tiles: Tiles) -> Iterator[list[LogRecord]]:
        after, limit = 0, BATCH
        while True:
            try:
                records = self._session.read_log(after, limit)
            except Exception as error:  # noqa: BLE001  a changed row may hold anything; it is named and passed
                if limit > 1:
                    limit = 1
                    continue
                after = self._unreadable(after, tiles, error)
                continue
            if not records:
                return
            yield records
            after, limit = records[-1].position, min(BATCH, limit * 2)

    def _unreadable(self, after: int, tiles: Tiles, error: Exception) -> int:
        """Names a record that cannot be read; the next read begins behind it."""
        for index in range(tiles.size):
            row = tiles.row(index)
            if row is not None and row.position > after:
                self.report.add(f"record {index} cannot be read: {error}"[:200], index, index)
                return row.position
        self.report.add(f"a record after {after} cannot be read: {error}"[:200], tiles.size, tiles.size)
        return 2**190

    def _missing(self, index: int, row: SealedRow) -> None:
        self.report.add(f"record {index} at position {row.position} was removed", index, index)

    def _without_row(self, state: SealState, record: LogRecord, index: int) -> None:
        if record.position > state.position:
            self.report.unsealed += 1
            return
        what = f"a record at position {record.position} was added after sealing"
        self.report.add(what, max(0, index - 1), min(index, state.size - 1), _entry(record))

    # Heads -------------------------------------------------------------------------------------------

    def _check_heads(self, state: SealState, tiles: Tiles) -> None:
        try:
            keys = known_keys(state, self._trusted)
        except OncegateError as error:
            self.report.add(f"the journal's keys do not fit: {error}", 0, state.size - 1)
            keys = tuple(self._trusted)
        signed = self._signed_heads(state, keys)
        self._check_roots(signed, tiles, state)
        for where, note in self._given:
            self._check_given(where, note, state, tiles, keys)

    def _signed_heads(self, state: SealState, keys: Sequence[Verifier]) -> dict[int, Checkpoint]:
        signed: dict[int, Checkpoint] = {}
        below = 0
        notes = [(one.name, one.body.decode("utf-8", "replace")) for one in self._session.documents(HEAD)]
        for name, note in [*notes, ("newest", state.head)]:
            try:
                head = Checkpoint.parse(open_note(note, keys).text)
                of_size = state.size if name == "newest" else int(name)
                if head.size != of_size or head.origin != state.origin:
                    raise StoreCorrupt("it is the head of another journal or size")
            except (OncegateError, ValueError) as error:
                size = int(name) if name.isdigit() else state.size
                self.report.add(f"head {name}: {error}", below, max(below, min(size, state.size) - 1))
                continue
            signed[head.size] = head
            below = head.size
        if state.size not in signed:
            self.report.add(f"no head of size {state.size} is signed", below, max(0, state.size - 1))
        self.report.heads = len(signed)
        return signed

    def _check_roots(self, signed: dict[int, Checkpoint], tiles: Tiles, state: SealState) -> None:
        """Walks along the hashes once. A wrong head names the records since the last good one."""
        made, good = CompactRange(), 0
        sizes = sorted(signed)
        for size in sizes:
            if size > state.size:
                self.report.add(
                    f"a head of {size} records is signed, and {state.size} are sealed", state.size, size - 1
                )
                break
        for number in range(-(-state.size // WIDTH)):
            hashes = tiles.hashes(number)
            after = bisect_right(sizes, made.size)
            is_whole = after == len(sizes) or sizes[after] >= made.size + WIDTH
            height = 8 if len(hashes) == WIDTH * HASH_BYTES and is_whole else 0
            if height:
                hashes = full_root(hashes)
            for place in range(0, len(hashes), HASH_BYTES):
                made.append(hashes[place : place + HASH_BYTES], height)
                head = signed.get(made.size)
                if head is None:
                    continue
                if head.root != made.root():
                    self.report.add(
                        f"the signed head of {made.size} records does not fit", good, made.size - 1
                    )
                    return
                good = made.size
        try:
            if made.size == state.size and tiles.root() != made.root():
                self.report.add("the upper tiles of the tree do not fit its leaves", 0, state.size - 1)
        except StoreCorrupt as error:
            self.report.add(str(error), 0, state.size - 1)

    def _check_given(
        self, where: str, note: str, state: SealState, tiles: Tiles, keys: Sequence[Verifier]
    ) -> None:
        try:
            open_note(note, keys)
            check_head(note, state, tiles, where)
        except (JournalForked, StoreCorrupt) as error:
            first = min(Checkpoint.parse(note).size, state.size) if "went back" in str(error) else 0
            self.report.add(str(error), first, max(first, Checkpoint.parse(note).size - 1))
        except OncegateError as error:
            self.report.add(f"{where}: {error}", 0, max(0, state.size - 1))

    # Bodies ------------------------------------------------------------------------------------------

    def _newest_first(self, *, by_people: bool) -> Iterator[LogRecord]:
        before: int | None = None
        try:
            while records := self._session.log_before(before, BATCH, by_people=by_people):
                yield from records
                before = records[-1].position
        except Exception:  # noqa: BLE001  changed rows may hold anything; the walk over all records names them
            return

    def _note_erasures(self) -> None:
        """What the log says was removed: entries, and events of surfaces up to a moment."""
        for record in self._newest_first(by_people=True):
            if record.kind is LogKind.ERASED:
                self._erased.add(record.entry_id)
            elif record.kind is LogKind.CONTENT_PRUNED and record.note:
                surface, _, moment = record.note.rpartition(" before ")
                if moment.isdigit():
                    self._pruned[surface] = max(self._pruned.get(surface, 0), int(moment))

    def _check_bodies(self, pairs: Sequence[tuple[int, LogRecord, SealedRow]], salts: Salts) -> None:
        if not self._with_bodies or not pairs:
            return
        wanted = sorted({record.entry_id for _, record, _ in pairs})
        found = {one.entry_id: one for one in self._session.bodies(wanted)}
        for index, record, row in pairs:
            self.report.bodies += 1
            bodies = found.get(record.entry_id)
            if bodies is None:
                self._gone.add(record.entry_id)
                continue
            now = salts.content(record, bodies)
            if now != row.content:
                self._check_difference(index, record, row.content, now, bodies)

    def _check_difference(
        self, index: int, record: LogRecord, sealed: Commitments, now: Commitments, bodies: EntryBodies
    ) -> None:
        entry = record.entry_id
        is_erased = entry in self._erased or bodies.received_at_ms < self._pruned.get(bodies.surface, 0)
        if now.payload != sealed.payload and not (is_erased and now.payload == NONE):
            word = "removed without a record" if now.payload == NONE else "changed"
            self.report.add(f"the event of entry {entry} was {word}", index, index, entry)
        # A value may be attached after the settlement; a later settlement has a record of its own.
        may_differ = is_erased or sealed.outcome == NONE or record.kind not in WITH_OUTCOME
        if now.outcome != sealed.outcome and not may_differ and not self._is_settled_later(record):
            word = "removed without a record" if now.outcome == NONE else "changed"
            self.report.add(f"the outcome of entry {entry} was {word}", index, index, entry)

    def _is_settled_later(self, record: LogRecord) -> bool:
        try:
            detail = self._session.detail(record.entry_id)
        except Exception:  # noqa: BLE001  changed rows may hold anything
            return False
        records = () if detail is None else detail.records
        return any(one.kind in WITH_OUTCOME and one.position > record.position for one in records)

    def _check_gone(self) -> None:
        """Keys that are gone without a record of forgetting."""
        if not self._gone:
            return
        if any(one.kind is LogKind.FORGOTTEN for one in self._newest_first(by_people=False)):
            return
        for entry in sorted(self._gone):
            self.report.add(f"entry {entry} was removed without a record", 0, self.report.size - 1, entry)


def _entry(record: LogRecord) -> int | None:
    return entry if isinstance(entry := record.entry_id, int) and entry > 0 else None
