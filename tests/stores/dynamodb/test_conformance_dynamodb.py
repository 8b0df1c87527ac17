"""DynamoDB passes the conformance suites of claims and open entries, on AWS's own emulator."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import Any, cast

import boto3
import pytest

from oncegate.model.states import State
from oncegate.store import ClaimStore, EntryDetail, Reservation, Settlement, Store
from oncegate.stores.dynamodb import DynamoStore
from oncegate.stores.shared.open_lists import number_of
from oncegate.testing import ManualClock
from oncegate.testing.conformance import ClaimsConformance, OpenEntriesConformance
from oncegate.testing.conformance import ledger as conformance_ledger
from tests.stores.dynamodb.conftest import REGION
from tests.support.servers import DynamoDb

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def emptied(dynamodb: DynamoDb) -> Any:
    """The SDK's client that empties the table of most tests."""
    keys = {"aws_access_key_id": "oncegate", "aws_secret_access_key": "oncegate"}
    return boto3.client("dynamodb", region_name=REGION, endpoint_url=dynamodb.url, **keys)


class TestDynamo(ClaimsConformance, OpenEntriesConformance):
    """An empty ledger for each test; a table of its own for those that are about making one."""

    shared = f"suite-{uuid.uuid4().hex}"

    @pytest.fixture(autouse=True)
    def _on_a_ledger_of_its_own(
        self, request: pytest.FixtureRequest, dynamodb: DynamoDb, emptied: Any
    ) -> Iterator[None]:
        is_about_making = request.function.__module__ == conformance_ledger.__name__
        self.table = f"t-{uuid.uuid4().hex}" if is_about_making else self.shared
        self.endpoint = dynamodb.url
        yield
        if not is_about_making:
            _empty(emptied, self.table)

    def make_store(self, clock: ManualClock) -> Store:
        address = f"dynamodb://{self.table}?region={REGION}&endpoint={self.endpoint}&create=1"
        store: ClaimStore = DynamoStore(address, clock=clock)
        return cast("Store", store)

    def find(self, entry_id: int) -> EntryDetail | None:
        """By the one key that has this number."""
        keys = [key for key in self._keys if number_of(key) == entry_id]
        with self.looking() as session:
            return session.details(keys)[0] if keys else None

    def test_leases_of_the_dead_lapse_after_a_restart(self) -> None:
        """Does not apply: the ledger's time does not restart with a client's machine."""
        pytest.skip("the ledger's time does not restart with a client's machine")

    def test_age_of_a_failure_survives_a_restart(self) -> None:
        """Does not apply: the ledger's time does not restart with a client's machine."""
        pytest.skip("the ledger's time does not restart with a client's machine")

    def test_time_does_not_go_back_behind_a_recorded_lease(self) -> None:
        """Does not apply: the ledger's time does not restart with a client's machine."""
        pytest.skip("the ledger's time does not restart with a client's machine")


def _empty(client: Any, table: str) -> None:
    items = client.scan(TableName=table, ProjectionExpression="k", ConsistentRead=True)["Items"]
    for start in range(0, len(items), 25):
        gone = [{"DeleteRequest": {"Key": item}} for item in items[start : start + 25]]
        client.batch_write_item(RequestItems={table: gone})


def test_only_final_entries_get_a_time_to_live(emptied: Any, new_table: str) -> None:
    """After the retention and two days more, by the service's clock; open and held ones never (I14)."""
    session = DynamoStore(new_table, clock=ManualClock()).connect()
    names = ("open", *(state.label for state in State if state is not State.IN_FLIGHT))
    day_ms = 86_400_000
    wanted = [
        Reservation(
            name.encode().ljust(32), "", "s", name, b"c", b"", 0, 20_000, 8, place, keep_ms=90 * day_ms
        )
        for place, name in enumerate(names, 1)
    ]
    claims = session.reserve(wanted)
    for claim, state in zip(claims[1:], list(State)[1:], strict=True):
        assert session.settle([Settlement(*claim.claim, state, 5, "test")]) == [True]

    table = new_table.partition("//")[2].partition("?")[0]
    answer = emptied.scan(TableName=table, ConsistentRead=True)
    date = answer["ResponseMetadata"]["HTTPHeaders"]["date"]
    now_s = int(parsedate_to_datetime(date).timestamp())
    expiries = {item["lb"]["S"]: item.get("x") for item in answer["Items"] if "lb" in item}

    assert {name for name, expiry in expiries.items() if expiry} == {"committed", "failed"}
    for name in ("committed", "failed"):
        assert abs(int(expiries[name]["N"]) - now_s - 92 * 86_400) < 120
