"""The two booking systems of the story: the one that was, and the same one behind the gate.

Who calls it: the worker processes, and for the gated one also the reconciler. Both claim a slot at the
terminal and then write a booking, and both meet their fault between the two. Must never differ in anything
else: the comparison is only fair that way.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from oncegate import Gate, Once
from oncegate.clock import Clock
from oncegate.crashpoints import CrashPoints
from oncegate.demo.storm.bookings import INSERT_BOOKING, booking_row
from oncegate.demo.storm.story import Event, StormFault
from oncegate.demo.terminal_client import TerminalClient
from oncegate.testing.crashing import ArmedCrashPoints, kill_this_process

SURFACE: Final = "demo.container-notifications"
# So that a demo need not wait for its dead; the default is 20 s.
LEASE: Final = "1s"
BUSY_WAIT_SECONDS: Final = 5.0


class BookingsUnavailable(Exception):
    """The write of a booking failed, after the slot was claimed."""


class BookingSystem(Protocol):
    """What a worker runs its deliveries through."""

    def take(self, event: Event, fault: StormFault | None) -> str:
        """Work one delivery off, or raise; returns a word for what was done."""

    def close(self) -> None:
        """Let go of connections."""


class UngatedSystem:
    """The booking system as it was on that Monday."""

    def __init__(self, database: Path, client: TerminalClient) -> None:
        self._client = client
        self._connection = sqlite3.connect(database, timeout=BUSY_WAIT_SECONDS)

    def take(self, event: Event, fault: StormFault | None) -> str:
        """Claim a slot without a key, then write the booking; whatever fails between leaves a ghost."""
        slot = self._client.claim(event["equipment_number"], event["window"], idempotency_key=None)
        if fault is StormFault.KILL:
            kill_this_process("after the claim")
        if fault is StormFault.ERROR:
            raise BookingsUnavailable("the booking could not be written")
        with self._connection:
            self._connection.execute(INSERT_BOOKING, booking_row(event, slot))
        return "run"

    def close(self) -> None:
        """Close the database and the connection to the terminal."""
        self._connection.close()
        self._client.close()


def register_booking(gate: Gate, client: TerminalClient, before_booking: Callable[[], None]) -> None:
    """The same system behind the gate: this is all that changes."""
    terminal = gate.downstream("terminal", honours_key="7d", probe=client.owned_by)

    @gate.handler(SURFACE, key="{notificationId}:{equipment_number}", lease=LEASE, on_busy="wait")
    def book(event: Event, once: Once) -> dict[str, str]:
        container, window = event["equipment_number"], event["window"]
        slot = once.effect(terminal, client.claim, container, window, name="claim_slot")
        before_booking()
        once.commit(resource=slot.slot_id, writes=[(INSERT_BOOKING, booking_row(event, slot))])
        return {"slot": slot.slot_id}


class GatedSystem:
    """The booking system behind the gate."""

    def __init__(self, url: str, client: TerminalClient, clock: Clock) -> None:
        self._url = url
        self._client = client
        self._clock = clock
        self._fault: StormFault | None = None
        self._gate = self._open(CrashPoints())

    def take(self, event: Event, fault: StormFault | None) -> str:
        """Admit one delivery; raises unless the key has its outcome afterwards."""
        self._fault = fault
        if fault is not StormFault.KILL:
            return self._admit_and_tell(event)
        with contextlib.closing(self._open(ArmedCrashPoints("effect.after"))) as doomed:
            return _admit(doomed, event)

    def _admit_and_tell(self, event: Event) -> str:
        """Reports what was seen at once and not once a second: this process may not live so long."""
        try:
            return _admit(self._gate, event)
        finally:
            self._gate.engine.sightings.flush()

    def _open(self, crashpoints: CrashPoints) -> Gate:
        gate = Gate(self._url, clock=self._clock, crashpoints=crashpoints, actor="source/queue")
        register_booking(gate, self._client, self._fail_if_told)
        return gate

    def _fail_if_told(self) -> None:
        if self._fault is StormFault.ERROR:
            raise BookingsUnavailable("the booking could not be written")

    def close(self) -> None:
        """Close the gate and the connection to the terminal."""
        self._gate.close()
        self._client.close()


def _admit(gate: Gate, event: Event) -> str:
    admission = gate.admit_sync(SURFACE, event)
    admission.result()
    return admission.verdict.value
