"""What pages remember of long windows never hides what has just arrived, and counts nothing twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncegate.signals.measures import Memory
from oncegate.signals.snapshot import DAY, WEEK
from oncegate.store import Observations, Reservation, Store, Tally, What
from oncegate.testing import ManualClock
from oncegate.wiring import open_store


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Store:
    store = open_store(f"sqlite:///{tmp_path / 'ledger.db'}", clock=clock)
    store.migrate()
    return store


def observe(store: Store, minute: int, count: int) -> None:
    session = store.connect()
    with session.unit():
        session.observe([Observations((Tally("orders", minute, What.FRESH, count),))])
    session.close()


def arrivals(store: Store, memory: Memory, length: int, end: int) -> int:
    with store.look() as session:
        found = memory.sums(session, length, end)
    return found["orders"].arrivals if found else 0


@pytest.mark.parametrize("length", [DAY, WEEK])
def test_what_arrives_after_the_first_look_is_in_the_next(store, clock, length):
    memory, now = Memory(), clock.wall_ms() // 60_000
    assert arrivals(store, memory, length, now + 1) == 0
    total = 0
    for minute in range(now, now + 30):
        observe(store, minute, 3)
        total += 3
        assert arrivals(store, memory, length, minute + 1) == total
        assert arrivals(store, Memory(), length, minute + 1) == total


def test_a_minute_that_is_written_down_late_is_counted(store, clock):
    """Processes write down what they counted some seconds after its minute."""
    memory, now = Memory(), clock.wall_ms() // 60_000
    observe(store, now - 60, 7)
    assert arrivals(store, memory, DAY, now + 1) == 7
    observe(store, now - 2, 5)
    assert arrivals(store, memory, DAY, now + 2) == 12


def test_a_window_is_not_read_anew_with_every_look(store, clock, monkeypatch):
    memory, now = Memory(), clock.wall_ms() // 60_000
    asked: list[int] = []
    with store.look() as session:
        real = session.tally_sums

        def noting(start: int, to: int) -> list[Tally]:
            asked.append(to - start)
            found: list[Tally] = real(start, to)
            return found

        monkeypatch.setattr(session, "tally_sums", noting)
        for _ in range(3):
            memory.sums(session, WEEK, now + 1)
    assert asked == [WEEK - 5, 5, 5, 5]


@pytest.fixture(params=["sqlite", "postgres"])
def either(request: pytest.FixtureRequest, store: Store, clock: ManualClock) -> Store:
    if request.param == "sqlite":
        return store
    return open_store(request.getfixturevalue("ledger_url"), clock=clock)


def park(store: Store, number: int) -> None:
    session = store.connect()
    wanted = Reservation(
        bytes([number]) * 24,
        "",
        "orders",
        f"o-{number}",
        b"f" * 16,
        b"{}",
        1_000,
        1_000,
        8,
        number,
        "skew: 2h",
    )
    with session.unit():
        session.reserve([wanted])
    session.close()


def test_what_begins_to_wait_is_counted_at_the_next_look(either):
    """Given a page that remembers; what is as before is not counted again, what has changed is."""
    memory = Memory()
    for number in range(1, 4):
        park(either, number)
        for _ in range(2):
            with either.look() as session:
                (found,) = memory.waiting(session)
            assert (found.count, found.reason) == (number, "skew")
