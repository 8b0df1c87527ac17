"""Bodies by entry and their erasure on the simulated ledger. Mixed into the census."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from oncegate.store import EntryBodies, Erasure, LogKind
from oncegate.store.sealing import ERASED_LABEL
from oncegate.testing.simulation.ledger import Tables


class SimulatedSealing:
    """Bodies, erase."""

    _tables: Tables

    def log(self, entry: int, kind: LogKind, at_ms: int, actor: str, note: str | None) -> None:
        """Appends to the log; claims know how."""
        raise NotImplementedError

    def bodies(self, entries: Sequence[int]) -> list[EntryBodies]:
        """Reads the bodies of entries."""
        tables = self._tables
        rows = [row for number in entries if (row := tables.rows.get(number)) is not None]
        return [
            EntryBodies(
                row.entry_id,
                row.surface,
                row.received_at_ms,
                tables.payloads.get(row.entry_id),
                tables.outcomes.get(row.entry_id),
            )
            for row in rows
        ]

    def erase(self, wanted: Erasure) -> list[int]:
        """Removes what final entries hold."""
        done = [entry for entry in wanted.entries if self._erase_one(entry, wanted)]
        for position, note in wanted.notes:
            self._tables.log[position] = replace(self._tables.log[position], note=note)
        return done

    def _erase_one(self, entry: int, wanted: Erasure) -> bool:
        tables, row = self._tables, self._tables.rows.get(entry)
        if row is None or not row.state.is_final:
            return False
        is_held = tables.payloads.pop(entry, None) is not None or row.label != ERASED_LABEL
        if entry in tables.outcomes:
            is_held = is_held or tables.outcomes[entry] != wanted.outcome
            tables.outcomes[entry] = wanted.outcome
        if is_held:
            tables.rows[entry] = replace(row, label=ERASED_LABEL, reason=None)
            tables.steps.pop(entry, None)
            if wanted.note is not None:
                self.log(entry, LogKind.ERASED, wanted.at_ms, wanted.actor, wanted.note)
        return is_held
