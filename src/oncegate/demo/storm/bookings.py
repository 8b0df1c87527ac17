"""The table of bookings that both booking systems write.

It has no unique column on purpose: what keeps a container from being booked twice is the gate or nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from oncegate.demo.storm.story import Event
from oncegate.demo.terminal_client import Slot

CREATE_BOOKINGS: Final = (
    "CREATE TABLE IF NOT EXISTS demo_bookings"
    " (slot TEXT NOT NULL, equipment TEXT NOT NULL, slot_window TEXT NOT NULL, notification TEXT NOT NULL)"
)
READ_BOOKINGS: Final = "SELECT slot, equipment FROM demo_bookings"
INSERT_BOOKING: Final = (
    "INSERT INTO demo_bookings (slot, equipment, slot_window, notification) VALUES (?, ?, ?, ?)"
)


@dataclass(frozen=True, slots=True)
class Booking:
    """One row, as far as it is evidence."""

    slot_id: str
    equipment: str


def booking_row(event: Event, slot: Slot) -> tuple[Any, ...]:
    """The values of `INSERT_BOOKING`."""
    return (slot.slot_id, event["equipment_number"], event["window"], event["notificationId"])
