"""Lists, counts, the log and forgetting on the simulated ledger. Mixed into the session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from oncegate.model.parking import Parked
from oncegate.model.retention import Sighting, believe
from oncegate.model.states import State
from oncegate.store import (
    EVERY_TENANT,
    Due,
    Entry,
    EntryDetail,
    EntryFilter,
    Forgetting,
    LateResource,
    LogKind,
    LogRecord,
    StepState,
    Tenants,
    UnusedNames,
)
from oncegate.store.census import checked_prefix
from oncegate.stores.shared.retention import REFUSED, judge_rows, note_of, read_sighting, write_sighting
from oncegate.stores.shared.second_resources import late_note
from oncegate.testing.simulation.ledger import Ledger, Row, Tables
from oncegate.testing.simulation.sealing import SimulatedSealing


class SimulatedCensus(SimulatedSealing):
    """Entries, details, counts, stranded claims, log, pruning."""

    _ledger: Ledger
    _tables: Tables

    def now_ticks(self) -> int:
        """The ledger's own time; the session knows it."""
        raise NotImplementedError

    def log(self, entry: int, kind: LogKind, at_ms: int, actor: str, note: str | None) -> None:
        """Appends to the log; claims know how."""
        raise NotImplementedError

    def read(self, keys: Sequence[bytes]) -> list[Entry | None]:
        """Reads entries by key; claims know how."""
        raise NotImplementedError

    def remove(self, row: Row) -> None:
        """Removes an entry; claims know how."""
        raise NotImplementedError

    def entries(self, wanted: EntryFilter, before_id: int | None, limit: int) -> list[Entry]:
        """Lists entries, newest first."""
        found = [row for row in self._wanted(wanted) if before_id is None or row.entry_id < before_id]
        return [row.entry() for row in sorted(found, key=lambda row: -row.entry_id)[:limit]]

    def oldest_entries(self, wanted: EntryFilter, after_id: int, limit: int) -> list[Entry]:
        """Lists entries, oldest first."""
        found = [row for row in self._wanted(wanted) if row.entry_id > after_id]
        return [row.entry() for row in sorted(found, key=lambda row: row.entry_id)[:limit]]

    def _wanted(self, wanted: EntryFilter) -> Iterator[Row]:
        checked_prefix(wanted.key_prefix or "")
        for row in self._tables.rows.values():
            found = self.detail(row.entry_id)
            if found is not None and wanted.fits(found):
                yield row

    def detail(self, entry_id: int) -> EntryDetail | None:
        """Reads one entry with all that belongs to it."""
        row = self._tables.rows.get(entry_id)
        if row is None:
            return None
        return EntryDetail(
            row.entry(),
            self._tables.payloads.get(entry_id),
            self._tables.outcomes.get(entry_id),
            self._tables.steps.get(entry_id, ()),
            tuple(record for record in self._tables.log.values() if record.entry_id == entry_id),
        )

    def details(self, keys: Sequence[bytes]) -> list[EntryDetail | None]:
        """Reads entries by key with all that belongs to them."""
        return [None if entry is None else self.detail(entry.entry_id) for entry in self.read(keys)]

    def parked(self, surface: str, tenant: str | None) -> Parked:
        """Counts what waits for a person."""
        waiting = (State.QUARANTINED, State.HELD, State.UNKNOWN)
        found = [
            row.entry_id
            for row in self._tables.rows.values()
            if row.state in waiting and row.surface == surface and tenant in (None, row.tenant)
        ]
        return Parked(len(found), sum(len(self._tables.payloads.get(entry, b"")) for entry in found))

    def note_late(self, late: Sequence[LateResource]) -> list[bool]:
        """Records what late workers brought back, in the log alone."""
        return [self._note_late(one) for one in late]

    def _note_late(self, one: LateResource) -> bool:
        detail, kind, note = self.detail(one.entry_id), LogKind.SECOND_RESOURCE, late_note(one)
        if detail is None or any((r.kind, r.note) == (kind, note) for r in detail.records):
            return False
        self.log(one.entry_id, kind, one.at_ms, one.actor, note)
        return True

    def counts(self) -> dict[State, int]:
        """Counts entries by state."""
        return dict(Counter(row.state for row in self._tables.rows.values()))

    def surfaces(self) -> list[str]:
        """Names the surfaces that have entries."""
        return sorted({row.surface for row in self._tables.rows.values()})

    def stranded(self, limit: int, surfaces: Sequence[str] | None = None) -> list[EntryDetail]:
        """Finds claims whose lease has expired and failures that may be tried again, first due first."""
        now, found = self.now_ticks(), []
        for state in (State.IN_FLIGHT, State.RETRYABLE):
            due = [
                ((max(row.lease_until_ticks or 0, row.retry_at_ticks or 0), row.entry_id), row.entry_id)
                for row in self._tables.rows.values()
                if row.state is state
                and (row.lease_until_ticks or 0) <= now
                and (surfaces is None or row.surface in surfaces)
            ]
            found += [number for _, number in sorted(due)]
        return [detail for number in found[:limit] if (detail := self.detail(number)) is not None]

    def read_log(self, after: int, limit: int) -> list[LogRecord]:
        """Reads records after a position."""
        return [self._tables.log[place] for place in sorted(self._tables.log) if place > after][:limit]

    def due(
        self,
        surface: str,
        before_ms: int,
        now_ms: int,
        after_id: int,
        limit: int,
        *,
        refused: bool = False,
        tenants: Tenants = EVERY_TENANT,
    ) -> Due:
        """Looks at the next entries in order of arrival."""
        following = sorted(number for number in self._tables.rows if number > after_id)[:limit]
        rows = [self._as_walked(self._tables.rows[number], surface, tenants) for number in following]
        return judge_rows(
            rows,
            1,
            before_ms,
            now_ms,
            after_id=after_id,
            limit=limit,
            refused=refused,
            tenants=(1,),
            others=False,
        )

    def _as_walked(self, row: Row, surface: str, tenants: Tenants) -> tuple[int, int, int, int, int, int]:
        settled = row.received_at_ms if row.settled_at_ms is None else row.settled_at_ms
        state = REFUSED if self._is_refused(row) else row.state.value
        is_its, is_theirs = int(row.surface == surface), int(tenants.has(row.tenant))
        return (row.entry_id, is_its, state, row.received_at_ms, settled, is_theirs)

    def _is_refused(self, row: Row) -> bool:
        steps = self._tables.steps.get(row.entry_id, ())
        return row.state is State.RETRYABLE and all(step.state is StepState.NOT_APPLIED for step in steps)

    def _may_go(self, row: Row, wanted: Forgetting) -> bool:
        _, is_its, state, received, settled, is_theirs = self._as_walked(
            row, wanted.surface, wanted.tenants
        )
        is_done = row.state.is_final or (wanted.refused and state == REFUSED)
        return bool(is_its and is_theirs) and is_done and max(received, settled) < wanted.before_ms

    def forget(self, wanted: Forgetting) -> int:
        """Removes entries with all that belongs to them, and raises the floor."""
        rows = [self._tables.rows.get(number) for number in sorted(set(wanted.entries))]
        gone = [row for row in rows if row is not None and self._may_go(row, wanted)]
        for row in gone:
            self.remove(row)
        if gone:
            self.log(0, LogKind.FORGOTTEN, wanted.at_ms, wanted.actor, note_of(wanted, len(gone)))
        return len(gone)

    def unused_names(self, kept: int, limit: int) -> UnusedNames:
        """Names are not interned here."""
        return UnusedNames()

    def drop_names(self, found: UnusedNames) -> int:
        """Has none."""
        return 0

    def sight(self, wall_ms: int, *, is_certain: bool = False) -> Sighting:
        """Notes the wall time beside the ledger's own."""
        now, rows = self.now_ticks(), self._tables.rows
        newest = rows[max(rows)].received_at_ms if rows else None
        last = read_sighting(self._tables.meta.get("sighting"))
        seen = Sighting(wall_ms, now) if is_certain else believe(last, wall_ms, now, newest_ms=newest)
        self._ledger.set(self._tables.meta, "sighting", write_sighting(seen))
        return seen
