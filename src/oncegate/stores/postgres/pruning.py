"""Forgetting on PostgreSQL. Mixed into the session.

Entries are numbered about in order of arrival, so the walk follows the primary key and needs no index by
time. Locked rows are left for the next time, so that two pruners never wait for each other.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any, Final

from oncegate.model.retention import Sighting, believe
from oncegate.store import EVERY_TENANT, Due, Forgetting, LogKind, Tenants, UnusedNames
from oncegate.stores.postgres import statements
from oncegate.stores.postgres.arrays import bigint_array
from oncegate.stores.postgres.names import Names
from oncegate.stores.shared.retention import (
    IS_REFUSED,
    SEEN_STATE,
    judge_rows,
    note_of,
    read_sighting,
    write_sighting,
)
from oncegate.stores.shared.unused_names import UNUSED_MS, USES

_NEXT: Final = f"""
SELECT id, surface, {SEEN_STATE}, received_at, coalesce(settled_at, received_at), tenant
FROM oncegate_entry
WHERE id > %s ORDER BY id LIMIT %s
"""
_FORGET: Final = f"""
WITH due AS MATERIALIZED (
    SELECT id FROM oncegate_entry
    WHERE id = ANY(%s) AND surface = %s AND received_at < %s
      AND coalesce(settled_at, received_at) < %s
      AND (tenant = ANY(%s)) <> %s::boolean
      AND (state IN (2, 3) OR (%s::boolean AND {IS_REFUSED}))
    ORDER BY id FOR UPDATE SKIP LOCKED
)
DELETE FROM oncegate_entry AS entry USING due WHERE entry.id = due.id
RETURNING oncegate_month(entry.received_at), entry.id
"""
_BODIES: Final = (
    "DELETE FROM oncegate_payload WHERE month = %s AND entry = ANY(%s)",
    "DELETE FROM oncegate_outcome WHERE month = %s AND entry = ANY(%s)",
)
_REPEATS: Final = "DELETE FROM oncegate_repeat WHERE entry = ANY(%s)"
_MARKS: Final = (
    "DELETE FROM oncegate_trace WHERE entry = ANY(%s)",
    "DELETE FROM oncegate_content WHERE entry = ANY(%s)",
    "DELETE FROM oncegate_duplicate WHERE entry = ANY(%s)",
    "DELETE FROM oncegate_second WHERE entry = ANY(%s)",
)
# Made first, so that two pruners on a new ledger wait for each other instead of both finding none.
_FIRST_SIGHT: Final = (
    "INSERT INTO oncegate_meta (name, value) VALUES ('sighting', '') ON CONFLICT (name) DO NOTHING"
)
_SEEN: Final = "SELECT value FROM oncegate_meta WHERE name = 'sighting' FOR UPDATE"
_REFERENCES: Final = f"""
SELECT coalesce(%s::bigint, {statements.TICKS}),
       (SELECT received_at FROM oncegate_entry ORDER BY id DESC LIMIT 1)
"""
_SEE: Final = "UPDATE oncegate_meta SET value = %s WHERE name = 'sighting'"
_USES: Final = (*USES, ("open", "declared"), ("head", "destination"))
_UNUSED: Final = f"""
SELECT id, unused_since, unused_xact < pg_snapshot_xmin(pg_current_snapshot()) FROM oncegate_name AS name
LEFT JOIN ({" UNION ALL ".join(f"SELECT DISTINCT {c} AS used FROM oncegate_{t}" for t, c in _USES)}) AS uses
       ON used = id
WHERE (SELECT count(*) FROM (SELECT 1 FROM oncegate_name LIMIT %s) AS counted) > %s AND used IS NULL
ORDER BY id LIMIT %s
"""
_MARK: Final = "UPDATE oncegate_name SET unused_since = %s WHERE id = ANY(%s) AND unused_since IS NULL"
_WAIT: Final = (
    "UPDATE oncegate_name SET unused_xact = pg_current_xact_id()"
    " WHERE id = ANY(%s) AND unused_since <= %s AND unused_xact IS NULL"
)
_REMOVE: Final = "DELETE FROM oncegate_name WHERE id = ANY(%s) AND unused_xact IS NOT NULL RETURNING id"


class PostgresPruning:
    """Due, forget, sight, unused names."""

    _names: Names

    def _query(self, sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def _begin(self) -> None:
        raise NotImplementedError

    def _ticks(self) -> int | None:
        raise NotImplementedError

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
        rows: list[Any] = self._query(_NEXT, (after_id, limit))
        number = self._names.find(surface)
        return judge_rows(
            rows,
            number,
            before_ms,
            now_ms,
            after_id=after_id,
            limit=limit,
            refused=refused,
            tenants=self._numbers(tenants),
            others=tenants.others,
        )

    def _numbers(self, tenants: Tenants) -> list[int]:
        """The numbers of tenants that were ever written."""
        found = (self._names.find(name) for name in tenants.names)
        return [number for number in found if number is not None]

    def forget(self, wanted: Forgetting) -> int:
        """Removes entries with all that belongs to them."""
        surface, before = self._names.find(wanted.surface), wanted.before_ms
        if surface is None or not wanted.entries:
            return 0
        self._begin()
        ids = bigint_array(sorted(set(wanted.entries)))
        tenants = bigint_array(self._numbers(wanted.tenants))
        asked = (ids, surface, before, before, tenants, wanted.tenants.others, wanted.refused)
        removed = sorted(self._query(_FORGET, asked))
        if not removed:
            return 0
        for month, rows in groupby(removed, key=lambda row: row[0]):
            gone = bigint_array([entry for _, entry in rows])
            for sql in _BODIES:
                self._query(sql, (month, gone))
        gone = bigint_array([entry for _, entry in removed])
        for sql in (statements.CLEAR_STEPS, _REPEATS, *_MARKS):
            self._query(sql, (gone,))
        self._note(wanted, len(removed))
        return len(removed)

    def _note(self, wanted: Forgetting, removed: int) -> None:
        actor = self._names.learn({wanted.actor})[wanted.actor]
        row = (0, LogKind.FORGOTTEN.value, wanted.at_ms, actor, note_of(wanted, removed))
        self._query(statements.LOG, row)

    def sight(self, wall_ms: int, *, is_certain: bool = False) -> Sighting:
        """Notes the wall time beside the server's."""
        self._begin()
        self._query(_FIRST_SIGHT, ())
        ((text,),) = self._query(_SEEN, ())
        # The server's own clock: the ledger's time stands still while nobody keeps it.
        ((clock,),) = self._query(statements.SERVER_CLOCK, (self._ticks(),))
        ((ledger, newest),) = self._query(_REFERENCES, (self._ticks(),))
        last = read_sighting(text)
        seen = (
            Sighting(wall_ms, clock, None, ledger)
            if is_certain
            else believe(last, wall_ms, clock, ledger_ms=ledger, newest_ms=newest)
        )
        self._query(_SEE, (write_sighting(seen),))
        return seen

    def unused_names(self, kept: int, limit: int) -> UnusedNames:
        """Reads every table that uses names, once.

        A name waits until caches have expired, and then until every transaction has ended that may have
        used its number before.
        """
        self._query(statements.AS_USUAL_HERE, ())
        rows = self._query(_UNUSED, (kept + 1, kept, limit))
        before = self._now() - UNUSED_MS
        fresh = tuple(number for number, since, _ in rows if since is None)
        old = [
            (number, has_ended)
            for number, since, has_ended in rows
            if since is not None and since <= before
        ]
        waiting = tuple(number for number, has_ended in old if has_ended is None)
        return UnusedNames(fresh, waiting, tuple(number for number, has_ended in old if has_ended))

    def drop_names(self, found: UnusedNames) -> int:
        """Marks and removes by number; a process that looked a name up meanwhile has removed its mark."""
        self._begin()
        now = self._now()
        self._query(_MARK, (now, list(found.fresh)))
        self._query(_WAIT, (list(found.waiting), now - UNUSED_MS))
        removed = len(self._query(_REMOVE, (list(found.due),)))
        self._names.forget()
        return removed

    def _now(self) -> int:
        ((now,),) = self._query(statements.NOW, (self._ticks(),))
        return int(now)
