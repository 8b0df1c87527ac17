"""Finds entries that are not final, by the sparse index: for people, and for `oncegate doctor`.

The index holds keys only, spread over shards, in the order of the minute of their reservation. It may lag:
a caller that acts on an entry reads the entry itself.
"""

from __future__ import annotations

from typing import Any

from oncegate.stores.dynamodb.client import TableClient
from oncegate.stores.dynamodb.items import INDEX, SHARDS, number


def find_open(client: TableClient, limit: int) -> list[bytes]:
    """Keys of open entries, the oldest first, `limit` at most."""
    found: list[tuple[int, bytes]] = []
    for shard in range(SHARDS):
        answer = client.read(
            "query",
            TableName=client.table,
            IndexName=INDEX,
            KeyConditionExpression="o = :shard",
            ExpressionAttributeValues={":shard": number(shard)},
            Limit=limit,
        )
        found += [_place(item) for item in answer.get("Items", ())]
    return [key for _, key in sorted(found)[:limit]]


def _place(item: dict[str, Any]) -> tuple[int, bytes]:
    return int(item["r"]["N"]), bytes(item["k"]["B"])
