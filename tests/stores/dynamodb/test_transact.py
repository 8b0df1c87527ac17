"""`once.commit(transact=[…])`: the user's own items and the outcome are one transaction."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from oncegate import Gate
from oncegate.errors import ClaimLost, ConfigError, StoreRejected, UsageError
from oncegate.gate.admission import Verdict
from oncegate.gate.once import AsyncOnce, Once
from oncegate.stores.dynamodb import DynamoStore
from oncegate.testing import ManualClock
from tests.stores.dynamodb.conftest import REGION
from tests.support.dynamodb_front import DynamoFront, FrontFault
from tests.support.servers import DynamoDb

Item = dict[str, Any]


class Shop:
    """A gate, a table of bookings beside the ledger, and what the handler stages."""

    def __init__(self, address: str, endpoint: str, clock: ManualClock) -> None:
        self.address, self.clock = address, clock
        self.table = f"bookings-{address.partition('//')[2].partition('?')[0]}"
        self.client = boto3.client("dynamodb", region_name=REGION, endpoint_url=endpoint)
        self.gate = Gate(store=DynamoStore(address, clock=clock), clock=clock)
        self.items: Callable[[Any], list[Item]] = lambda event: [self.put(event["id"])]
        self.runs = 0
        self.gate.handler("orders", key="{id}")(self.run)
        self.gate.handler("later", key="{id}")(self.run_async)

    def run(self, event: Any, once: Once) -> str:
        self.runs += 1
        once.commit(transact=self.items(event), resource=event["id"])
        return f"booked {event['id']}"

    async def run_async(self, event: Any, once: AsyncOnce) -> str:
        await once.commit(transact=self.items(event))
        return f"booked {event['id']}"

    def put(self, name: str, **more: Any) -> Item:
        return {"Put": {"TableName": self.table, "Item": {"id": {"S": name}}, **more}}

    def admit(self, name: str = "o-1") -> Any:
        return self.gate.admit_sync("orders", {"id": name})

    def bookings(self) -> list[str]:
        found = self.client.scan(TableName=self.table, ConsistentRead=True)["Items"]
        return sorted(item["id"]["S"] for item in found)


@pytest.fixture
def shop(fronted: str, dynamodb: DynamoDb) -> Iterator[Shop]:
    made = Shop(fronted, dynamodb.url, ManualClock())
    made.client.create_table(
        TableName=made.table,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    with made.gate:
        yield made
    made.client.close()


def test_items_and_outcome_are_written_together(shop: Shop) -> None:
    """The booking is there once, and a repeat gets the outcome."""
    first, again = shop.admit(), shop.admit()

    assert (first.verdict, again.verdict) == (Verdict.RUN, Verdict.REPLAY)
    assert first.value == again.value == "booked o-1"
    assert shop.bookings() == ["o-1"]


def test_condition_of_the_user_that_fails_undoes_all_of_it(shop: Shop) -> None:
    """Neither the other item nor the outcome is there, and the reason names the item; a retry is free."""
    shop.client.put_item(TableName=shop.table, Item={"id": {"S": "taken"}})
    condition = {"ConditionExpression": "attribute_not_exists(id)"}
    shop.items = lambda event: [shop.put("other"), shop.put("taken", **condition)]

    with pytest.raises(StoreRejected, match=r"item 1 \(Put\): ConditionalCheckFailed"):
        shop.admit()
    assert shop.bookings() == ["taken"]

    shop.items = lambda event: [shop.put("free")]
    shop.clock.advance(600)
    assert shop.admit().verdict is Verdict.RUN
    assert shop.bookings() == ["free", "taken"]


def test_worker_that_was_overtaken_writes_no_item(shop: Shop, fronted: str, dynamodb: DynamoDb) -> None:
    """The claim's own condition is a part of the transaction (I4)."""
    other = Shop(fronted, dynamodb.url, shop.clock)
    other.table = shop.table

    def stall(event: Any) -> list[Item]:
        shop.clock.advance(60)
        other.items = lambda event: [shop.put("theirs")]
        assert other.admit().verdict is Verdict.RUN
        return [shop.put("late")]

    shop.items = stall
    with pytest.raises(ClaimLost):
        shop.admit()

    assert shop.bookings() == ["theirs"]
    other.gate.close()
    other.client.close()


def test_transaction_whose_reply_was_lost_is_told_as_done(shop: Shop, front: DynamoFront) -> None:
    """It is read back by the claim's token, and not sent again (I5)."""
    front.do("TransactWriteItems", FrontFault.LOSE_REPLY)

    assert shop.admit().value == "booked o-1"

    assert (front.seen["TransactWriteItems"], shop.runs) == (1, 1)
    assert shop.bookings() == ["o-1"]


def test_transaction_that_is_sent_twice_below_us_counts_once(shop: Shop, front: DynamoFront) -> None:
    """Its token names it to the service; an increment is made once."""
    shop.items = lambda event: [
        {
            "Update": {
                "TableName": shop.table,
                "Key": {"id": {"S": "total"}},
                "UpdateExpression": "ADD amount :one",
                "ExpressionAttributeValues": {":one": {"N": "1"}},
            }
        }
    ]
    front.do("TransactWriteItems", FrontFault.TWICE)

    assert shop.admit().verdict is Verdict.RUN

    (found,) = shop.client.scan(TableName=shop.table)["Items"]
    assert found["amount"] == {"N": "1"}


def test_async_handlers_commit_items_too(shop: Shop) -> None:
    """The same call, awaited."""
    assert asyncio.run(shop.gate.admit("later", {"id": "o-1"})).value == "booked o-1"
    assert shop.bookings() == ["o-1"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "items",
    [
        {"Put": {"TableName": "bookings"}},
        [{"Get": {"TableName": "bookings"}}],
        [{"Put": {"TableName": "bookings"}, "Delete": {"TableName": "bookings"}}],
        ["Put"],
        [{"Put": {}}],
        [{"Put": {"TableName": "bookings"}}] * 100,
    ],
)
def test_what_is_no_list_of_items_is_refused(shop: Shop, items: Any) -> None:
    """Before anything is written."""
    shop.items = lambda event: items

    with pytest.raises(UsageError):
        shop.admit()

    assert shop.bookings() == []


def test_items_in_the_ledgers_own_table_are_refused(shop: Shop) -> None:
    """A handler cannot write over a claim."""
    ledger = shop.gate.engine.store.address.partition("//")[2].partition("?")[0]
    shop.items = lambda event: [{"Delete": {"TableName": ledger, "Key": {"k": {"B": b"x"}}}}]

    with pytest.raises(StoreRejected, match="the ledger's own table"):
        shop.admit()


def test_other_ledgers_say_that_they_take_no_items(tmp_path: Any) -> None:
    """In one line, with what to use there."""
    with Gate(f"sqlite:///{tmp_path}/ledger.db") as gate:

        @gate.handler("orders", key="{id}")
        def run(event: Any, once: Once) -> None:
            once.commit(transact=[{"Put": {"TableName": "bookings", "Item": {}}}])

        with pytest.raises(ConfigError, match="needs a DynamoDB ledger"):
            gate.admit_sync("orders", {"id": 1})


def test_example_of_the_guide_runs(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copied as it stands, with the name of this test's table."""
    page = (Path(__file__).parents[3] / "docs" / "dynamodb.md").read_text("utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.setenv("ONCEGATE_URL", shop.address)
    names: dict[str, Any] = {}
    exec(compile(example.replace('"bookings"', repr(shop.table)), "docs/dynamodb.md", "exec"), names)

    with names["gate"] as gate:
        verdicts = [gate.admit_sync("orders", {"id": "N-1"}).verdict for _ in range(2)]

    assert verdicts == [Verdict.RUN, Verdict.REPLAY]
    assert shop.bookings() == ["N-1"]
