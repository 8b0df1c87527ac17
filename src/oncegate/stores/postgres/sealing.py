"""Bodies by entry and their erasure on PostgreSQL. Mixed into the census."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from oncegate.store import EntryBodies, Erasure, LogKind
from oncegate.store.sealing import ERASED_COPY, ERASED_LABEL, ERASED_VALUE
from oncegate.stores.postgres import statements
from oncegate.stores.postgres.eras import parted
from oncegate.stores.postgres.names import Names

# Entry by entry by its number: joined as sets, the server reads every partition of a month.
_BODIES: Final = """
SELECT entry.id, entry.surface, entry.received_at, payload.body, outcome.body
FROM unnest(%s::bigint[]) AS item (id)
JOIN oncegate_entry AS entry ON entry.id = item.id
LEFT JOIN oncegate_payload AS payload
       ON payload.month = oncegate_month(entry.received_at) AND payload.entry = entry.id
LEFT JOIN oncegate_outcome AS outcome
       ON outcome.month = oncegate_month(entry.received_at) AND outcome.entry = entry.id
"""
_FINAL: Final = """
SELECT id, oncegate_month(received_at) FROM oncegate_entry
WHERE id = ANY(%s::bigint[]) AND state IN (2, 3) ORDER BY id FOR UPDATE
"""
_ERASE_PAYLOAD: Final = "DELETE FROM oncegate_payload WHERE month = %s AND entry = %s RETURNING entry"
_ERASE_OUTCOME: Final = """
UPDATE oncegate_outcome SET body = %s WHERE month = %s AND entry = %s AND body <> %s RETURNING entry
"""
_ERASE_LABEL: Final = """
UPDATE oncegate_entry SET label = %s, reason = NULL WHERE id = %s AND label <> %s RETURNING id
"""
_BESIDE: Final = (
    "DELETE FROM oncegate_step WHERE entry = %s RETURNING entry",
    "DELETE FROM oncegate_trace WHERE entry = %s RETURNING entry",
    "UPDATE oncegate_repeat SET evidence = '' WHERE entry = %s RETURNING entry",
    "UPDATE oncegate_content SET target = '' WHERE entry = %s RETURNING entry",
)
# Of erased entries, by number. What an event led to names its key as the cause, in the context beside it.
_CAUSED: Final = """
substring(convert_from(context, 'UTF8') FROM '"cause":"([0-9a-f]+)"') IN (
    SELECT encode(key, 'hex') FROM oncegate_entry WHERE id = ANY(%s::bigint[]))
"""
_ARRIVED: Final = "(lane, seq) IN (SELECT lane, seq FROM oncegate_ack)"
_ERASE_CHANGES: Final = """
UPDATE oncegate_mutation
SET before = CASE WHEN before IS NOT NULL THEN %s::bytea END,
    after = CASE WHEN after IS NOT NULL THEN %s::bytea END
WHERE entry = ANY(%s::bigint[]) RETURNING entry
"""
_ERASE_COPIES: Final = (
    f"UPDATE oncegate_feed SET body = %s WHERE {_CAUSED} RETURNING id",
    f"UPDATE oncegate_delivery SET payload = %s WHERE {_CAUSED} AND {_ARRIVED} RETURNING seq",
)
_ERASE_NOTE: Final = """
UPDATE oncegate_log SET note = %s WHERE xact = %s::text::xid8 AND position = %s RETURNING position
"""


class PostgresSealing:
    """Bodies, erase."""

    _names: Names

    def _query(self, sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def _begin(self) -> None:
        raise NotImplementedError

    def bodies(self, entries: Sequence[int]) -> list[EntryBodies]:
        """Reads the bodies of entries."""
        rows = self._query(_BODIES, (list(entries),))
        texts = self._names.texts(row[1] for row in rows)
        return [
            EntryBodies(entry, texts[surface], at, _bytes(body), _bytes(outcome))
            for entry, surface, at, body, outcome in rows
        ]

    def erase(self, wanted: Erasure) -> list[int]:
        """Removes what final entries hold."""
        self._begin()
        rows = self._query(_FINAL, (list(wanted.entries),))
        done = [entry for entry, month in rows if self._erase_one(entry, month, wanted)]
        if done and wanted.note is not None:
            self._query(_ERASE_CHANGES, (ERASED_VALUE, ERASED_VALUE, done))
            for sql in _ERASE_COPIES:
                self._query(sql, (ERASED_COPY, done))
        for position, note in wanted.notes:
            _, xact, number = parted(position)
            self._query(_ERASE_NOTE, (note, xact, number))
        return done

    def _erase_one(self, entry: int, month: int, wanted: Erasure) -> bool:
        removed = self._query(_ERASE_PAYLOAD, (month, entry))
        removed += self._query(_ERASE_OUTCOME, (wanted.outcome, month, entry, wanted.outcome))
        removed += self._query(_ERASE_LABEL, (ERASED_LABEL, entry, ERASED_LABEL))
        if removed:
            for sql in _BESIDE:
                self._query(sql, (entry,))
            if wanted.note is not None:
                actor = self._names.learn({wanted.actor})[wanted.actor]
                self._query(statements.LOG, (entry, LogKind.ERASED.value, wanted.at_ms, actor, wanted.note))
        return bool(removed)


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)
