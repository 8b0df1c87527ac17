"""Reservation and end in one transaction: what only others would need in between is never written.

Mixed into the session, for same-database handlers. No reader sees the entry before the transaction commits:
it needs no lease, which would be written and removed again. What does not go that way, another end than a
good one or a commit without an end, gets it after all. Must never let an entry be committed in flight
without its lease.
"""

from __future__ import annotations

from typing import Any, Final

from psycopg.types.numeric import Int8

from oncegate.model.states import State
from oncegate.store import Reservation, Reserved, Settlement
from oncegate.stores.postgres.arrays import text_value
from oncegate.stores.postgres.names import Names
from oncegate.stores.postgres.placeholders import to_numbered
from oncegate.stores.postgres.statement_generators import new_entry
from oncegate.stores.postgres.statements import TICKS
from oncegate.stores.postgres.wire import WireCommand

RESERVE: Final = f"""
INSERT INTO oncegate_entry
    (id, fence, received_at, surface, tenant, attempt, state, key, fingerprint, label, token)
SELECT number, number, %s::bigint, %s::int, %s::int, 1, 1, %s::bytea, %s::bytea, %s::text, %s::bigint
FROM nextval('oncegate_number') AS number
ON CONFLICT (key) DO NOTHING
RETURNING id, coalesce(%s::bigint, {TICKS})
"""

# Divides by zero where the fence was lost, as every end does that has COMMIT behind it.
END: Final = """
WITH ended AS (
    UPDATE oncegate_entry SET state = %s::smallint, settled_at = %s::bigint, reason = %s::text
    WHERE id = %s::bigint AND fence = %s::bigint AND token = %s::bigint AND state = 1
    RETURNING id, received_at, state, settled_at, reason
),
stored AS (
    INSERT INTO oncegate_payload (month, entry, body)
    SELECT oncegate_month(received_at), id, %s::bytea FROM ended
),
kept AS (
    INSERT INTO oncegate_outcome (month, entry, body)
    SELECT oncegate_month(received_at), id, %s::bytea FROM ended
),
logged AS (
    INSERT INTO oncegate_log (entry, kind, at, actor, note)
    SELECT id, state, settled_at, %s::int, reason FROM ended
)
SELECT 1 / count(*) FROM ended
"""

# Only where the entry is there: who ended the transaction may have undone it.
_OPEN: Final = f"""
WITH opened AS (
    INSERT INTO oncegate_open (entry, state, lease_until, first_reserved, declared)
    SELECT id, 1, now + %s::bigint, now, %s::int
    FROM oncegate_entry, (SELECT coalesce(%s::bigint, {TICKS}) AS now) AS clock
    WHERE id = %s::bigint AND state = 1
    RETURNING entry
)
INSERT INTO oncegate_payload (month, entry, body)
SELECT oncegate_month(%s::bigint), entry, %s::bytea FROM opened
"""


class PostgresFusing:
    """One reservation that is to end in the transaction it began in."""

    _names: Names
    _in_transaction: bool
    _fused: tuple[int, Reservation] | None = None

    def _query(self, sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def _ticks(self) -> int | None:
        raise NotImplementedError

    def _may_fuse(self, item: Reservation) -> bool:
        is_plain = item.parked[0] is State.IN_FLIGHT and item.content is None
        return item.ends_here and is_plain and self._in_transaction and self._fused is None

    def _insert_fused(self, item: Reservation) -> dict[bytes, Reserved]:
        names = self._names.learn({item.actor, item.surface, item.tenant})
        rows = self._query(
            RESERVE,
            (
                Int8(item.received_at_ms),
                Int8(names[item.surface]),
                Int8(names[item.tenant]),
                item.key,
                item.fingerprint,
                text_value(item.label),
                Int8(item.token),
                self._ticks(),
            ),
        )
        if not rows:
            return {}
        number, now = rows[0]
        self._fused = (number, item)
        return {item.key: new_entry(item, number, now)}

    def _end_fused(self, item: Settlement) -> WireCommand | None:
        """The statement that ends a fused reservation well; None if this is no such end."""
        fused = self._fused
        if fused is None or fused[0] != item.entry_id:
            return None
        values = (
            item.state.value,
            Int8(item.at_ms),
            text_value(item.reason),
            Int8(item.entry_id),
            Int8(item.fence),
            Int8(item.token),
            fused[1].body,
            item.outcome,
            Int8(self._names.learn({item.actor})[item.actor]),
        )
        self._fused = None
        return WireCommand(to_numbered(END), values)

    def _unfuse(self) -> None:
        """Writes the lease and the payload of a reservation that goes on by itself."""
        fused, self._fused = self._fused, None
        if fused is not None:
            number, item = fused
            declared = self._names.maybe(item.declared)
            lease = (Int8(item.lease_ms), declared, self._ticks(), Int8(number))
            self._query(_OPEN, (*lease, Int8(item.received_at_ms), item.body))
