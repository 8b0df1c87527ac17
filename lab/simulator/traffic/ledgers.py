"""The ledgers of simulated traffic: each run begins with entries that wait for a person.

A ledger is used by one run after another: it is taken, and given back when nobody asks it any more.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from typing import Final

from lab.simulator.traffic.plan import ENTRIES
from oncegate.model.states import State
from oncegate.store import Reservation, Session, Settlement
from oncegate.testing.simulation import VirtualClock, VirtualLoop
from oncegate.testing.simulation.embedded import EmbeddedStore, Slate, new_database

_spare: Final[list[Slate]] = []


@contextmanager
def ledger_of_a_run() -> Iterator[sqlite3.Connection]:
    """A ledger as every run begins with it."""
    slate = _spare.pop() if _spare else Slate(_beginning()[0])
    try:
        yield slate.connection
        slate.wipe()
    except BaseException:
        slate.connection.close()
        raise
    _spare.append(slate)


def held_entries() -> tuple[tuple[int, int], ...]:
    """The entries that wait for a person: each with the fence that everybody has seen."""
    return _beginning()[1]


@cache
def _beginning() -> tuple[bytes, tuple[tuple[int, int], ...]]:
    with closing(new_database()) as database:
        session = EmbeddedStore(database, VirtualClock(VirtualLoop())).connect()
        with session.unit():
            held = tuple(_hold(session, number) for number in range(ENTRIES))
        return database.serialize(), held


def _hold(session: Session, number: int) -> tuple[int, int]:
    key, prints = bytes([number]) * 24, b"f" * 16
    wanted = Reservation(key, "", "bookings", "a booking", prints, b"{}", 1, 30_000, 5, number + 1)
    (made,) = session.reserve([wanted])
    session.settle([Settlement(*made.claim, State.HELD, 1, "gate", reason="a person must look")])
    (entry,) = session.read([key])
    assert entry is not None
    return entry.entry_id, entry.fence
