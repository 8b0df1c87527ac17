"""The feed on the embedded ledger. Mixed into the session; must be called inside the open unit."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, Final

from oncegate.store.feed import (
    Acked,
    EventToPublish,
    FeedAck,
    FeedEvent,
    FeedPage,
    FeedWanted,
    Published,
    Publishing,
    ReaderPosition,
)
from oncegate.stores.shared.publishing import judged, oldest_prefix
from oncegate.stores.sqlite.names import Names

# Written first in every case: it takes the lock, so that nothing read after it can be out of date.
_TENANT: Final = (
    "INSERT INTO oncegate_feed_tenant (tenant, last) VALUES (?, 0)"
    " ON CONFLICT (tenant) DO UPDATE SET last = last RETURNING last"
)
_FIND: Final = "SELECT fingerprint, seq FROM oncegate_feed WHERE tenant = ? AND event_id = ?"
_EVENT: Final = (
    "SELECT position, event_id, key, seq, body, at, coalesce(context, x'') FROM oncegate_feed"
    " WHERE tenant = ? AND event_id = ?"
)
_SEQ: Final = (
    "INSERT INTO oncegate_feed_key (tenant, key, seq) VALUES (?, ?, 1)"
    " ON CONFLICT (tenant, key) DO UPDATE SET seq = seq + 1 RETURNING seq"
)
_ADD: Final = (
    "INSERT INTO oncegate_feed (tenant, position, seq, at, event_id, key, fingerprint, body, context)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_ENDS: Final = "SELECT floor, last FROM oncegate_feed_tenant WHERE tenant = ?"
_STANDS: Final = "SELECT position FROM oncegate_feed_reader WHERE tenant = ? AND reader = ?"
_AFTER: Final = (
    "SELECT position, event_id, key, seq, body, at, coalesce(context, x'') FROM oncegate_feed"
    " WHERE tenant = ? AND position > ? ORDER BY position LIMIT ?"
)
_ACK: Final = (
    "INSERT INTO oncegate_feed_reader (tenant, reader, position, at)"
    " SELECT tenant, ?, ?, ? FROM oncegate_feed_tenant WHERE tenant = ? AND last >= ?"
    " ON CONFLICT (tenant, reader) DO UPDATE SET position = excluded.position, at = excluded.at"
    " WHERE excluded.position > position"
)
_POSITIONS: Final = (
    "SELECT reader.tenant, reader.reader, reader.position, reader.at, ends.last"
    " - max(reader.position, ends.floor),"
    " (SELECT at FROM oncegate_feed AS event WHERE event.tenant = reader.tenant"
    " AND event.position > reader.position ORDER BY event.position LIMIT 1)"
    " FROM oncegate_feed_reader AS reader JOIN oncegate_feed_tenant AS ends ON ends.tenant = reader.tenant"
)
_OLDEST: Final = (
    "SELECT position, at FROM oncegate_feed WHERE tenant = ? AND position > ? ORDER BY position LIMIT ?"
)


class SqliteFeed:
    """Publishing, reading, acknowledging."""

    _connection: sqlite3.Connection
    _names: Names

    def publish(self, wanted: Sequence[EventToPublish]) -> list[Published]:
        """Adds events; the position is the order of writing, which is the order of commits."""
        return [self._publish(item) for item in wanted]

    def _publish(self, item: EventToPublish) -> Published:
        run, tenant = self._connection.execute, self._names.number(item.tenant)
        ((last,),) = run(_TENANT, (tenant,)).fetchall()
        known = run(_FIND, (tenant, item.event_id)).fetchone()
        if known is not None:
            return judged(item, bytes(known[0]), known[1])
        ((seq,),) = run(_SEQ, (tenant, item.key)).fetchall()
        where = (tenant, last + 1, seq, item.at_ms, item.event_id, item.key)
        run(_ADD, (*where, item.fingerprint, item.body, item.context or None))
        run("UPDATE oncegate_feed_tenant SET last = ? WHERE tenant = ?", (last + 1, tenant))
        return Published(Publishing.NEW, seq)

    def read_feed(self, wanted: FeedWanted) -> FeedPage:
        """Reads events after a position, or after what the reader has acknowledged."""
        run, tenant = self._connection.execute, self._names.find(wanted.tenant) or -1
        floor, last = run(_ENDS, (tenant,)).fetchone() or (0, 0)
        after = wanted.after
        if after is None:
            ((after,),) = run(_STANDS, (tenant, wanted.reader)).fetchall() or [(0,)]
        with closing(run(_AFTER, (tenant, after, wanted.limit))) as rows:
            events = tuple(_within(rows, wanted.bytes_max))
        return FeedPage(after, events, floor, last)

    def ack_feed(self, acks: Sequence[FeedAck]) -> list[Acked]:
        """Moves readers forward."""
        return [self._ack(ack) for ack in acks]

    def _ack(self, ack: FeedAck) -> Acked:
        run, tenant = self._connection.execute, self._names.number(ack.tenant)
        wanted = (ack.reader, ack.position, ack.at_ms, tenant, ack.position)
        moved = run(_ACK, wanted).rowcount == 1
        ((position,),) = run(_STANDS, (tenant, ack.reader)).fetchall() or [(0,)]
        return Acked(position, moved)

    def find_published(self, tenant: str, event_id: str) -> tuple[bytes, int] | None:
        """Reads an event's fingerprint and seq."""
        number = self._names.find(tenant) or -1
        row = self._connection.execute(_FIND, (number, event_id)).fetchone()
        return None if row is None else (bytes(row[0]), row[1])

    def published_event(self, tenant: str, event_id: str) -> FeedEvent | None:
        """Reads one event by its id."""
        number = self._names.find(tenant) or -1
        row = self._connection.execute(_EVENT, (number, event_id)).fetchone()
        return None if row is None else FeedEvent(*row)

    def reader_positions(self, tenant: str | None = None) -> list[ReaderPosition]:
        """Tells where readers stand."""
        where, parameters = ("", ()) if tenant is None else (" WHERE reader.tenant = ?", (tenant,))
        numbers = tuple(self._names.find(name) or -1 for name in parameters)
        rows = self._connection.execute(f"{_POSITIONS}{where} ORDER BY 1, 2", numbers).fetchall()
        return [ReaderPosition(self._names.text(row[0]), *row[1:]) for row in rows]

    def forget_published(self, before_ms: int, limit: int) -> int:
        """Removes the oldest events of every feed."""
        tenants = self._connection.execute("SELECT tenant, floor FROM oncegate_feed_tenant").fetchall()
        return sum(self._forget(tenant, floor, before_ms, limit) for tenant, floor in tenants)

    def _forget(self, tenant: int, floor: int, before_ms: int, limit: int) -> int:
        run = self._connection.execute
        up_to = oldest_prefix(run(_OLDEST, (tenant, floor, limit)).fetchall(), before_ms)
        if up_to is None:
            return 0
        run("UPDATE oncegate_feed_tenant SET floor = ? WHERE tenant = ?", (up_to, tenant))
        return run("DELETE FROM oncegate_feed WHERE tenant = ? AND position <= ?", (tenant, up_to)).rowcount

    def feed_secret(self) -> bytes:
        """The secret that was made with the ledger."""
        ((secret,),) = self._connection.execute(
            "SELECT value FROM oncegate_meta WHERE name = 'feed_secret'"
        ).fetchall()
        return str(secret).encode()


def _within(rows: Iterable[tuple[Any, ...]], bytes_max: int) -> Iterator[FeedEvent]:
    """The first event, and those after it while their bodies are small enough; rows are read one by one."""
    left = bytes_max
    for place, row in enumerate(rows):
        event = FeedEvent(*row)
        left -= len(event.body)
        if left < 0 and place:
            return
        yield event
