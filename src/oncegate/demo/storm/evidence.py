"""What the storm left behind, counted from what is on disk: the terminal's record, bookings, the ledger.

Called after everything has ended. Must never take a number from the story or from what workers reported,
except where only the parent can know it: deliveries, kills and errors.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from oncegate.demo.storm.bookings import CREATE_BOOKINGS, READ_BOOKINGS, Booking
from oncegate.demo.storm.handlers import SURFACE
from oncegate.demo.terminal_client import Slot, read_record
from oncegate.errors import ConfigError
from oncegate.model.states import State
from oncegate.model.surface import WORKER
from oncegate.store import EntryDetail, EntryFilter, LogKind, Session, Store

# That Monday's bill, about EUR 6,800, over its 48 surplus appointments.
LATE_CANCELLATION_EUR: Final = 142
RECONCILER: Final = WORKER  # the author of what recovery does
ENTRIES_MAX: Final = 10_000  # far more than one storm can make

OPEN_STATES: Final = (State.IN_FLIGHT, State.RETRYABLE)


@dataclass(frozen=True, slots=True)
class Recoveries:
    """What the ledger says about keys that a killed worker left in flight."""

    by_redelivery: int
    by_reconciler: int
    unfinished: int

    @property
    def total(self) -> int:
        """How often a stranded key was taken over."""
        return self.by_redelivery + self.by_reconciler


@dataclass(frozen=True, slots=True)
class Count:
    """One run in numbers. `recoveries` is None where there was no ledger."""

    deliveries: int
    slots: int
    bookings: int
    ghost_slots: int
    double_slots: int
    containers_without_booking: int
    late_cancellations_eur: int
    killed: int
    errors: int
    recoveries: Recoveries | None


def sold_slots(record: Path) -> list[Slot]:
    """Every slot on the terminal's own record that was not cancelled."""
    events = read_record(record)
    cancelled = {event["slot"] for event in events if event["event"] == "cancelled"}
    sold = [Slot.from_json(event) for event in events if event["event"] == "sold"]
    return [slot for slot in sold if slot.slot_id not in cancelled]


def surplus(slots: Sequence[Slot]) -> int:
    """How many slots there are beyond one for each container."""
    return len(slots) - len(Counter(slot.equipment for slot in slots))


def ghosts(slots: Sequence[Slot], bookings: Sequence[Booking]) -> int:
    """How many slots no booking knows of."""
    booked = {(booking.slot_id, booking.equipment) for booking in bookings}
    return sum((slot.slot_id, slot.equipment) not in booked for slot in slots)


def unbooked(containers: Sequence[str], bookings: Sequence[Booking]) -> int:
    """How many containers have no booking at all."""
    return len(set(containers) - {booking.equipment for booking in bookings})


@contextlib.contextmanager
def connected(store: Store) -> Iterator[Session]:
    """A session that is closed afterwards."""
    session = store.connect()
    try:
        yield session
    finally:
        session.close()


def prepare_ledger(store: Store) -> None:
    """Make the table of bookings; refuse a ledger in which an earlier storm would be counted again."""
    with connected(store) as session:
        if session.entries(EntryFilter(surface=SURFACE), None, 1):
            raise ConfigError(f"{store.address} already holds a demo run; give the demo a fresh ledger")
        with session.unit():
            session.execute(CREATE_BOOKINGS, ())


def ledger_bookings(store: Store) -> list[Booking]:
    """The bookings that were committed with their keys."""
    with connected(store) as session, session.unit():
        return [
            Booking(str(slot), str(equipment)) for slot, equipment in session.execute(READ_BOOKINGS, ())
        ]


def prepare_file(database: Path) -> None:
    """Make the table of bookings of the system without a gate."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(CREATE_BOOKINGS)


def file_bookings(database: Path) -> list[Booking]:
    """The bookings of the system without a gate."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return [Booking(*row) for row in connection.execute(READ_BOOKINGS)]


def open_entries(session: Session) -> int:
    """How many keys have no outcome yet and are still to be looked at."""
    return len(session.entries(EntryFilter(OPEN_STATES, SURFACE), None, ENTRIES_MAX))


def read_recoveries(store: Store) -> Recoveries:
    """Read from the ledger's log who finished what killed workers had begun."""
    with connected(store) as session:
        entries = session.entries(EntryFilter(surface=SURFACE), None, ENTRIES_MAX)
        details = [detail for entry in entries if (detail := session.detail(entry.entry_id)) is not None]
    taken_over = sum(_times(detail, LogKind.RECOVERED) for detail in details)
    reconciled = sum(_was_reconciled(detail) for detail in details)
    unfinished = sum(detail.entry.state is not State.COMMITTED for detail in details)
    return Recoveries(taken_over - reconciled, reconciled, unfinished)


def _times(detail: EntryDetail, kind: LogKind) -> int:
    return sum(record.kind is kind for record in detail.records)


def _was_reconciled(detail: EntryDetail) -> bool:
    """Whether a key was stranded and the reconciler is who committed it."""
    committed_by = [record.actor for record in detail.records if record.kind is LogKind.COMMITTED]
    return _times(detail, LogKind.RECOVERED) > 0 and committed_by == [RECONCILER]
