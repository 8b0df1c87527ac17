"""Statements about traces that both ledgers understand, with `?` for parameters.

`{ack}` is how an acknowledgement is joined, `{lanes}` how lanes are, `{head}` where a lane's head stands,
`{which}` what is looked for.
"""

from __future__ import annotations

from typing import Any, Final

from oncegate.store import TracedDelivery, TracedPublication

LINK: Final = "INSERT INTO oncegate_trace (entry, trace, context) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
LINK_OF: Final = "SELECT entry, trace, context FROM oncegate_trace WHERE entry = ?"
# One tenant's rows, or everybody's.
_OF_TENANT: Final = (
    " (CAST(? AS text) IS NULL OR {tenant} = (SELECT id FROM oncegate_name WHERE text = CAST(? AS text)))"
)
# Each tenant's first row, then each tenant's second: a limit behind it is shared, and pushes nobody out.
_FAIRLY: Final = " ORDER BY row_number() OVER (PARTITION BY {tenant} ORDER BY {order}), {order} LIMIT ?"
_LINKED: Final = (
    "SELECT link.entry FROM (SELECT entry FROM oncegate_trace WHERE trace = ? {apart}) AS link {entries}"
    " WHERE"
    + _OF_TENANT.format(tenant="entry.tenant")
    + _FAIRLY.format(tenant="entry.tenant", order="link.entry")
)
SQLITE_LINKED: Final = _LINKED.format(
    apart="", entries="LEFT JOIN oncegate_entry AS entry ON entry.id = link.entry"
)
POSTGRES_LINKED: Final = _LINKED.format(
    apart="OFFSET 0",
    entries="LEFT JOIN LATERAL"
    " (SELECT tenant FROM oncegate_entry AS one WHERE one.id = link.entry OFFSET 0) AS entry ON true",
).replace("?", "%s")

# The deliveries are found first, along an index and no more than wanted; the rest is looked up for these.
_DELIVERY: Final = (
    "SELECT past.lane, past.seq, destination.text, tenant.text, lane.key, past.event, kind.text,"
    " past.created_at, past.context, {head}.seq, ack.at, coalesce(ack.attempts, dead.attempts, 0),"
    " coalesce(dead.error, ack.note), dead.seq IS NOT NULL"
    " FROM (SELECT sent.* FROM oncegate_delivery AS sent {{which}}) AS past {lanes}"
    " JOIN oncegate_name AS destination ON destination.id = past.destination"
    " JOIN oncegate_name AS tenant ON tenant.id = lane.tenant"
    " JOIN oncegate_name AS kind ON kind.id = past.type"
    " LEFT JOIN oncegate_ack AS ack ON {ack}"
    " LEFT JOIN oncegate_dead_letter AS dead ON dead.lane = past.lane AND dead.seq = past.seq"
    " ORDER BY past.created_at, past.lane, past.seq"
)
_SQLITE: Final = _DELIVERY.format(
    head="lane", lanes="JOIN oncegate_lane AS lane ON lane.id = past.lane", ack="ack.delivery = past.id"
)
_POSTGRES: Final = _DELIVERY.format(
    head="head",
    lanes="CROSS JOIN LATERAL"
    " (SELECT * FROM oncegate_lane AS one WHERE one.id = past.lane OFFSET 0) AS lane CROSS JOIN LATERAL"
    " (SELECT * FROM oncegate_head AS one WHERE one.lane = past.lane OFFSET 0) AS head",
    ack="ack.lane = past.lane AND ack.seq = past.seq",
)
# As the index has it: a context that begins with {"trace_id":"
_SQLITE_TRACE: Final = (
    "substr(sent.context, 14, 32) = ? AND substr(sent.context, 1, 13) = x'7b2274726163655f6964223a22'"
)
_POSTGRES_TRACE: Final = (
    "substring(sent.context FROM 14 FOR 32) = ?"
    " AND substring(sent.context FROM 1 FOR 13) = '\\x7b2274726163655f6964223a22'::bytea"
)
_ORDER: Final = "sent.created_at, sent.lane, sent.seq"
_SHARED: Final = (
    " AND" + _OF_TENANT.format(tenant="owner.tenant") + _FAIRLY.format(tenant="owner.tenant", order=_ORDER)
)
SQLITE_TRACED: Final = _SQLITE.format(
    which=f"JOIN oncegate_lane AS owner ON owner.id = sent.lane WHERE {_SQLITE_TRACE}{_SHARED}"
)
POSTGRES_TRACED: Final = _POSTGRES.format(
    which="CROSS JOIN LATERAL"
    " (SELECT tenant FROM oncegate_lane AS one WHERE one.id = sent.lane OFFSET 0) AS owner"
    f" WHERE {_POSTGRES_TRACE}{_SHARED}"
).replace("?", "%s")
# By way of the destinations, because that is what the index of event ids begins with; from one to the next.
_NAMED: Final = (
    "WHERE"
    " sent.destination IN (WITH RECURSIVE named (number) AS (SELECT min(destination) FROM oncegate_lane"
    " UNION ALL SELECT (SELECT min(destination) FROM oncegate_lane WHERE destination > number) FROM named"
    " WHERE number IS NOT NULL) SELECT number FROM named WHERE number IS NOT NULL) AND sent.event = ?"
    f" ORDER BY {_ORDER} LIMIT ?"
)
SQLITE_NAMED: Final = _SQLITE.format(which=_NAMED)
POSTGRES_NAMED: Final = _POSTGRES.format(which=_NAMED).replace("?", "%s")


_PUBLISHED: Final = (
    "SELECT tenant.text, past.key, past.seq, past.event_id, past.at, past.context"
    " FROM (SELECT * FROM oncegate_feed AS sent WHERE {which}) AS past"
    " JOIN oncegate_name AS tenant ON tenant.id = past.tenant"
    " ORDER BY past.at, past.tenant, past.seq"
)
# By way of the tenants, because that is what the index of published ids begins with; from one to the next.
_BY_TENANT: Final = (
    "sent.tenant IN (WITH RECURSIVE named (number) AS (SELECT min(tenant) FROM oncegate_feed_key"
    " UNION ALL SELECT (SELECT min(tenant) FROM oncegate_feed_key WHERE tenant > number) FROM named"
    " WHERE number IS NOT NULL) SELECT number FROM named WHERE number IS NOT NULL) AND sent.event_id = ?"
    " ORDER BY sent.at, sent.tenant, sent.seq LIMIT ?"
)
_IN_FEEDS: Final = (
    " AND"
    + _OF_TENANT.format(tenant="sent.tenant")
    + _FAIRLY.format(tenant="sent.tenant", order="sent.at, sent.tenant, sent.seq")
)
SQLITE_PUBLISHED: Final = _PUBLISHED.format(which=_SQLITE_TRACE + _IN_FEEDS)
POSTGRES_PUBLISHED: Final = _PUBLISHED.format(which=_POSTGRES_TRACE + _IN_FEEDS).replace("?", "%s")
PUBLISHED_AS: Final = _PUBLISHED.format(which=_BY_TENANT)


def published_of(row: tuple[Any, ...]) -> TracedPublication:
    """A row as a value."""
    tenant, key, seq, event_id, at_ms, context = row
    return TracedPublication(tenant, key, seq, event_id, at_ms, bytes(context or b""))


def traced_of(row: tuple[Any, ...]) -> TracedDelivery:
    """A row as a value."""
    lane, seq, destination, tenant, key, event, kind, created, context, head, at, attempts, note, dead = row
    return TracedDelivery(
        lane, seq, destination, tenant, key, event, kind, created, bytes(context), head, at, attempts, note,
        bool(dead),
    )  # fmt: skip
