"""Publishing on PostgreSQL as statements (`statement_generators.py`): in a session or a user's transaction.

The key's row is locked first and until the end of the transaction. So events of one key get their seq, and
their `id`, in the order of commits, and a seq that is undone is given out again.
"""

from __future__ import annotations

from typing import Final

from oncegate.errors import StoreBusy
from oncegate.store.feed import EventToPublish, Published, Publishing
from oncegate.stores.postgres.statement_generators import Facts, Script, _check_same, _on_ledger
from oncegate.stores.shared.publishing import judged

PUBLISH_ROUNDS_MAX: Final = 5  # a lost round means that the other publication of the same id was undone

_SAME: Final = "SELECT value = %s FROM oncegate_meta WHERE name = 'ledger_id'"
_LOCK: Final = """
INSERT INTO oncegate_feed_key AS known (tenant, key, seq) VALUES (%s, %s, 0)
ON CONFLICT (tenant, key) DO UPDATE SET seq = known.seq RETURNING seq
"""
_ADD: Final = """
WITH added AS (
    INSERT INTO oncegate_feed (seq, at, tenant, event_id, key, fingerprint, body, context)
    VALUES (%s, %s, %s, %s, %s, %s, %s, nullif(%s, ''::bytea))
    ON CONFLICT (tenant, event_id) DO NOTHING
    RETURNING tenant, key, seq
)
UPDATE oncegate_feed_key AS known SET seq = added.seq FROM added
WHERE known.tenant = added.tenant AND known.key = added.key
RETURNING known.seq
"""
FIND: Final = "SELECT fingerprint, seq FROM oncegate_feed WHERE tenant = %s AND event_id = %s"


def publish(tenant: int, item: EventToPublish) -> Script[Published]:
    """Adds an event unless its id is known. The row lost to is visible to the next statement only."""
    for _ in range(PUBLISH_ROUNDS_MAX):
        known = yield FIND, (tenant, item.event_id)
        if known:
            return judged(item, bytes(known[0][0]), known[0][1])
        ((seq,),) = yield _LOCK, (tenant, item.key)
        where = (seq + 1, item.at_ms, tenant, item.event_id, item.key)
        added = yield _ADD, (*where, item.fingerprint, item.body, item.context)
        if added:
            return Published(Publishing.NEW, seq + 1)
    raise StoreBusy("the same event is being published elsewhere; try again")


def publish_joined(facts: Facts, item: EventToPublish) -> Script[Published]:
    """Adds an event in a user's transaction."""
    ((same,),) = (yield from _on_ledger(_SAME, (facts.ledger_id,))) or [(False,)]
    _check_same(same)
    return (yield from publish(facts.number(item.tenant), item))
