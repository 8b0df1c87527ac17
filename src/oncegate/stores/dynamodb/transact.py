"""Users' own DynamoDB writes and the end of a claim, in one TransactWriteItems.

The transaction's token is made of claim and request: the service carries the same one out once. A condition
of the user's that does not hold undoes all of it and is reported as theirs; the claim's own means it was
lost.
"""

from __future__ import annotations

import uuid
from typing import Any

from oncegate.errors import StoreRejected
from oncegate.store import Settlement
from oncegate.stores.dynamodb.changes import Change
from oncegate.stores.dynamodb.client import TableClient
from oncegate.stores.dynamodb.failures import TransactionRefused


def settle_with(client: TableClient, change: Change, item: Settlement) -> bool:
    """Ends a claim together with the user's items; False writes nothing: the claim is not held."""
    items: list[dict[str, Any]] = [one for _, (one,) in item.writes]
    _check_tables(items, client)
    request = f"{item.fence}:{item.token}:{change.sets[('z',)]['N']}"
    token = str(uuid.uuid5(uuid.NAMESPACE_OID, request))
    try:
        client.write(
            "transact_write_items",
            TransactItems=[{"Update": change.update(client.table)}, *items],
            ClientRequestToken=token,
            ReturnConsumedCapacity="INDEXES",
        )
    except TransactionRefused as refused:
        return _refused(change, refused, items)
    return True


def _refused(change: Change, refused: TransactionRefused, items: list[dict[str, Any]]) -> bool:
    own, *theirs = refused.reasons or [{}]
    if own.get("Code") == "ConditionalCheckFailed":
        return change.was_ours(own.get("Item"))
    told = [
        f"item {place} ({next(iter(items[place]))}): {reason.get('Code')}: {reason.get('Message')}"
        for place, reason in enumerate(theirs)
        if reason.get("Code") not in (None, "None")
    ]
    if own.get("Code") not in (None, "None"):
        told.append(f"the claim: {own.get('Code')}: {own.get('Message', '')}")
    raise StoreRejected(f"the transaction was undone: {'; '.join(told)[:300]}")


def _check_tables(items: list[dict[str, Any]], client: TableClient) -> None:
    if any(arguments.get("TableName") == client.table for one in items for arguments in one.values()):
        raise StoreRejected(
            f"transact= writes to {client.table}, the ledger's own table; keep your items in another one"
        )
