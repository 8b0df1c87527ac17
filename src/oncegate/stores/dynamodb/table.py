"""The table itself: what it must be like, whether it is, and how it is made."""

from __future__ import annotations

from typing import Any, Final

from oncegate.errors import SchemaMismatch, StoreError, StoreRejected, StoreUnavailable
from oncegate.store import Migration
from oncegate.stores.dynamodb.client import TableClient
from oncegate.stores.dynamodb.items import INDEX
from oncegate.stores.dynamodb.templates import cloudformation

CREATION_SECONDS_MAX: Final = 120
_LOOK_SECONDS: Final = 0.5
_KEYS: Final = [{"AttributeName": "k", "KeyType": "HASH"}]
_INDEX_KEYS: Final = [{"AttributeName": "o", "KeyType": "HASH"}, {"AttributeName": "r", "KeyType": "RANGE"}]
_ATTRIBUTES: Final = [
    {"AttributeName": "k", "AttributeType": "B"},
    {"AttributeName": "o", "AttributeType": "N"},
    {"AttributeName": "r", "AttributeType": "N"},
]
_OPEN_INDEX: Final = {
    "IndexName": INDEX,
    "KeySchema": _INDEX_KEYS,
    "Projection": {"ProjectionType": "KEYS_ONLY"},
}
TTL_ON: Final = frozenset({"ENABLED", "ENABLING"})


class TableMigration(Migration, frozen=True):
    """One thing that a table lacks. Printed, it is a CloudFormation template of the whole table."""

    @property
    def script(self) -> str:
        """The template."""
        return self.sql


class LedgerTable:
    """Creates and checks the table of one ledger."""

    def __init__(self, client: TableClient) -> None:
        self._client = client

    def describe(self) -> dict[str, Any] | None:
        """What the service says of the table; None where there is none."""
        try:
            found: dict[str, Any] = self._client.read("describe_table", TableName=self._client.table)[
                "Table"
            ]
        except SchemaMismatch:
            return None
        return found

    def pending(self, *, has_first_item: bool) -> list[Migration]:
        """What the table lacks; raises SchemaMismatch where its keys are others."""
        found = self.describe()
        if found is None:
            return [self._migration(place) for place in range(4)]
        check_keys(found, self._client.place)
        lacks = {1: not has_index(found), 2: self.time_to_live() not in TTL_ON, 3: not has_first_item}
        return [self._migration(place) for place, is_so in lacks.items() if is_so]

    def _migration(self, place: int) -> Migration:
        name = ("table", "index of open entries", "time to live", "first item")[place]
        return TableMigration(place + 1, name, cloudformation(self._client.table), "")

    def time_to_live(self) -> str:
        """Whether final entries are removed after their time: a status of the service."""
        answer = self._client.read("describe_time_to_live", TableName=self._client.table)
        described = answer.get("TimeToLiveDescription", {})
        is_ours = described.get("AttributeName", "x") == "x"
        return str(described.get("TimeToLiveStatus", "DISABLED")) if is_ours else "on another attribute"

    def make(self, pending: list[Migration]) -> None:
        """Creates what is pending, but for the first item."""
        numbers = {migration.number for migration in pending}
        if 1 in numbers:
            self._create()
        self._wait_until_active()  # another process may have begun to create it
        if 2 in numbers and 1 not in numbers:
            self._client.write(
                "update_table",
                TableName=self._client.table,
                AttributeDefinitions=_ATTRIBUTES,
                GlobalSecondaryIndexUpdates=[{"Create": _OPEN_INDEX}],
            )
            self._wait_until_active()
        if 3 in numbers:
            self._enable_time_to_live()

    def _enable_time_to_live(self) -> None:
        try:
            self._client.write(
                "update_time_to_live",
                TableName=self._client.table,
                TimeToLiveSpecification={"Enabled": True, "AttributeName": "x"},
            )
        except StoreRejected:
            if self.time_to_live() not in TTL_ON:  # else another process has done so
                raise

    def _create(self) -> None:
        try:
            self._client.write(
                "create_table",
                TableName=self._client.table,
                KeySchema=_KEYS,
                AttributeDefinitions=_ATTRIBUTES,
                GlobalSecondaryIndexes=[_OPEN_INDEX],
                BillingMode="PAY_PER_REQUEST",
            )
        except StoreUnavailable as error:
            if "ResourceInUse" not in str(error):  # another process creates it
                raise

    def _wait_until_active(self) -> None:
        for _ in range(int(CREATION_SECONDS_MAX / _LOOK_SECONDS)):
            found = self.describe()
            if found is not None and _is_active(found):
                return
            self._client.clock.pause(_LOOK_SECONDS)
        raise StoreUnavailable(
            f"{self._client.place} is not ready after {CREATION_SECONDS_MAX} s; try again later"
        )

    def backups(self) -> str:
        """Whether the table can be restored to a moment; empty where the service does not say."""
        try:
            answer = self._client.read("describe_continuous_backups", TableName=self._client.table)
        except StoreError:
            return ""
        described = answer.get("ContinuousBackupsDescription", {})
        return str(described.get("PointInTimeRecoveryDescription", {}).get("PointInTimeRecoveryStatus", ""))


def check_keys(found: dict[str, Any], place: str) -> None:
    """Raises SchemaMismatch for a table that has other keys."""
    types = {one["AttributeName"]: one["AttributeType"] for one in found.get("AttributeDefinitions", ())}
    if found.get("KeySchema") != _KEYS or types.get("k") != "B":
        keys = ", ".join(str(one.get("AttributeName")) for one in found.get("KeySchema", ()))
        raise SchemaMismatch(
            f"{place} is not a ledger: its key is {keys}, and a ledger's is one binary attribute k; name"
            " another table, or create one with oncegate migrate"
        )


def has_index(found: dict[str, Any]) -> bool:
    """Whether the table has the index of open entries."""
    indexes = found.get("GlobalSecondaryIndexes", ())
    return any(one["IndexName"] == INDEX and one["KeySchema"] == _INDEX_KEYS for one in indexes)


def _is_active(found: dict[str, Any]) -> bool:
    indexes = found.get("GlobalSecondaryIndexes", ())
    return found.get("TableStatus") == "ACTIVE" and all(
        one.get("IndexStatus", "ACTIVE") == "ACTIVE" for one in indexes
    )
