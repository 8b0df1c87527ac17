"""New keys on the embedded ledger: their rows, and what is kept of their events.

The insert itself decides which keys are new. Must never read a key before it, and never leave an entry
without its event.

Statements that every event passes say NULL in their text and are given bytes as bytearray: for any value
that is not exactly an int, a float, a str or a bytearray, sqlite3 looks for an adapter, and that takes four
times as long as binding it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from oncegate.store import Reservation
from oncegate.stores.sqlite.names import Names
from oncegate.stores.sqlite.open_entries import is_listed_at, list_lasting

_LAST_NUMBER: Final = (
    "SELECT max(coalesce((SELECT max(id) FROM oncegate_entry), 0),"
    " (SELECT value FROM oncegate_meta WHERE name = 'floor'))"
)
_INSERT: Final = (
    "INSERT INTO oncegate_entry (key, surface, tenant, state, attempt, fingerprint, label, received_at,"
    " lease_until, first_reserved, token, declared, id, fence)"
    " VALUES (?1, ?2, ?3, 1, 1, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?11)"
    " ON CONFLICT (key) DO NOTHING"
)
_INSERT_NEXT: Final = (
    "INSERT INTO oncegate_entry (key, surface, tenant, state, attempt, fingerprint, label, received_at,"
    " lease_until, first_reserved, token, declared, id, fence)"
    " VALUES (?1, ?2, ?3, 1, 1, ?4, ?5, ?6, ?7, ?8, ?9, ?10,"
    f" ({_LAST_NUMBER}) + 1, ({_LAST_NUMBER}) + 1) ON CONFLICT (key) DO NOTHING"
)
_INSERT_ANY: Final = (
    "INSERT INTO oncegate_entry (key, surface, tenant, state, attempt, fingerprint, label, received_at,"
    " settled_at, lease_until, first_reserved, token, reason, declared, id, fence)"
    " VALUES (?1, ?2, ?3, ?4, ?4 = 1, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?14)"
    " ON CONFLICT (key) DO NOTHING"
)
_INSERT_ANY_NEXT: Final = (
    "INSERT INTO oncegate_entry (key, surface, tenant, state, attempt, fingerprint, label, received_at,"
    " settled_at, lease_until, first_reserved, token, reason, declared, id, fence)"
    " VALUES (?1, ?2, ?3, ?4, ?4 = 1, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13,"
    f" ({_LAST_NUMBER}) + 1, ({_LAST_NUMBER}) + 1) ON CONFLICT (key) DO NOTHING"
)
_INSERTED: Final = "SELECT id FROM oncegate_entry WHERE id BETWEEN ? AND ?"
_PAYLOAD: Final = "INSERT INTO oncegate_payload (entry, body) VALUES (?, ?)"
_CONTENT: Final = "INSERT INTO oncegate_content (entry, hash, target, compensation) VALUES (?, ?, ?, ?)"


def next_number(connection: sqlite3.Connection) -> int:
    """The number of the next entry: none is ever given twice, also of those that were pruned."""
    (last,) = connection.execute(_LAST_NUMBER).fetchone()
    return int(last) + 1


def insert_one(cursor: sqlite3.Cursor, names: Names, item: Reservation, now: int) -> int:
    """Inserts a key under the next number and returns that; 0 if the key is known."""
    if item.quarantine is None and item.hold is None:
        inserted = cursor.execute(_INSERT_NEXT, _running_row(names, item, now))
    else:
        inserted = cursor.execute(_INSERT_ANY_NEXT, _any_row(names, item, now))
    number = inserted.lastrowid
    if inserted.rowcount == 0 or number is None:
        return 0
    if is_listed_at(number - 1, number):
        list_lasting(cursor, number)
    cursor.execute(_PAYLOAD, (number, bytearray(item.body)))
    if item.content is not None:
        _keep_marks(cursor, [(number, item)])
    return number


def insert_all(
    connection: sqlite3.Connection, names: Names, wanted: Sequence[Reservation], first: int, now: int
) -> range | set[int]:
    """Inserts keys under the numbers from `first` on, in one sweep; returns the numbers of the new ones."""
    inserted = _insert_rows(connection, names, wanted, first, now)
    if inserted and is_listed_at(first - 1, max(inserted)):
        list_lasting(connection, first)
    new = [(number, item) for number, item in enumerate(wanted, first) if number in inserted]
    connection.executemany(_PAYLOAD, [(number, bytearray(item.body)) for number, item in new])
    _keep_marks(connection, new)
    return inserted


def _insert_rows(
    connection: sqlite3.Connection, names: Names, wanted: Sequence[Reservation], first: int, now: int
) -> range | set[int]:
    if all(item.quarantine is None and item.hold is None for item in wanted):
        cursor = connection.executemany(_INSERT, _running_rows(names, wanted, first, now))
    else:
        rows = [(*_any_row(names, item, now), number) for number, item in enumerate(wanted, first)]
        cursor = connection.executemany(_INSERT_ANY, rows)
    if cursor.rowcount == len(wanted):
        return range(first, first + len(wanted))
    if cursor.rowcount == 0:
        return set()
    found = connection.execute(_INSERTED, (first, first + len(wanted) - 1))
    return {number for (number,) in found}


def _running_rows(
    names: Names, wanted: Sequence[Reservation], first: int, now: int
) -> list[tuple[Any, ...]]:
    """The rows of a batch that is simply run, as nearly every one is; without a call for each."""
    used = {item.surface for item in wanted} | {item.tenant for item in wanted}
    numbers = {name: names.number(name) for name in used}
    declared = {text: 0 if text is None else names.number(text) for text in {i.declared for i in wanted}}
    return [
        (
            bytearray(i.key), numbers[i.surface], numbers[i.tenant], bytearray(i.fingerprint), i.label,
            i.received_at_ms, now + i.lease_ms, now, i.token, declared[i.declared], number,
        )
        for number, i in enumerate(wanted, first)
    ]  # fmt: skip


def _running_row(names: Names, i: Reservation, now: int) -> tuple[Any, ...]:
    number, known = names.number, names.known.get
    declared = 0 if i.declared is None else known(i.declared) or number(i.declared)
    return (
        bytearray(i.key), known(i.surface) or number(i.surface), known(i.tenant) or number(i.tenant),
        bytearray(i.fingerprint), i.label, i.received_at_ms, now + i.lease_ms, now, i.token, declared,
    )  # fmt: skip


def _any_row(names: Names, item: Reservation, now: int) -> tuple[Any, ...]:
    head = (item.key, names.number(item.surface), names.number(item.tenant))
    tail = (item.fingerprint, item.label, item.received_at_ms)
    if item.runs:
        declared = None if item.declared is None else names.number(item.declared)
        return (*head, 1, *tail, None, now + item.lease_ms, now, item.token, None, declared)
    state, reason = item.parked
    return (*head, state.value, *tail, item.received_at_ms, None, None, None, reason, None)


def _keep_marks(at: sqlite3.Connection | sqlite3.Cursor, new: Sequence[tuple[int, Reservation]]) -> None:
    marks = [
        (number, item.content.hash, item.content.target, item.content.compensation)
        for number, item in new
        if item.content is not None
    ]
    if marks:
        at.executemany(_CONTENT, marks)
