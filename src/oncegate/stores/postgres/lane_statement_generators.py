"""Enqueueing in a user's own transaction on PostgreSQL, as statements (see `statement_generators.py`)."""

from __future__ import annotations

from oncegate.errors import StoreBusy
from oncegate.store import Outgoing, Placed
from oncegate.stores.postgres import lane_statements
from oncegate.stores.postgres.join_statements import ENQUEUE
from oncegate.stores.postgres.lanes import ENQUEUE_TRIES_MAX, FULL, PLACINGS, plain
from oncegate.stores.postgres.statement_generators import Facts, Script, _check_same, _on_ledger


def enqueue(facts: Facts, event: Outgoing) -> Script[Placed]:
    """Puts an event at the end of its lane; one that another process commits meanwhile is known then."""
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
