"""Enqueueing in a user's own transaction on PostgreSQL, as a row of statements (see `scripts.py`)."""

from __future__ import annotations

from typing import Final

from oncegate.errors import StoreBusy
from oncegate.store import Outgoing, Placed
from oncegate.stores.postgres import lane_statements
from oncegate.stores.postgres.join_statements import _HERE, _one
from oncegate.stores.postgres.lanes import ENQUEUE_TRIES_MAX, FULL, PLACINGS, plain
from oncegate.stores.postgres.statement_generators import Facts, Script, _check_same, _on_ledger
from oncegate.stores.postgres.statements import replaced


def _enqueue() -> str:
    sql = replaced(_one(lane_statements.ENQUEUE), "WITH", _HERE)
    sql = replaced(
        sql, "FROM wanted WHERE place NOT IN", "FROM wanted WHERE (SELECT same FROM here) AND place NOT IN"
    )
    head, _, _ = sql.partition("SELECT place::int, lane, seq")
    # An error would end the user's transaction: here a lost race is told, and put right by GIVE_BACK.
    return f"""{head}
SELECT here.same, place::int, lane, seq, CASE WHEN known.same THEN 1 ELSE 2 END, true FROM known, here
UNION ALL
SELECT here.same, place::int, id, last_seq - amount + nth, 0, EXISTS (SELECT 1 FROM stored)
FROM fresh JOIN sized USING (destination, tenant, key), here
UNION ALL
SELECT same, 0, 0, 0, 0, false FROM here WHERE NOT same
"""


ENQUEUE: Final = _enqueue()


def enqueue(facts: Facts, event: Outgoing) -> Script[Placed]:
    """Puts an event at the end of its lane; one that somebody else commits meanwhile is known then."""
    for _ in range(ENQUEUE_TRIES_MAX):
        rows = yield from _on_ledger(
            ENQUEUE,
            (
                facts.ledger_id,
                facts.now(),
                facts.number(event.destination),
                facts.number(event.tenant),
                plain(event.key),
                plain(event.event_id),
                facts.number(event.type),
                event.created_at_ms,
                event.fingerprint,
                event.context,
                event.payload,
                event.backlog_max,
            ),
        )
        if not rows:
            return FULL
        ((same, _, lane, seq, how, kept),) = rows
        _check_same(same)
        if kept:
            return Placed(PLACINGS[how], lane, seq)
        yield lane_statements.GIVE_BACK, (lane,)
    raise StoreBusy("the same event is being published elsewhere; try again")
