"""Second resources of keys and targets on PostgreSQL. Mixed into the session, with changes of objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from oncegate.store import (
    EntryDetail,
    LateResource,
    LogKind,
    ResourceDismissal,
    ResourceSeen,
    SecondCount,
    SecondResource,
)
from oncegate.stores.postgres import statements
from oncegate.stores.postgres.mutations import PostgresMutations
from oncegate.stores.postgres.names import Names
from oncegate.stores.shared.second_resources import (
    COUNT,
    READ,
    counts_of,
    late_note,
    second_note,
    second_of,
    word_kind,
)

_SEE: Final = """
INSERT INTO oncegate_target AS known (about, entry, resource, until) VALUES (%s, %s, %s, %s)
ON CONFLICT (about) DO UPDATE SET
    before_entry = CASE WHEN known.resource <> excluded.resource THEN known.entry END,
    before_resource = known.resource, before_until = known.until,
    entry = excluded.entry, resource = excluded.resource, until = greatest(known.until, excluded.until)
RETURNING before_entry, before_resource, before_until
"""
# Of two resources one is the second: the same two the other way round are no further finding.
_FIND: Final = """
INSERT INTO oncegate_second (about, target, step, place, entry, resource, other, other_resource, found_at)
SELECT new.about, target, step, place, id, new.resource, other, new.other_resource, found_at
FROM oncegate_entry,
     (SELECT %s::bytea, %s::text, %s::text, %s::text, %s::text, %s::bigint, %s::text, %s::bigint)
     AS new (about, target, step, place, resource, other, other_resource, found_at)
WHERE id = %s AND NOT EXISTS (
    SELECT 1 FROM oncegate_second AS known
    WHERE (known.about, known.resource, known.other_resource)
        = (new.about, new.other_resource, new.resource)
)
ON CONFLICT (about, resource) DO NOTHING RETURNING 1
"""
_READ: Final = READ.format(place="%s")
_DISMISS: Final = """
UPDATE oncegate_second SET dismissed_at = %s, dismissed_by = %s, note = %s
WHERE id = %s AND dismissed_at IS NULL RETURNING entry
"""
_TRIM: Final = """
DELETE FROM oncegate_target WHERE about IN (
    SELECT about FROM oncegate_target WHERE until < %s ORDER BY about LIMIT %s FOR UPDATE SKIP LOCKED
) RETURNING 1
"""


class PostgresResources(PostgresMutations):
    """Note late ones, read, dismiss, trim."""

    _names: Names

    def _query(self, sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def _begin(self) -> None:
        raise NotImplementedError

    def detail(self, entry_id: int) -> EntryDetail | None:
        """One entry; the census knows it."""
        raise NotImplementedError

    def _see_resources(self, seen: Sequence[ResourceSeen]) -> None:
        """Keeps each target's latest resource, and finds those that had another one."""
        for one in seen:
            row = (one.about, one.entry_id, one.resource, one.until_ms)
            before, resource, until = self._query(_SEE, row)[0]
            if before is None or before == one.entry_id or until < one.at_ms:
                continue
            found = (one.about, one.target, "", one.place, one.resource, before, resource, one.at_ms)
            if self._query(_FIND, (*found, one.entry_id)):
                self._note_resource(one.entry_id, one, second_note(one, resource, before))
                self._note_resource(before, one, second_note(one, one.resource, one.entry_id))

    def note_late(self, late: Sequence[LateResource]) -> list[bool]:
        """Records what late workers brought back."""
        self._begin()
        return [self._note_late(one) for one in late]

    def _note_late(self, one: LateResource) -> bool:
        found = (one.about, "", one.step, one.place, one.resource, one.entry_id, None, one.at_ms)
        if not self._query(_FIND, (*found, one.entry_id)):
            return False
        self._note_resource(one.entry_id, one, late_note(one))
        return True

    def _note_resource(self, entry: int, one: ResourceSeen | LateResource, note: str) -> None:
        actor = self._names.learn({one.actor})[one.actor]
        self._query(statements.LOG, (entry, LogKind.SECOND_RESOURCE.value, one.at_ms, actor, note))

    def second_resources(self, after: int, limit: int) -> list[SecondResource]:
        """Reads open findings."""
        return [second_of(row, self.detail) for row in self._query(_READ, (after, limit))]

    def second_counts(self) -> list[SecondCount]:
        """Counts open findings."""
        return counts_of(self._query(COUNT, ()))

    def dismiss_resource(self, dismissal: ResourceDismissal) -> bool:
        """Notes a person's word."""
        self._begin()
        item, actor = dismissal, self._names.learn({dismissal.actor})[dismissal.actor]
        at_ms = item.at_ms if item.closes else None
        rows = self._query(_DISMISS, (at_ms, actor, item.note, item.number))
        for (entry,) in rows:
            record = (entry, word_kind(item).value, item.at_ms, actor, item.note)
            self._query(statements.LOG, record)
        return bool(rows)

    def trim_targets(self, before_ms: int, limit: int) -> int:
        """Forgets targets whose time is over."""
        self._begin()
        return len(self._query(_TRIM, (before_ms, limit)))
