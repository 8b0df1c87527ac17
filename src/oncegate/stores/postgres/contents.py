"""Marks of content and pairs of equal ones on PostgreSQL. Mixed into the session.

Marks are walked in the order of (era, transaction, entry), up to the oldest transaction that still runs;
"before" means before in that order, so that of two equal marks the one seen later always finds the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Final

from oncegate.model.content import WINDOW
from oncegate.model.states import State
from oncegate.store import (
    ContentPage,
    Dismissal,
    Doubled,
    Duplicate,
    Entry,
    Flag,
    Flagged,
    LogKind,
    Pair,
    Unscanned,
)
from oncegate.stores.postgres import statements
from oncegate.stores.postgres.arrays import bigint_array
from oncegate.stores.postgres.eras import READ, Eras, eras_of, joined, parted
from oncegate.stores.postgres.names import Names
from oncegate.stores.postgres.scanning import OLDEST_TRANSACTION
from oncegate.stores.shared.duplicates import note_for, reason_for

_RUNNING: Final = "AND xact < pg_snapshot_xmin(pg_current_snapshot())"
_EARLIER: Final = """(
        SELECT equal.entry, before.received_at FROM oncegate_content AS equal
        JOIN oncegate_entry AS before ON before.id = equal.entry AND before.state <> 3
        WHERE equal.hash = content.hash AND {where}
        ORDER BY {order} LIMIT 1
    )"""
_LATEST: Final = "equal.xact DESC, equal.entry DESC"
_IN_THIS: Final = "(equal.xact, equal.entry) < (content.xact, content.entry)"
_NEXT: Final = """
SELECT content.xact::text::numeric, content.entry, earlier.entry, later.state,
       abs(later.received_at - earlier.received_at)
FROM (
    SELECT xact, entry, hash FROM oncegate_content
    WHERE (xact, entry) > (%s::text::xid8, %s) {{within}}
    ORDER BY xact, entry LIMIT %s
) AS content
LEFT JOIN LATERAL {earlier} AS earlier ON true
LEFT JOIN oncegate_entry AS later ON later.id = content.entry
ORDER BY content.xact, content.entry
"""
_NEXT_OF_ONE: Final = _NEXT.format(earlier=_EARLIER.format(where=_IN_THIS, order=_LATEST))
# An equal mark of this era, or of one before it.
_SAME_ERA: Final = _EARLIER.format(where=f"{_IN_THIS} AND {{this}}", order=_LATEST)
_ERAS_BEFORE: Final = _EARLIER.format(where="equal.entry <= {begin}", order="equal.entry DESC")
_NEXT_OF_MANY: Final = _NEXT.format(
    earlier=f"""(
    SELECT entry, received_at FROM (
        SELECT 1 AS rank, * FROM {_SAME_ERA} AS same
        UNION ALL
        SELECT 2 AS rank, * FROM {_ERAS_BEFORE} AS others
    ) AS either ORDER BY rank LIMIT 1
    )"""
)
# Also what may not be looked at yet: then the last column is true.
_UNSCANNED: Final = """
SELECT entry.received_at, content.xact >= pg_snapshot_xmin(pg_current_snapshot())
FROM oncegate_content AS content JOIN oncegate_entry AS entry ON entry.id = content.entry
WHERE (content.xact, content.entry) > (%s::text::xid8, %s) AND content.entry > %s AND content.entry <= %s
ORDER BY content.xact, content.entry LIMIT 1
"""
_FLAG: Final = """
INSERT INTO oncegate_duplicate (entry, other, flagged_at, undecided) VALUES (%s, %s, %s, true)
ON CONFLICT (entry) DO NOTHING RETURNING 1
"""
_UNDECIDED: Final = (
    "SELECT 1 FROM oncegate_duplicate WHERE entry = %s AND other = %s AND undecided FOR UPDATE"
)
_DECIDE: Final = "UPDATE oncegate_duplicate SET undecided = %s WHERE entry = %s"
_STATE: Final = "SELECT state, reason FROM oncegate_entry WHERE id = %s FOR UPDATE"
_STOP: Final = """
WITH stopped AS (
    UPDATE oncegate_entry SET state = 7, settled_at = %s, reason = %s, token = NULL
    WHERE id = %s AND state IN (4, 6) RETURNING id
),
waiting AS (UPDATE oncegate_open SET state = 7 FROM stopped WHERE entry = id)
SELECT 1 FROM stopped
"""
_SCANNED: Final = "SELECT value FROM oncegate_meta WHERE name = 'scanned'"
_NOTE_SCANNED: Final = """
INSERT INTO oncegate_meta (name, value) VALUES ('scanned', %s)
ON CONFLICT (name) DO UPDATE
SET value = greatest(oncegate_meta.value::numeric, excluded.value::numeric)::text
"""
_OPEN_PAIRS: Final = "SELECT entry, other FROM oncegate_duplicate WHERE undecided ORDER BY entry LIMIT %s"
_WINDOW_MS: Final = WINDOW // timedelta(milliseconds=1)
# By number or by transaction: across a restored dump only the first tells what came before.
_RAN_WITH: Final = f"""
SELECT equal.entry FROM oncegate_content AS mine
JOIN oncegate_content AS equal ON equal.hash = mine.hash AND (
    equal.entry < mine.entry OR (equal.xact, equal.entry) < (mine.xact, mine.entry)
)
JOIN oncegate_entry AS ran ON ran.id = equal.entry AND ran.state = 2
WHERE mine.entry = pair.entry
  AND (equal.entry = pair.other OR abs(ran.received_at - later.received_at) <= {_WINDOW_MS})
ORDER BY equal.entry DESC LIMIT 1
"""
_PAIRS: Final = f"""
SELECT pair.entry, pair.other, coalesce(content.target, ''), content.compensation, pair.flagged_at,
       pair.dismissed_at, pair.dismissed_by, pair.note,
       CASE WHEN later.id IS NOT NULL THEN ({_RAN_WITH}) END
FROM oncegate_duplicate AS pair LEFT JOIN oncegate_content AS content ON content.entry = pair.entry
LEFT JOIN oncegate_entry AS later ON later.id = pair.entry AND later.state = 2
WHERE """
_LIST: Final = (
    f"{_PAIRS} pair.entry < %s AND (%s OR pair.dismissed_at IS NULL) ORDER BY pair.entry DESC LIMIT %s"
)
# Both ran, or not asked for; of a surface, or of all. Each is looked up for open pairs only.
_OPEN: Final = f"""{_PAIRS} pair.dismissed_at IS NULL AND pair.entry > %s
AND (NOT %s::boolean OR (later.id IS NOT NULL AND ({_RAN_WITH}) IS NOT NULL))
AND (%s::text IS NULL OR %s = (SELECT name.text FROM oncegate_entry AS half
                      JOIN oncegate_name AS name ON name.id = half.surface WHERE half.id = pair.entry))
ORDER BY pair.entry LIMIT %s"""
_OPEN_NUMBERS: Final = """
SELECT entry, other FROM oncegate_duplicate WHERE dismissed_at IS NULL AND entry > %s
ORDER BY entry LIMIT %s
"""
_DISMISS: Final = """
UPDATE oncegate_duplicate SET dismissed_at = %s, dismissed_by = %s, note = %s, undecided = false
WHERE entry = %s AND dismissed_at IS NULL RETURNING 1
"""
_DOUBLED: Final = f"""
SELECT name.text, count(*), min(pair.flagged_at)
FROM oncegate_duplicate AS pair
CROSS JOIN LATERAL (SELECT * FROM oncegate_entry AS one WHERE one.id = pair.entry OFFSET 0) AS later
JOIN oncegate_name AS name ON name.id = later.surface
WHERE pair.dismissed_at IS NULL AND later.state = 2 AND ({_RAN_WITH}) IS NOT NULL
GROUP BY name.text ORDER BY name.text
"""
_LAST: Final = 2**63 - 1


class PostgresContents:
    """Contents after, scanned, flag, undecided, duplicates, open duplicates, dismiss."""

    _names: Names

    def _query(self, sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def _begin(self) -> None:
        raise NotImplementedError

    def _entries(self, rows: list[tuple[Any, ...]]) -> list[Entry]:
        raise NotImplementedError

    def contents_after(self, position: int, limit: int, window_ms: int) -> ContentPage:
        """Looks at the next marks, never beyond what may still commit."""
        eras = eras_of(self._query(READ, ()))
        era, xact, entry = parted(position)
        rows = self._marks_after(eras, era, xact, entry, limit)
        while len(rows) < limit and era < eras.last:
            era += 1
            rows += self._marks_after(eras, era, "0", 0, limit - len(rows))
        pairs = tuple(
            Pair(entry, earlier)
            for _, entry, earlier, state, apart in rows
            if earlier is not None and state not in (None, State.FAILED.value) and apart <= window_ms
        )
        last = joined(eras.era_of_mark(rows[-1][1]), *rows[-1][:2]) if rows else position
        return ContentPage(pairs, len(rows), last)

    def _marks_after(
        self, eras: Eras, era: int, xact: str, entry: int, limit: int
    ) -> list[tuple[Any, ...]]:
        if not eras.last:
            return self._query(_NEXT_OF_ONE.format(within=_RUNNING), (xact, entry, limit))
        begin, end = eras.marks(era)
        within = f"AND entry > {begin} AND entry <= {end} {_RUNNING if era == eras.last else ''}"
        this = f"equal.entry > {begin} AND equal.entry <= {end}"
        sql = _NEXT_OF_MANY.format(within=within, this=this, begin=begin)
        return self._query(sql, (xact, entry, limit))

    def scanned(self) -> int:
        """Where the last scan stopped."""
        rows = self._query(_SCANNED, ())
        return int(rows[0][0]) if rows else 0

    def unscanned(self) -> Unscanned | None:
        """The next mark to look at, and whose transaction is in the way."""
        eras = eras_of(self._query(READ, ()))
        era, xact, entry = parted(self.scanned())
        while not (rows := self._query(_UNSCANNED, (xact, entry, *eras.marks(era)))):
            if era >= eras.last:
                return None
            era, xact, entry = era + 1, "0", 0
        received_at, is_held = rows[0]
        if not is_held or era < eras.last:
            return Unscanned(received_at)
        oldest = self._query(OLDEST_TRANSACTION, ())
        return Unscanned(
            received_at, oldest[0][0] if oldest else "a transaction that this role may not see"
        )

    def note_scanned(self, position: int) -> None:
        """Keeps where a scan stopped."""
        self._query(_NOTE_SCANNED, (str(position),))

    def flag(self, flags: Sequence[Flag]) -> list[Flagged]:
        """Flags pairs one by one, in the order of their entries: two scans lock alike."""
        self._begin()
        answers = {item.entry_id: self._flag(item) for item in sorted(flags, key=lambda i: i.entry_id)}
        return [answers[item.entry_id] for item in flags]

    def _flag(self, item: Flag) -> Flagged:
        is_new = bool(self._query(_FLAG, (item.entry_id, item.other_id, item.at_ms)))
        if is_new:
            self._note_content(item.entry_id, LogKind.DUPLICATE, item, note_for(item.other_id))
            self._note_content(item.other_id, LogKind.DUPLICATE, item, note_for(item.entry_id))
        elif not self._query(_UNDECIDED, (item.entry_id, item.other_id)):
            return Flagged(is_new=False)
        members = sorted(((item.entry_id, item.other_id), (item.other_id, item.entry_id)))
        states = [self._stop(entry, other, item) for entry, other in members]
        self._query(_DECIDE, (State.IN_FLIGHT in states, item.entry_id))
        stopped = tuple(
            entry for (entry, _), state in zip(members, states, strict=True) if state is State.QUARANTINED
        )
        return Flagged(is_new, stopped)

    def _stop(self, entry: int, other: int, item: Flag) -> State | None:
        """Stops an entry if it may still run: QUARANTINED if so, IN_FLIGHT if that is why not."""
        rows = self._query(_STATE, (entry,))
        if not rows:
            return None
        state, reason = State(rows[0][0]), reason_for(other, State(rows[0][0]).label, rows[0][1])
        if not self._query(_STOP, (item.at_ms, reason, entry)):
            return state if state is State.IN_FLIGHT else None
        self._note_content(entry, LogKind.QUARANTINED, item, reason)
        return State.QUARANTINED

    def _note_content(self, entry: int, kind: LogKind, item: Flag | Dismissal, note: str) -> None:
        actor = self._names.learn({item.actor})[item.actor]
        self._query(statements.LOG, (entry, kind.value, item.at_ms, actor, note))

    def undecided(self, limit: int) -> list[Pair]:
        """Pairs that had an entry in flight."""
        return [Pair(entry, other) for entry, other in self._query(_OPEN_PAIRS, (limit,))]

    def duplicates(self, before_id: int | None, limit: int, *, dismissed: bool) -> list[Duplicate]:
        """Lists pairs, newest first."""
        return self._duplicates(self._query(_LIST, (before_id or _LAST, dismissed, limit)))

    def open_duplicates(
        self, after_id: int, limit: int, *, ran: bool = False, surface: str | None = None
    ) -> list[Duplicate]:
        """Lists pairs that wait for a person, oldest first."""
        return self._duplicates(self._query(_OPEN, (after_id, ran, surface, surface, limit)))

    def open_pairs(self, after_id: int, limit: int) -> list[Pair]:
        """The numbers of pairs that wait for a person."""
        return [Pair(*row) for row in self._query(_OPEN_NUMBERS, (after_id, limit))]

    def _duplicates(self, rows: list[tuple[Any, ...]]) -> list[Duplicate]:
        entries = self._numbered({number for row in rows for number in (*row[:2], row[8]) if number})
        texts = self._names.texts(row[6] for row in rows if row[6] is not None)
        return [_duplicate(row, entries, texts) for row in rows]

    def _numbered(self, numbers: Iterable[int]) -> dict[int, Entry]:
        sql = f"{statements.ENTRY} WHERE entry.id = ANY(%s)"
        found = self._entries(self._query(sql, (bigint_array(sorted(numbers)),)))
        return {entry.entry_id: entry for entry in found}

    def doubled(self) -> list[Doubled]:
        """Counts open pairs whose change ran twice."""
        return [Doubled(*row) for row in self._query(_DOUBLED, ())]

    def dismiss(self, dismissal: Dismissal) -> bool:
        """Notes a person's word."""
        self._begin()
        actor = self._names.learn({dismissal.actor})[dismissal.actor]
        row = (dismissal.at_ms, actor, dismissal.note, dismissal.entry_id)
        if not self._query(_DISMISS, row):
            return False
        self._note_content(dismissal.entry_id, LogKind.DISMISSED, dismissal, dismissal.note)
        return True


def _duplicate(row: tuple[Any, ...], entries: dict[int, Entry], texts: dict[int, str]) -> Duplicate:
    entry, other, target, compensation, flagged_at, dismissed_at, by, note, ran = row
    return Duplicate(
        Pair(entry, other), entries.get(entry), entries.get(other), target, compensation, flagged_at,
        dismissed_at, None if by is None else texts[by], note, entries.get(ran),
    )  # fmt: skip
