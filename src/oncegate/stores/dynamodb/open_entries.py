"""Open entries of the table: found by the sparse index, read as they are now, decided about.

The index holds keys only, spread over shards, in the order of the minute of their reservation. It may lag:
an entry that is listed is read itself, consistently. What waits for a person has shards of its own, so
that recovery does not pay for reading it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

from oncegate.errors import StoreError
from oncegate.store import Ruling, RulingAnswer
from oncegate.store.people import latest_ruling
from oncegate.stores.dynamodb.client import TableClient
from oncegate.stores.dynamodb.items import INDEX, SHARDS, ItemRow, number
from oncegate.stores.dynamodb.ledger_time import LedgerTime
from oncegate.stores.dynamodb.parts import Parts
from oncegate.stores.dynamodb.rulings import can_be_ruled, ruling_change
from oncegate.stores.dynamodb.writing import ItemWriter
from oncegate.stores.shared.open_lists import READ_MAX, OpenLists

_RUNNING: Final = range(SHARDS)
_WAITING: Final = range(SHARDS, 2 * SHARDS)


class DynamoOpenEntries(OpenLists):
    """Lists and decisions. Mixed into the session."""

    _client: TableClient
    _writer: ItemWriter
    _parts: Parts
    _time: LedgerTime

    def _rows(self, keys: Sequence[bytes]) -> list[ItemRow | None]:
        raise NotImplementedError

    def _open_keys(self, *, waiting: bool, running: bool) -> list[bytes]:
        shards = [*(_RUNNING if running else ()), *(_WAITING if waiting else ())]
        return find_open(self._client, shards, READ_MAX)

    def _due_keys(self, limit: int, now: int) -> list[bytes]:
        return find_open(self._client, _RUNNING, limit)

    def rule(self, rulings: Sequence[Ruling]) -> list[RulingAnswer]:
        """Carries out each by one conditional write that names the fence that was seen."""
        return [self._ruled(ruling) for ruling in rulings]

    def _ruled(self, ruling: Ruling) -> RulingAnswer:
        (row,) = self._rows([ruling.key])
        done = False
        if row is not None and can_be_ruled(row, ruling):
            change = ruling_change(row, ruling, self._time, self.now_ticks())
            (refused,) = self._writer.change([change])
            done = refused is None or change.was_ours(refused.item)
            if done and not ruling.verb.runs:
                self._forget_event(row)
        (found,) = self.details([ruling.key])
        if found is None or found.entry.entry_id != ruling.entry_id:
            found = self.detail(ruling.entry_id)
        if found is None:
            return RulingAnswer(done=False, entry=None)
        return RulingAnswer(done, found.entry, latest_ruling(found.records))

    def _forget_event(self, row: ItemRow) -> None:
        """Removes a long event of an entry that has ended; what cannot be removed is only room lost."""
        if row.body_parts is not None:
            try:
                self._parts.remove(row.key, [row.body_parts])
            except StoreError:
                return


def find_open(client: TableClient, shards: Sequence[int], limit: int) -> list[bytes]:
    """Keys of open entries, the oldest first, `limit` at most."""
    found = [place for shard in shards for place in islice(_places(client, shard, limit), limit)]
    return [key for _, key in sorted(found)[:limit]]


def _places(client: TableClient, shard: int, limit: int) -> Iterator[tuple[int, bytes]]:
    """What a shard lists, page by page: a page of the service is at most 1 MB."""
    more: dict[str, Any] = {}
    while True:
        answer = client.read(
            "query",
            TableName=client.table,
            IndexName=INDEX,
            KeyConditionExpression="o = :shard",
            ExpressionAttributeValues={":shard": number(shard)},
            Limit=limit,
            **more,
        )
        for item in answer.get("Items", ()):
            yield int(item["r"]["N"]), bytes(item["k"]["B"])
        if "LastEvaluatedKey" not in answer:
            return
        more = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}
