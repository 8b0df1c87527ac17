"""The two sides of the comparison: how their workers are started, and where their bookings are found.

Called by `play.py`, which treats both alike.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final, Protocol

from oncegate import Gate
from oncegate.config import URL_VARIABLE
from oncegate.demo.storm import evidence
from oncegate.demo.storm.bookings import Booking
from oncegate.demo.storm.evidence import Recoveries
from oncegate.demo.storm.handlers import LEASE, register_booking
from oncegate.demo.storm.scene import Scene
from oncegate.demo.terminal_client import TerminalClient
from oncegate.maintenance.reconciler import Reconciler
from oncegate.store import Store

RECONCILE_PAUSE_SECONDS: Final = 0.05  # a twentieth of the lease whose end is waited for


class StormSide(Protocol):
    """One booking system and what is left of it."""

    name: str
    worker_arguments: list[str]
    worker_environment: dict[str, str]

    def prepare(self) -> None:
        """Make what the workers expect to find."""

    def recover(self, scene: Scene, terminal_url: str) -> None:
        """Do what can be done about work that killed workers left open."""

    def bookings(self) -> list[Booking]:
        """Read every booking."""

    def recoveries(self) -> Recoveries | None:
        """Read who finished what killed workers had begun, if there is an account of it."""


class UngatedSide:
    """The booking system as it was."""

    name = "without the gate"

    def __init__(self, database: Path) -> None:
        self._database = database
        self.worker_arguments = ["--ungated", str(database)]
        self.worker_environment: dict[str, str] = {}

    def prepare(self) -> None:
        """Make the file of bookings."""
        evidence.prepare_file(self._database)

    def recover(self, scene: Scene, terminal_url: str) -> None:
        """Does nothing: without a gate nothing records what is open."""

    def bookings(self) -> list[Booking]:
        """Read every booking."""
        return evidence.file_bookings(self._database)

    def recoveries(self) -> Recoveries | None:
        """There is no account."""
        return None


class GatedSide:
    """The same booking system behind the gate."""

    name = "with the gate"

    def __init__(self, url: str, store: Store) -> None:
        self._url = url
        self._store = store
        self.worker_arguments: list[str] = []
        self.worker_environment = {URL_VARIABLE: url}

    def prepare(self) -> None:
        """Make the table of bookings, in the ledger's own database."""
        evidence.prepare_ledger(self._store)

    def recover(self, scene: Scene, terminal_url: str) -> None:
        """Run the reconciler until no key is open; it finds them once their leases have expired."""
        with (
            contextlib.closing(TerminalClient(terminal_url)) as client,
            contextlib.closing(Gate(self._url)) as gate,
            evidence.connected(self._store) as session,
        ):
            register_booking(gate, client, before_booking=_no_fault)
            reconciler, left = Reconciler(gate), evidence.open_entries(session)
            scene.progress.say(
                f"{self.name}: {left} keys are left in flight, their messages lost; reconciling"
                f" (lease {LEASE} here, 20s by default)"
            )
            while left:
                scene.deadline.check(f"the reconciler could not finish {left} keys")
                reconciler.run_once()
                left = evidence.open_entries(session)
                scene.clock.pause(RECONCILE_PAUSE_SECONDS if left else 0)

    def bookings(self) -> list[Booking]:
        """Read every booking."""
        return evidence.ledger_bookings(self._store)

    def recoveries(self) -> Recoveries | None:
        """Read the ledger's log."""
        return evidence.read_recoveries(self._store)


def _no_fault() -> None:
    """Nothing befalls the reconciler."""
