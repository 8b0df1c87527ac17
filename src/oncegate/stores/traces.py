"""Statements about traces that both ledgers understand, with `?` for parameters.

`{ack}` is how an acknowledgement is joined, `{head}` where a lane's head stands, `{bytes}` how a text is
compared with the bytes of a context.
"""

from __future__ import annotations

from typing import Any, Final

from oncegate.store import TracedDelivery

LINK: Final = "INSERT INTO oncegate_trace (entry, trace, context) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
LINK_OF: Final = "SELECT entry, trace, context FROM oncegate_trace WHERE entry = ?"
LINKED: Final = "SELECT entry FROM oncegate_trace WHERE trace = ? ORDER BY entry LIMIT ?"

_DELIVERY: Final = (
    "SELECT past.lane, past.seq, destination.text, tenant.text, lane.key, past.event, kind.text,"
    " past.created_at, past.context, {head}.seq, ack.at, coalesce(ack.attempts, dead.attempts, 0),"
    " coalesce(dead.error, ack.note), dead.seq IS NOT NULL"
    " FROM oncegate_delivery AS past JOIN oncegate_lane AS lane ON lane.id = past.lane {join}"
    " JOIN oncegate_name AS destination ON destination.id = past.destination"
    " JOIN oncegate_name AS tenant ON tenant.id = lane.tenant"
    " JOIN oncegate_name AS kind ON kind.id = past.type"
    " LEFT JOIN oncegate_ack AS ack ON {ack}"
    " LEFT JOIN oncegate_dead_letter AS dead ON dead.lane = past.lane AND dead.seq = past.seq"
)
_ORDER: Final = " ORDER BY past.created_at, past.lane, past.seq LIMIT ?"
_SQLITE: Final = _DELIVERY.format(head="lane", join="", ack="ack.delivery = past.id")
_POSTGRES: Final = _DELIVERY.format(
    head="head",
    join="JOIN oncegate_head AS head ON head.lane = past.lane",
    ack="ack.lane = past.lane AND ack.seq = past.seq",
)
# As the index has it: a context that begins with {"trace_id":"
SQLITE_TRACED: Final = (
    f"{_SQLITE} WHERE substr(past.context, 14, 32) = ?"
    f" AND substr(past.context, 1, 13) = x'7b2274726163655f6964223a22'{_ORDER}"
)
POSTGRES_TRACED: Final = (
    f"{_POSTGRES} WHERE substring(past.context FROM 14 FOR 32) = %s"
    f" AND substring(past.context FROM 1 FOR 13) = '\\x7b2274726163655f6964223a22'::bytea{_ORDER}"
).replace("?", "%s")
# By way of the destinations, because that is what the index of event ids begins with.
_NAMED: Final = (
    " WHERE past.destination IN (SELECT DISTINCT destination FROM oncegate_lane) AND past.event = ?"
)
SQLITE_NAMED: Final = f"{_SQLITE}{_NAMED}{_ORDER}"
POSTGRES_NAMED: Final = f"{_POSTGRES}{_NAMED}{_ORDER}".replace("?", "%s")


def traced_of(row: tuple[Any, ...]) -> TracedDelivery:
    """A row as a value."""
    lane, seq, destination, tenant, key, event, kind, created, context, head, at, attempts, note, dead = row
    return TracedDelivery(
        lane, seq, destination, tenant, key, event, kind, created, bytes(context), head, at, attempts, note,
        bool(dead),
    )  # fmt: skip
