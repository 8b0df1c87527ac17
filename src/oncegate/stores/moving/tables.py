"""Which rows of a SQLite ledger become which rows of a PostgreSQL ledger.

Times of the ledger are moved by the difference of both ledgers' clocks. So a claim in flight, or a lane
that is leased, keeps its lease, which no process can renew: recovery takes it up. Must never pass over a
table or column that it does not know: `unmoved` finds those.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from msgspec import Struct

Values = tuple[Any, ...]


class Clocks(Struct, frozen=True):
    """The new ledger's time when the move began, and how far it is ahead of the old one's."""

    now: int
    ahead: int

    def moved(self, ticks: int | None) -> int | None:
        """A time of the old ledger in the new one's."""
        return None if ticks is None else max(0, ticks + self.ahead)


class MovedTable(Struct, frozen=True):
    """A table of the new ledger. `select` gives the old rows in a fixed order, `convert` the new ones."""

    name: str
    columns: tuple[str, ...]
    select: str
    convert: Callable[[Values, Clocks], Values] | None = None

    def rows(self, found: list[Values], clocks: Clocks) -> list[Values]:
        """Old rows as new ones."""
        made = found if self.convert is None else [self.convert(row, clocks) for row in found]
        return [tuple(_plain(value) for value in row) for row in made]


def _plain(value: Any) -> Any:
    """U+0000 is not text in PostgreSQL and is made visible, as the store does."""
    return value.replace("\0", "\u2400") if isinstance(value, str) else value


def _month(at_ms: int) -> int:
    found = datetime.fromtimestamp(at_ms // 1000, UTC)
    return found.year * 100 + found.month


def _with_month(row: Values, clocks: Clocks) -> Values:
    entry, body, received_at = row
    return _month(received_at), entry, body


def _open(row: Values, clocks: Clocks) -> Values:
    entry, state, attempt, lease, reserved, declared, retry_at, interruptions, tried_from = row
    until, first = clocks.moved(lease), clocks.moved(reserved)
    if first is None:
        first = clocks.now if attempt else -1
    moved = (clocks.moved(retry_at), interruptions, clocks.moved(tried_from))
    return entry, state, clocks.now if until is None else until, first, declared or None, *moved


def _flag(place: int) -> Callable[[Values, Clocks], Values]:
    def convert(row: Values, clocks: Clocks) -> Values:
        return (*row[:place], bool(row[place]), *row[place + 1 :])

    return convert


def _ticks(*places: int) -> Callable[[Values, Clocks], Values]:
    def convert(row: Values, clocks: Clocks) -> Values:
        return tuple(clocks.moved(value) if place in places else value for place, value in enumerate(row))

    return convert


def _as_is(
    table: str, columns: str, order: str, convert: Callable[[Values, Clocks], Values] | None = None
) -> MovedTable:
    select = f"SELECT {columns} FROM oncegate_{table} ORDER BY {order}"
    return MovedTable(f"oncegate_{table}", tuple(columns.split(", ")), select, convert)


_COLUMNS: Final = (
    "SELECT made.name, info.name FROM sqlite_master AS made, pragma_table_xinfo(made.name) AS info"
    " WHERE made.type = 'table' AND made.name LIKE 'oncegate_%'"
)
_LANE: Final = "SELECT id, last_seq, destination, tenant, CASE state WHEN 1 THEN 1 ELSE 0 END, key"
_ACK: Final = (
    "SELECT lane, seq, at, fence, attempts, note FROM oncegate_ack"
    " JOIN oncegate_delivery ON oncegate_delivery.id = delivery ORDER BY delivery"
)
_ORDER: Final = (
    "id, nonce, lane, seq_from, seq_to, at, deliveries, lanes, taken_back, cancelled_at, destination,"
    " tenant, only_dead, actor, reason, cancelled_by, cancelled_why, since, until, type"
)
TABLES: Final = (
    _as_is("name", "id, text, unused_since", "id", _ticks(2)),
    _as_is(
        "entry",
        "id, fence, received_at, settled_at, surface, tenant, attempt, state, key, fingerprint, label,"
        " reason, token",
        "id",
    ),
    MovedTable(
        "oncegate_open",
        (
            "entry",
            "state",
            "lease_until",
            "first_reserved",
            "declared",
            "retry_at",
            "interruptions",
            "tried_from",
        ),
        "SELECT id, state, attempt, lease_until, first_reserved, declared, retry_at, interruptions,"
        " tried_from FROM oncegate_entry WHERE state NOT IN (2, 3) ORDER BY id",
        _open,
    ),
    *(
        MovedTable(
            f"oncegate_{table}",
            ("month", "entry", "body"),
            f"SELECT entry, body, received_at FROM oncegate_{table}"
            " JOIN oncegate_entry ON id = entry ORDER BY entry",
            _with_month,
        )
        for table in ("payload", "outcome")
    ),
    _as_is(
        "step",
        "entry, name, state, downstream, result, resource, started_at, declared, last_call, first_call",
        "entry, name",
        _ticks(8, 9),
    ),
    _as_is("position", "lane, seq, missed, at", "lane"),
    _as_is("trace", "entry, trace, context", "entry"),
    _as_is("log", "position, entry, kind, at, actor, note", "position"),
    _as_is("feed_tenant", "tenant, last, floor", "tenant"),
    _as_is("feed_key", "tenant, seq, key", "tenant, key"),
    _as_is(
        "feed",
        "position, seq, at, tenant, event_id, key, fingerprint, body, context",
        "tenant, position",
    ),
    _as_is("feed_reader", "tenant, position, at, reader", "tenant, reader"),
    _as_is("destination", "id, not_before, since, state, reason", "id", _ticks(1)),
    MovedTable(
        "oncegate_lane",
        ("id", "last_seq", "destination", "tenant", "idle", "key"),
        f"{_LANE} FROM oncegate_lane ORDER BY id",
    ),
    MovedTable(
        "oncegate_head",
        ("lane", "seq", "replay", "due_at", "fence", "holder", "destination", "attempt", "state", "error"),
        "SELECT id, seq, replay, due_at, fence, holder, destination, attempt, state, error"
        " FROM oncegate_lane ORDER BY id",
        _ticks(3),
    ),
    _as_is(
        "delivery",
        "lane, seq, created_at, destination, type, event, fingerprint, context, payload",
        "id",
    ),
    MovedTable("oncegate_ack", ("lane", "seq", "at", "fence", "attempts", "note"), _ACK),
    _as_is("dead_letter", "lane, seq, at, fence, attempts, error", "lane, seq"),
    _as_is("attempt", "lane, seq, fence, at, took, status, error", "lane, seq, fence"),
    _as_is("replay", "lane, seq, nonce", "lane, seq"),
    _as_is("replay_order", _ORDER, "id", _flag(12)),
    _as_is("content", "entry, hash, target, compensation", "entry"),
    _as_is(
        "duplicate",
        "entry, other, flagged_at, undecided, dismissed_at, dismissed_by, note",
        "entry",
        _flag(3),
    ),
    _as_is(
        "target",
        "about, entry, resource, until, before_entry, before_resource, before_until",
        "about",
    ),
    _as_is(
        "second",
        "id, about, target, step, place, entry, resource, other, other_resource, found_at, dismissed_at,"
        " dismissed_by, note",
        "id",
    ),
    _as_is("mutation", "number, entry, name, target, nth, before, after, done, at", "number"),
    _as_is("tally", "minute, surface, what, count, total", "minute, surface, what"),
    _as_is("repeat", "entry, class, first_at, last_at, times, evidence", "entry, class"),
    _as_is("seen", "surface, content, entry, at, shared_by", "surface, content"),
    _as_is("seen_repeat", "surface, at, entry, first_at, fresh", "surface, at, entry"),
    _as_is("document", "kind, name, version, body, changed_at", "kind, name"),
    _as_is(
        "notice", "kind, name, writer, body, told_at, posted, until", "kind, name, writer", _ticks(5, 6)
    ),
)
# Tables of the old ledger that the new one needs no rows of: `oncegate_lasting` is an index of claims.
LEFT_OUT: Final = frozenset({"oncegate_meta", "oncegate_lasting"})
# Columns that the new ledger does not have: it finds the record of an entry by an index of the log, and its
# time has a table of its own (a SQLite ledger takes its time from the latest `touched_at`).
LEFT_OUT_COLUMNS: Final = frozenset({"oncegate_entry.record", "oncegate_lane.touched_at"})
# Columns of the new ledger that count on from the highest number.
COUNTED: Final = {
    "oncegate_name": "id",
    "oncegate_lane": "id",
    "oncegate_log": "position",
    "oncegate_replay_order": "id",
    "oncegate_second": "id",
    "oncegate_mutation": "number",
}


def unmoved(old: sqlite3.Connection) -> list[str]:
    """Tables and columns of a ledger that no select reads and that are not left out on purpose."""
    read: set[str] = set()

    def note(action: int, table: str | None, column: str | None, *_: str | None) -> int:
        if action == sqlite3.SQLITE_READ:
            read.add(f"{table}.{column}")
        return sqlite3.SQLITE_OK

    old.set_authorizer(note)
    for one in TABLES:
        old.execute(f"EXPLAIN {one.select}").close()
    old.set_authorizer(None)
    tables = {one.name for one in TABLES}
    found = []
    for table, column in old.execute(_COLUMNS).fetchall():
        if table not in tables | LEFT_OUT:
            found.append(table)
        elif table in tables and f"{table}.{column}" not in read | LEFT_OUT_COLUMNS:
            found.append(f"{table}.{column}")
    return sorted(set(found))
