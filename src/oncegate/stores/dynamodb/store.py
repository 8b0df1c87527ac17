"""One ledger in one table: opens sessions, creates or checks the table, examines it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from oncegate.clock import Clock, SystemClock
from oncegate.errors import SchemaMismatch, StoreError, StoreUnavailable
from oncegate.store import (
    AuditTrail,
    Capabilities,
    Durability,
    Facet,
    Finding,
    Migration,
    Renewal,
    Reservation,
    Units,
)
from oncegate.store.incarnations import Incarnations, Sight
from oncegate.stores.dynamodb.address import TableAddress, parse_address
from oncegate.stores.dynamodb.claims import OwnClaims
from oncegate.stores.dynamodb.client import TableClient, Watcher
from oncegate.stores.dynamodb.items import WITHDRAWN, binary, number
from oncegate.stores.dynamodb.ledger_time import LedgerTime, Moment
from oncegate.stores.dynamodb.session import DynamoSession
from oncegate.stores.dynamodb.table import TTL_ON, LedgerTable, check_keys, has_index
from oncegate.stores.dynamodb.templates import template

WRITERS_MAX: Final = 8
WENT_BACK_MS: Final = 60_000  # older answers may come later; a restored table is older than this


class DynamoStore:
    """A ledger with claims and open entries, over the network.

    `clock` replaces the ledger's own time; only tests do that.
    """

    def __init__(
        self, address: str | TableAddress, *, clock: Clock | None = None, watch: Watcher | None = None
    ) -> None:
        parsed = parse_address(address) if isinstance(address, str) else address
        self._table_address = parsed
        self._client = TableClient(parsed, clock or SystemClock(), watch)
        self._table = LedgerTable(self._client)
        self._time = LedgerTime(self._client, None if clock is None else clock.ticks_ms)
        self._own = OwnClaims()
        self._incarnations = Incarnations(WENT_BACK_MS)

    @property
    def capabilities(self) -> Capabilities:
        """Claims, each by itself; users' own items commit with the end of a claim."""
        return Capabilities(
            "dynamodb",
            Durability.POWER_LOSS,
            WRITERS_MAX,
            AuditTrail.PER_ENTRY,
            business_writes=False,
            one_writer=False,
            is_local=False,
            units=Units.PER_CALL,
            facets=frozenset({Facet.CLAIMS, Facet.OPEN_ENTRIES}),
            transact_items=True,
        )

    @property
    def incarnations(self) -> Incarnations:
        """Which incarnation of the ledger was seen."""
        return self._incarnations

    @property
    def address(self) -> str:
        """Which table, and where; credentials are never a part of it."""
        return str(self._table_address)

    def connect(self) -> DynamoSession:
        """Opens a session. An empty table becomes a ledger; a missing one is created only where asked."""
        found = self._opened()
        self._time.keep(found)
        session = DynamoSession(self._client, self._time, self._own)
        self._incarnations.check(Sight(found.identity, found.ticks), lambda: session)
        return session

    def _opened(self) -> Moment:
        try:
            found = self._time.look()
        except SchemaMismatch:
            if not self._table_address.create:
                raise
            found = None  # missing, created just now by another thread, or the table of something else
        if found is None:
            if self._table_address.create:
                self._table.make(self._table.pending(has_first_item=False))
            self._time.begin()
            found = self._time.look()
        if found is None:
            raise StoreUnavailable(f"{self._client.place} lost its first item just now; try again")
        return found

    def exists(self) -> bool:
        """Tells whether there is such a table."""
        return self._table.describe() is not None

    @contextmanager
    def look(self, *, again: bool = False) -> Iterator[DynamoSession]:
        """Reads what is there."""
        try:
            found = self._time.look()
        except SchemaMismatch:
            if self.exists():
                raise
            raise StoreUnavailable(f"{self._client.place} does not exist") from None
        if found is None:
            raise SchemaMismatch(f"{self._client.place} is not a ledger yet; run oncegate migrate")
        yield DynamoSession(self._client, self._time, self._own, reads_only=True)

    def close(self) -> None:
        """Gives the connections back."""
        self._client.close()

    def pending_migrations(self) -> list[Migration]:
        """What the table lacks."""
        try:
            has_first_item = self._time.look() is not None
        except SchemaMismatch:
            has_first_item = False
        return self._table.pending(has_first_item=has_first_item)

    def migrate(self) -> list[Migration]:
        """Creates the table, or what it lacks."""
        pending = self.pending_migrations()
        self._table.make(pending)
        if any(migration.number == 4 for migration in pending):
            self._time.begin()
        return pending

    def template(self, form: str) -> str:
        """The table as a template for a tool that creates it."""
        return template(self._table_address.table, form)

    def examine(self) -> list[Finding]:
        """Looks at table, index, time to live and backups, and rehearses a claim."""
        found = self._table.describe()
        if found is None:
            return [Finding(False, "ledger", f"{self._client.place} does not exist", "oncegate migrate")]
        try:
            check_keys(found, self._client.place)
        except SchemaMismatch as error:
            return [Finding(False, "schema", str(error))]
        billing = found.get("BillingModeSummary", {}).get("BillingMode", "PROVISIONED")
        size = f"about {found.get('ItemCount', 0)} items, {billing.lower().replace('_', ' ')}"
        return [
            Finding(True, "table", f"{self._client.place}, {size}"),
            self._index(has=has_index(found)),
            self._time_to_live(),
            self._backups(is_protected=bool(found.get("DeletionProtectionEnabled"))),
            self._rehearsed(),
        ]

    def _index(self, *, has: bool) -> Finding:
        if has:
            return Finding(True, "index", "open entries can be listed")
        return Finding(True, "index", "missing: open entries cannot be listed", "run: oncegate migrate")

    def _time_to_live(self) -> Finding:
        status = self._table.time_to_live()
        if status in TTL_ON:
            return Finding(True, "time to live", "final entries are removed after their retention")
        step = "final entries stay for ever: run oncegate migrate"
        return Finding(True, "time to live", status.lower(), step)

    def _backups(self, *, is_protected: bool) -> Finding:
        status = self._table.backups()
        told = f"point-in-time recovery {status.lower() or 'unknown'}"
        told += f", deletion protection {'on' if is_protected else 'off'}"
        is_local = self._table_address.endpoint is not None
        step = "switch both on: a lost ledger lets every event run again"
        return Finding(
            True, "backups", told, "" if is_local or (status == "ENABLED" and is_protected) else step
        )

    def _rehearsed(self) -> Finding:
        """A claim on a key of its own, withdrawn and removed."""
        key, token, clock = secrets.token_bytes(32), secrets.randbits(62), self._client.clock
        begun = clock.elapsed_us()
        try:
            session = self.connect()
            wanted = Reservation(
                key, "", "doctor", "rehearsal", b"rehearsal", b"", clock.wall_ms(), 20_000, 1, token
            )
            (claim,) = session.reserve([wanted])
            held = session.renew([Renewal(*claim.claim, 20_000)]) == [True]
            held = session.withdraw([claim.claim]) == [True] and held
            self._client.write(
                "delete_item",
                TableName=self._table_address.table,
                Key={"k": binary(key)},
                ConditionExpression="s = :gone",
                ExpressionAttributeValues={":gone": number(WITHDRAWN)},
            )
        except StoreError as error:
            return Finding(False, "claim", str(error), "check the rights that docs/dynamodb.md lists")
        took = (clock.elapsed_us() - begun) / 1000
        return Finding(held, "claim", f"reserved, renewed and withdrawn in {took:.0f} ms")
