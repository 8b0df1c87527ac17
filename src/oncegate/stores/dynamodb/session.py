"""One session on the table: claims and open entries, each item of a call committed by itself.

A session holds no connection of its own: the client is shared, and one thread at a time uses a session. A
call that fails after it has written something raises StoreUnknown, so that each of its items is read back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from oncegate.errors import StoreError, StoreUnknown
from oncegate.store import (
    Attachment,
    ClaimId,
    Entry,
    EntryDetail,
    Renewal,
    Reservation,
    Reserved,
    Ruling,
    RulingAnswer,
    Settlement,
    StepRecords,
)
from oncegate.stores.dynamodb.claims import DynamoClaims, OwnClaims
from oncegate.stores.dynamodb.client import TableClient
from oncegate.stores.dynamodb.items import WITHDRAWN, ItemRow, read_row
from oncegate.stores.dynamodb.ledger_time import LedgerTime
from oncegate.stores.dynamodb.open_entries import DynamoOpenEntries
from oncegate.stores.dynamodb.parts import Parts
from oncegate.stores.dynamodb.settling import DynamoSettling, is_committed_by
from oncegate.stores.dynamodb.transact import settle_with
from oncegate.stores.dynamodb.writing import ItemWriter

T = TypeVar("T")


class DynamoSession(DynamoClaims, DynamoSettling, DynamoOpenEntries):
    """Reserves, settles and reads by key."""

    def __init__(
        self, client: TableClient, time: LedgerTime, own: OwnClaims, *, reads_only: bool = False
    ) -> None:
        self._client = client
        self._time = time
        self._own = own
        self._reads_only = reads_only
        self._writer = ItemWriter(client)
        self._parts = Parts(client, self._writer)

    def unit(
        self, *, wait: bool = True, single: bool = False, patient: bool = True
    ) -> AbstractContextManager[None]:
        """Holds nothing together."""
        return nullcontext()

    def now_ticks(self) -> int:
        """The ledger's own time."""
        return self._time.now(may_write=not self._reads_only)

    def settle_doubt(self) -> None:
        """Nothing to write: a request that is still on its way carries a condition of its own.

        A late reservation becomes a claim that no worker runs, and expires. A late settlement or step is
        what its claim's holder did. None of them can be taken for another request's.
        """

    def close(self) -> None:
        """Has nothing open."""

    def reserve(self, wanted: Sequence[Reservation]) -> list[Reserved]:
        """Each by one conditional write."""
        return self._call(lambda: self._reserve(wanted, None))

    def record(self, wanted: Sequence[Reservation], outcome: bytes) -> list[Reserved]:
        """Each by one conditional write, which commits what is new."""
        return self._call(lambda: self._reserve(wanted, outcome))

    def renew(self, claims: Sequence[Renewal]) -> list[bool]:
        """Each by one conditional write."""
        return self._call(lambda: self._renewed(claims))

    def progress(self, wanted: Sequence[StepRecords]) -> list[bool]:
        """Each by one conditional write."""
        return self._call(lambda: self._advanced(wanted))

    def settle(self, settlements: Sequence[Settlement], *, last: bool = False) -> list[bool]:
        """Each by one conditional write; with users' own items, each by one transaction."""
        plain = [item for item in settlements if not item.writes]
        if len(plain) == len(settlements):
            return self._call(lambda: self._settled(settlements))
        return self._call(lambda: [self._settled_with_items(item) for item in settlements])

    def _settled_with_items(self, item: Settlement) -> bool:
        if not item.writes:
            return self._settled([item])[0]
        done = settle_with(self._client, self.settle_change(item, self.now_ticks()), item)
        if done:
            self._writer.applied += 1
            self.ended(item)
        return done

    def withdraw(self, claims: Sequence[ClaimId]) -> list[bool]:
        """Each by one conditional write, which leaves only the fence."""
        return self._call(lambda: self._withdrawn(claims))

    def attach(self, attachments: Sequence[Attachment]) -> list[bool]:
        """Each by one conditional write."""
        return self._call(lambda: self._attached(attachments))

    def are_committed(self, claims: Sequence[ClaimId]) -> list[bool]:
        """By a consistent read."""
        items = self._writer.read([claim.key for claim in claims]) if claims else []
        return [is_committed_by(item, claim) for item, claim in zip(items, claims, strict=True)]

    def read(self, keys: Sequence[bytes]) -> list[Entry | None]:
        """Reads entries by key, as they are now."""
        return [None if row is None else row.entry for row in self._rows(keys)]

    def details(self, keys: Sequence[bytes]) -> list[EntryDetail | None]:
        """Reads entries by key with all that belongs to them, as they are now."""
        return [None if row is None else self._detail(row) for row in self._rows(keys)]

    def rule(self, rulings: Sequence[Ruling]) -> list[RulingAnswer]:
        """Each by one conditional write."""
        return self._call(lambda: super(DynamoSession, self).rule(rulings))

    def _rows(self, keys: Sequence[bytes]) -> list[ItemRow | None]:
        rows = (
            [None if item is None else read_row(item) for item in self._writer.read(keys)] if keys else []
        )
        return [None if row is None or row.state == WITHDRAWN else row for row in rows]

    def _detail(self, row: ItemRow) -> EntryDetail:
        return EntryDetail(
            row.entry,
            self._body_of(row),
            self._outcome_of(row),
            self._steps_of(row),
            row.log_records(),
            has_past=row.claims > 1,
        )

    def _call(self, work: Callable[[], T]) -> T:
        self._writer.applied = 0
        try:
            return work()
        except StoreError as error:
            if self._writer.applied and not isinstance(error, StoreUnknown):
                raise StoreUnknown(
                    f"{self._writer.applied} items of a call were written before it failed: {error}"
                ) from error
            raise
