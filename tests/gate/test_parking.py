"""A sender whose events cannot be run does not fill the disk: room for what waits is bounded (I18)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oncegate import Gate, Verdict
from oncegate.errors import Backlogged
from oncegate.model.parking import COUNT_AGAIN_MS, COUNT_EVERY_MS, TENANTS_SHARE, Parked, Parking
from oncegate.store import EntryFilter, Store
from oncegate.stores.postgres import PostgresStore
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Store:
    if request.param == "sqlite":
        return SqliteStore(tmp_path / "ledger.db", clock=clock)
    return PostgresStore(request.getfixturevalue("ledger_url"), clock=clock)


def gate_of(store: Store, clock: ManualClock, **options: Any) -> Gate:
    gate = Gate(store=store, clock=clock, **options)
    gate.handler("orders", key="{id}")(lambda event: "done")
    return gate


def strange(number: int, size: int = 1) -> dict[str, Any]:
    """An event without the field that makes its key."""
    return {"number": number, "text": "x" * size}


def test_beyond_the_bound_events_are_refused_and_others_go_on(store: Store, clock: ManualClock) -> None:
    with gate_of(store, clock, parked_max=3) as gate:
        for number in range(3):
            assert gate.admit_sync("orders", strange(number)).verdict is Verdict.QUARANTINE
        with pytest.raises(Backlogged, match="oncegate quarantine list") as refused:
            gate.admit_sync("orders", strange(3))

        assert refused.value.retry_after_seconds == 60.0
        assert gate.admit_sync("orders", strange(2)).verdict is Verdict.QUARANTINE, "a repeat adds nothing"
        assert gate.admit_sync("orders", {"id": 1}).verdict is Verdict.RUN
        assert gate.admit_sync("orders", strange(3), tenant="another").verdict is Verdict.QUARANTINE
        with store.look() as session:
            found = session.parked("orders", "")
            assert (found.entries, 60 < found.bytes < 120) == (3, True)
            assert session.parked("orders", "another").entries == 1
            assert session.parked("nowhere", "") == Parked(0, 0)


def test_bytes_are_bounded_too(store: Store, clock: ManualClock) -> None:
    with gate_of(store, clock, parked_bytes_max=5_000) as gate:
        gate.admit_sync("orders", strange(1, 3_000))
        with pytest.raises(Backlogged):
            gate.admit_sync("orders", strange(2, 3_000))
        assert gate.admit_sync("orders", strange(3, 1_000)).verdict is Verdict.QUARANTINE


def test_other_contents_under_a_key_are_within_the_bound(store: Store, clock: ManualClock) -> None:
    with gate_of(store, clock, parked_max=2) as gate:
        for amount in range(3):
            gate.admit_sync("orders", {"id": 1, "amount": amount})
        with pytest.raises(Backlogged):
            gate.admit_sync("orders", {"id": 1, "amount": 3})


def test_another_process_counts_what_the_first_one_kept(store: Store, clock: ManualClock) -> None:
    with gate_of(store, clock, parked_max=3) as first, gate_of(store, clock, parked_max=3) as second:
        for number in range(3):
            first.admit_sync("orders", strange(number))
        with pytest.raises(Backlogged):
            second.admit_sync("orders", strange(9))


def test_there_is_room_again_once_a_person_has_decided(store: Store, clock: ManualClock) -> None:
    with gate_of(store, clock, parked_max=1) as gate:
        gate.admit_sync("orders", strange(1))
        with pytest.raises(Backlogged):
            gate.admit_sync("orders", strange(2))
        with store.look() as session:
            (entry,) = session.entries(EntryFilter(), None, 2)
        gate.people.discard(entry.entry_id, actor="anna", reason="no order")
        clock.advance(COUNT_EVERY_MS / 1000)

        assert gate.admit_sync("orders", strange(2)).verdict is Verdict.QUARANTINE


def test_a_full_place_is_counted_again_soon() -> None:
    parking, pair = Parking(1, 100), ("orders", "")
    assert parking.must_count(pair, 0)
    assert not parking.must_count(pair, COUNT_EVERY_MS - 1)
    parking.counted(pair, Parked(1, 10), 0)
    assert not parking.has_room(pair, 1)
    assert not parking.must_count(pair, COUNT_AGAIN_MS - 1)
    assert parking.must_count(pair, COUNT_AGAIN_MS)


def test_all_tenants_of_a_surface_together_are_bounded_too(store: Store, clock: ManualClock) -> None:
    """A sender that may name any tenant gets no room by naming more of them."""
    with gate_of(store, clock, parked_max=2) as gate:
        for number in range(2 * TENANTS_SHARE):
            gate.admit_sync("orders", strange(number), tenant=f"tenant {number}")
        with pytest.raises(Backlogged):
            gate.admit_sync("orders", strange(99), tenant="another")

        assert gate.admit_sync("orders", {"id": 1}, tenant="another").verdict is Verdict.RUN
