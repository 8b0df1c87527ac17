"""Lanes on the embedded ledger over a restart of the machine: ticks begin again, lanes go on (I15)."""

from __future__ import annotations

from pathlib import Path

from oncegate.store import Failure
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing import ManualClock
from tests.lanes.lane_site import lease, outgoing


def test_leases_and_waits_end_after_a_restart(tmp_path: Path) -> None:
    """A dead worker's lane is free at once; a wait lasts no longer than it was asked for."""
    clock = ManualClock()
    store = SqliteStore(tmp_path / "ledger.db", clock=clock)
    session = store.connect()
    with session.unit():
        session.enqueue([outgoing("w", "waits"), outgoing("h", "held")])
    for delivery in lease(session):
        if delivery.key == "waits":
            with session.unit():
                session.fail([Failure(delivery.lane_id, delivery.fence, delivery.holder, 60_000, "500")])
    session.close()
    clock.reboot("second", 1_000)

    session = store.connect()

    assert [delivery.key for delivery in lease(session)] == ["held"]
    clock.advance(60)
    assert "waits" in [delivery.key for delivery in lease(session)]
    session.close()
