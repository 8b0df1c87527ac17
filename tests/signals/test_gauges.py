"""The history of gauges: kept by the watch on both ledgers, apart from what happened at surfaces (E5)."""

from __future__ import annotations

from typing import Any

import pytest

from oncegate.signals import definitions as d
from oncegate.signals.alerts import Signal
from oncegate.signals.definition import Level
from oncegate.signals.definitions import DEFINITIONS
from oncegate.signals.gauges import EVERYWHERE, NUMBERS, curve, reading
from oncegate.signals.measures import measure
from oncegate.signals.watch import Watch
from oncegate.store import Reservation, Store, Tally
from oncegate.store.tallies import is_gauge
from oncegate.testing import Fault, Faults, ManualClock, faulty
from oncegate.wiring import open_store


def strand(store: Store, clock: ManualClock, *surfaces: str) -> None:
    """Events that nobody finishes, one at each surface."""
    session = store.connect()
    with session.unit():
        session.reserve(
            [
                Reservation(
                    name.encode() * 4, "", name, name, b"f" * 16, b"{}", clock.wall_ms(), 1000, 8, 1
                )
                for name in surfaces
            ]
        )
    session.close()


def minutes(store: Store) -> list[list[Tally]]:
    """Everything that was kept, a list for each minute."""
    with store.look() as session:
        found = session.tallies(0, 2**40)
    return [[one for one in found if one.minute == at] for at in sorted({one.minute for one in found})]


def test_the_watch_keeps_what_gauges_show_minute_by_minute(store: Store, clock: ManualClock) -> None:
    """Ages are the worst of all surfaces, counts their sum, and a minute of zero is known to be zero."""
    watch = Watch(store, clock, notifiers=())
    watch.run_once()
    clock.advance(60)
    strand(store, clock, "orders", "routes")
    for _ in range(3):
        clock.advance(60)
        watch.run_once()
    kept = minutes(store)
    assert curve(d.LAPSED.name, kept) == [0.0, 2.0, 2.0, 2.0]
    assert curve(d.IN_FLIGHT_AGE.name, kept) == pytest.approx([0.0, 60.0, 120.0, 180.0], abs=1.0)
    assert curve(d.WAITING.name, kept) == [0.0] * 4


def test_a_gauge_is_nothing_that_happened_at_a_surface(store: Store, clock: ManualClock) -> None:
    """No signal, count or list of surfaces changes because somebody has looked."""
    Watch(store, clock, notifiers=()).run_once()
    with store.look() as session:
        snapshot = measure(session, clock)
    assert (snapshot.surfaces, set().union(*snapshot.windows.values())) == ([], set())
    assert all(is_gauge(tally.what) for minute in minutes(store) for tally in minute)


def test_several_watches_in_a_minute_make_one_mean_value(store: Store, clock: ManualClock) -> None:
    """Any number may watch: the curve is not the higher for it."""
    strand(store, clock, "orders")
    clock.advance(10)
    for _ in range(3):
        Watch(store, clock, notifiers=()).run_once()
    (kept,) = minutes(store)
    assert curve(d.LAPSED.name, [[], kept]) == [None, 1.0]


@pytest.mark.parametrize("fault", [Fault.DOWN, Fault.UNDONE])
def test_readings_that_cannot_be_kept_hide_no_alarm(
    tmp_path: Any, clock: ManualClock, fault: Fault
) -> None:
    """A gap in a curve is better than an alarm that nobody hears of."""
    faults = Faults()
    store = open_store(f"sqlite:///{tmp_path / 'ledger.db'}", clock=clock)
    strand(store, clock, "orders")
    clock.advance(3600)
    faults.plan.extend([Fault.NONE, Fault.NONE, fault])  # the time, the measures, then the readings
    report = Watch(faulty(store, faults), clock, notifiers=()).run_once()
    assert "in_flight_age" in {notice.signal.definition.name for notice in report.notices}
    assert minutes(store) == []


def test_every_gauge_has_a_number_of_its_own() -> None:
    """They are stored: one that changed would draw another signal's past."""
    assert list(NUMBERS.values()) == list(range(1, 23))
    assert set(NUMBERS) < {one.name for one in DEFINITIONS}


def test_what_nobody_looked_at_has_no_curve() -> None:
    """Nor has a signal that is counted anyway."""
    lapsed = Signal(d.LAPSED, "orders", 2.0, Level.OK)
    (looked, value) = reading([lapsed, Signal(d.SENDER_BUGS, "orders", 5.0, Level.OK)], 7).tallies
    assert (looked.surface, value.surface, value.total) == (EVERYWHERE, EVERYWHERE, 2000)
    assert curve(d.LAPSED.name, [[], []]) == []
    assert curve(d.SENDER_BUGS.name, [[looked, value]]) == []
