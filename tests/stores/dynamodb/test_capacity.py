"""What an event costs, counted by the server's own answers (ReturnConsumedCapacity)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from oncegate import Gate
from oncegate.gate.admission import Verdict
from oncegate.model.states import Decision
from oncegate.store import Renewal, Reservation
from oncegate.stores.dynamodb import DynamoStore
from oncegate.testing import ManualClock

READS = {"get_item", "batch_get_item", "query", "scan"}


class Meter:
    """Adds up what answers say that they consumed, and counts requests."""

    def __init__(self) -> None:
        self.write_units = 0.0
        self.index_units = 0.0
        self.requests: Counter[str] = Counter()

    def __call__(self, operation: str, answer: dict[str, Any]) -> None:
        self.requests[operation] += 1
        consumed = answer.get("ConsumedCapacity", [])
        for one in consumed if isinstance(consumed, list) else [consumed]:
            self.write_units += one["CapacityUnits"]
            for index in one.get("GlobalSecondaryIndexes", {}).values():
                self.index_units += index["CapacityUnits"]

    @property
    def reads(self) -> int:
        return sum(self.requests[name] for name in READS)

    def reset(self) -> None:
        self.write_units = self.index_units = 0.0
        self.requests.clear()


class Orders:
    """A gate with one handler, warm: the table is open and the ledger's time is known."""

    def __init__(self, address: str) -> None:
        self.address, self.meter, self.clock = address, Meter(), ManualClock()
        store = DynamoStore(address, clock=self.clock, watch=self.meter)
        self.gate = Gate(store=store, clock=self.clock)
        self.gate.handler("orders", key="{id}")(lambda event: {"slot": event["id"]})
        self.admit("warm")
        self.meter.reset()

    def admit(self, name: str) -> Any:
        return self.gate.admit_sync("orders", {"id": name, "amount": 1})


@pytest.fixture
def orders(new_table: str) -> Iterator[Orders]:
    made = Orders(new_table)
    with made.gate:
        yield made


def test_fresh_event_costs_four_write_units_and_reads_nothing(orders: Orders) -> None:
    """Two for the table and two for the index of open entries: one each to reserve and to settle."""
    assert orders.admit("a").verdict is Verdict.RUN

    assert orders.meter.write_units == 4.0
    assert orders.meter.index_units == 2.0
    assert orders.meter.reads == 0
    assert orders.meter.requests == {"put_item": 1, "update_item": 1}


def test_replay_from_the_table_costs_one_request_that_is_refused(orders: Orders, new_table: str) -> None:
    """The refused write brings the outcome; a second process has nothing in memory.

    The service charges a refused write as one unit, and its answer names none.
    """
    orders.admit("a")
    other = Orders(new_table)

    with other.gate:
        again = other.admit("a")

    assert (again.verdict, again.value) == (Verdict.REPLAY, {"slot": "a"})
    assert other.meter.requests == {"put_item": 1}
    assert other.meter.write_units <= 1.0


def test_event_that_is_only_recorded_costs_one_write_unit(orders: Orders) -> None:
    """It never enters the index."""
    session = DynamoStore(orders.address, clock=orders.clock, watch=orders.meter).connect()
    session.now_ticks()
    orders.meter.reset()
    wanted = Reservation(b"k" * 32, "", "seen", "a", b"content", b"", 0, 20_000, 8, 77)

    (answer,) = session.record([wanted], b"null")

    assert answer.decision is Decision.RUN
    assert (orders.meter.write_units, orders.meter.index_units, orders.meter.reads) == (1.0, 0.0, 0)


def test_renewal_costs_one_write_unit_and_leaves_the_index_alone(orders: Orders) -> None:
    """The index is sorted by the minute of the reservation, which a renewal does not change."""
    session = DynamoStore(orders.address, clock=orders.clock, watch=orders.meter).connect()
    wanted = Reservation(b"r" * 32, "", "seen", "a", b"content", b"", 0, 20_000, 8, 78)
    (claim,) = session.reserve([wanted])
    orders.meter.reset()

    assert session.renew([Renewal(*claim.claim, 20_000)]) == [True]

    assert (orders.meter.write_units, orders.meter.index_units, orders.meter.reads) == (1.0, 0.0, 0)
