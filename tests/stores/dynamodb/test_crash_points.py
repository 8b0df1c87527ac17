"""A worker is killed at every crash point that it passes; nothing is lost or done twice (I6)."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import boto3
import pytest

from oncegate import Gate
from oncegate.crashpoints import CrashPoints
from oncegate.gate.admission import Verdict
from oncegate.gate.once import Once
from oncegate.stores.dynamodb import DynamoStore
from oncegate.testing import ArmedCrashPoints
from oncegate.testing.clock import SharedClock
from oncegate.testing.forking import Forked
from tests.stores.dynamodb.conftest import REGION
from tests.support.servers import DynamoDb

pytestmark = pytest.mark.slow

EVENT = {"id": "o-1"}
# Each commit of an event: of its reservation, of its step, of its end.
PLACES = [
    ("reserve.before", 1),
    ("commit.before", 1),
    ("commit.after", 1),
    ("reserve.after", 1),
    ("effect.before", 1),
    ("effect.after", 1),
    ("settle.before", 1),
    ("commit.before", 2),
    ("commit.after", 2),
    ("settle.after", 1),
]


class Trade:
    """One process: an effect at a bank that honours keys, and a booking in the outcome's transaction."""

    def __init__(self, address: str, folder: Path, clock: SharedClock, crashes: CrashPoints) -> None:
        self.table, self.folder = f"bookings-{address.partition('//')[2].partition('?')[0]}", folder
        self.gate = Gate(store=DynamoStore(address, clock=clock), clock=clock, crashpoints=crashes)
        self.bank = self.gate.downstream("bank", honours_key="1d")
        self.gate.handler("orders", key="{id}")(self.run)

    def run(self, event: Any, once: Once) -> str:
        paid: str = once.effect(self.bank, self.charge, event["id"], name="charge")
        once.commit(
            transact=[
                {
                    "Update": {
                        "TableName": self.table,
                        "Key": {"id": {"S": event["id"]}},
                        "UpdateExpression": "ADD booked :one",
                        "ExpressionAttributeValues": {":one": {"N": "1"}},
                    }
                }
            ]
        )
        return paid

    def charge(self, order: str, idempotency_key: str = "") -> str:
        (self.folder / idempotency_key.replace("/", "_")).touch()  # the bank knows the key
        return f"paid {order}"

    def admit(self) -> Any:
        return self.gate.admit_sync("orders", EVENT)


@pytest.mark.parametrize(("name", "occurrence"), PLACES)
def test_event_of_a_worker_that_died_here_is_finished_once(
    new_table: str, dynamodb: DynamoDb, tmp_path: Path, name: str, occurrence: int
) -> None:
    """The next delivery recovers it: one charge, one booking, one outcome."""
    clock = SharedClock()
    DynamoStore(new_table, clock=clock).connect()
    trade = Trade(new_table, tmp_path, clock, CrashPoints())
    client = boto3.client("dynamodb", region_name=REGION, endpoint_url=dynamodb.url)
    client.create_table(
        TableName=trade.table,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )

    def die() -> None:
        Trade(new_table, tmp_path, clock, ArmedCrashPoints(name, occurrence=occurrence)).admit()

    with Forked(die) as child:
        assert child.wait() == -signal.SIGKILL, "the crash point was reached"
    clock.advance(21)

    with trade.gate:
        first, again = trade.admit(), trade.admit()

    assert first.verdict in (Verdict.RUN, Verdict.REPLAY)
    assert (again.verdict, again.value) == (Verdict.REPLAY, "paid o-1")
    assert len(list(tmp_path.iterdir())) == 1, "the bank saw one key"
    assert [item["booked"] for item in client.scan(TableName=trade.table)["Items"]] == [{"N": "1"}]
    client.close()
