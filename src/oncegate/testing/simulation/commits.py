"""The group commit and the lease keeper of a simulated worker: no threads, a wire instead.

Batches travel to the store and answers travel back in virtual time; what happens on the way, `Network`
decides. Running a batch, reading back a doubtful commit and telling the callers is the production code. A
batch that was sent arrives, whatever has become of its sender; its answer comes only to a sender that is
alive.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context
from typing import Any, Final, Protocol, TypeVar

from msgspec import Struct

from oncegate.clock import Clock
from oncegate.commit.greenlet_bridge import Exclusive
from oncegate.commit.group_commit import TURN_WAIT_SECONDS, GroupCommit
from oncegate.commit.operations import Operation
from oncegate.commit.pending import Pending, deliver, fail
from oncegate.crashpoints import CrashPoints
from oncegate.errors import StoreBusy
from oncegate.gate.runtime.arrival_stats import Sightings
from oncegate.gate.runtime.leases import LeaseKeeper
from oncegate.store import Session, Store
from oncegate.testing.simulation.actors import Actor
from oncegate.testing.simulation.loop import VirtualLoop

T = TypeVar("T")
BUSY_RETRY_SECONDS: Final = 0.005


class Transit(Struct, frozen=True):
    """How long a batch travels to the store and its answer back; None if it is lost on the way."""

    there_seconds: float | None
    back_seconds: float | None


class Network(Protocol):
    """The network between a worker and its store."""

    def next_journey(self) -> Transit:
        """What happens to the next batch."""


class SimulatedCommits(GroupCommit):
    """One worker's group commit in a virtual loop."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        crashpoints: CrashPoints,
        loop: VirtualLoop,
        wire: Network,
    ) -> None:
        super().__init__(store, clock=clock, crashpoints=crashpoints)
        self._loop = loop
        self._wire = wire
        self._nobody = Context()

    def submit(self, operation: Operation[T]) -> T:
        """Runs an operation at once: a plain function cannot let virtual time pass."""
        ticket = Pending(operation)
        self._run([ticket], wait=True)
        return ticket.result()  # type: ignore[no-any-return]

    def _enqueue(self, tickets: list[Pending]) -> None:
        journey = self._wire.next_journey()
        if journey.there_seconds is not None:
            sent = (tickets, journey, copy_context())
            self._loop.call_later(journey.there_seconds, self._arrive, *sent, context=self._nobody)

    def _arrive(self, tickets: list[Pending], journey: Transit, home: Context, waited: float = 0.0) -> None:
        """A batch reaches the store, and waits a while for its turn to write."""
        try:
            self._run(tickets, wait=False)
        except StoreBusy as error:
            if waited < TURN_WAIT_SECONDS:
                again = (tickets, journey, home, 2 * waited + BUSY_RETRY_SECONDS)
                self._loop.call_later(again[-1] - waited, self._arrive, *again, context=self._nobody)
                return
            fail(tickets, error)
        if journey.back_seconds is not None:
            self._loop.call_later(journey.back_seconds, deliver, tickets, context=home)

    @contextmanager
    def transaction(self, *, wait: bool = True, using: Exclusive | None = None) -> Iterator[Session]:
        """A handler's own transaction; refused at once while another has the ledger."""
        session = self.store.connect()
        with session.unit():
            yield session


class SimulatedLeases(LeaseKeeper):
    """A lease keeper without a thread: its worker calls `renew_due`."""

    def _start(self) -> None:
        return

    @property
    def is_needed(self) -> bool:
        """Whether any claim is being worked on."""
        return bool(self._claims)


class SilentSightings(Sightings):
    """Sightings without a thread: what a simulated worker saw is not reported."""

    def _start(self) -> None:
        return


def crash(actor: Actor, store: Any) -> None:
    """Ends an actor: its callbacks never run again and its open transactions are undone."""
    actor.dead = True
    store.disconnect()
