"""Broken claims and leases: who holds a key, and for how long."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from lab.broken_gates.broken_gate import BrokenGate
from lab.simulator.worker import TrueFace
from oncegate.gate.runtime.claim import Claim
from oncegate.model.states import Decision, Known, State, judge
from oncegate.store import Renewal, Reservation, Reserved
from oncegate.testing.simulation.claims import Acting
from oncegate.testing.simulation.commits import SimulatedLeases
from oncegate.testing.simulation.ledger import Row
from oncegate.testing.simulation.store import SimulatedSession


class UnfencedCommit(BrokenGate):
    """The unfenced commit.

    The outcome is written with `WHERE key = ?`. A worker that was stalled past its lease wakes up and
    settles the claim of its successor, which is still at work.
    """

    caught_as = ("I4",)

    class session_type(SimulatedSession):  # noqa: N801
        def is_held(self, row: Row, item: Acting) -> bool:
            return True


class SettledTwice(BrokenGate):
    """The outcome that can be written again.

    The fence is compared, the state is not: a renewal or a write that arrives after the end still counts,
    so that what was final changes.
    """

    caught_as = ("I4", "I9")

    class session_type(SimulatedSession):  # noqa: N801
        def holder(self, item: Acting) -> Row | None:
            row = self._tables.rows.get(item.entry_id)
            return row if row is not None and row.fence == item.fence else None


class FenceThatStays(BrokenGate):
    """The fence that does not grow.

    A key is taken over with the number it had. The old holder and the new one cannot be told apart, and
    either may end the other's claim.
    """

    caught_as = ("I4",)

    class session_type(SimulatedSession):  # noqa: N801
        def take_over(self, row: Row, item: Reservation, decision: Decision, now: int) -> Reserved:
            taken = super().take_over(row, item, decision, now)
            self._put(replace(self._tables.rows[row.entry_id], fence=row.fence))
            return replace(taken, fence=row.fence)


class UnfencedRenewal(BrokenGate):
    """The heartbeat that keeps another worker's claim alive.

    Renewing asks only for the key. A worker that lost it goes on renewing what its successor holds.
    """

    caught_as = ("I4",)

    class session_type(SimulatedSession):  # noqa: N801
        def _renew(self, claim: Renewal) -> bool:
            row = self._tables.rows[claim.entry_id]
            if row.state is not State.IN_FLIGHT:
                return False
            self._put(replace(row, lease_until_ticks=self.now_ticks() + claim.lease_ms))
            return True


class ClientClockExpiry(BrokenGate):
    """Leases by the caller's wall clock.

    `expires_at < now()` with the application's clock: a time server that steps a worker's clock ahead makes
    every live claim look dead.
    """

    caught_as = ("I15",)

    class session_type(SimulatedSession):  # noqa: N801
        def now_ticks(self) -> int:
            return self._clock.wall_ms()


class RunAgainOnLapse(BrokenGate):
    """The expired lease as a permit to run again.

    When the lease is over the key is simply free: the next worker starts from nothing, whatever the last
    one had done by then.
    """

    caught_as = ("I1",)

    class session_type(SimulatedSession):  # noqa: N801
        def take_over(self, row: Row, item: Reservation, decision: Decision, now: int) -> Reserved:
            taken = super().take_over(row, item, decision, now)
            return replace(taken, decision=Decision.RUN, attempt=1, steps=())


class ForgottenSteps(BrokenGate):
    """The retry that does not know what is done.

    Steps are recorded, but a later attempt is not given them: the mail that was sent is sent again when a
    step after it failed.
    """

    caught_as = ("I1",)
    surfaces = ("mail", "trip")

    class session_type(SimulatedSession):  # noqa: N801
        def take_over(self, row: Row, item: Reservation, decision: Decision, now: int) -> Reserved:
            return replace(super().take_over(row, item, decision, now), steps=())


class KeptForEver(BrokenGate):
    """The lock without an end.

    A key in flight is in flight until its worker says otherwise, and a dead worker never does: the event is
    refused for ever.
    """

    caught_as = ("I2",)

    class session_type(SimulatedSession):  # noqa: N801
        def decide(self, known: Known, item: Reservation, now: int) -> Decision:
            if known.state is State.IN_FLIGHT and known.fingerprint == item.fingerprint:
                return Decision.BUSY
            return judge(known, item.fingerprint, now, item.attempts_max)


class ConfidentZombie(BrokenGate):
    """The zombie that does not look at its watch.

    A worker that was stalled does not ask whether it still holds the key before it calls. Its fence stops
    the commit, and not the call.
    """

    caught_as = ("I1",)
    surfaces = ("print", "mail", "trip")

    class face_type(TrueFace):  # noqa: N801
        class leases_type(SimulatedLeases):  # noqa: N801
            def watch(self, claim: Claim) -> None:
                super().watch(claim)
                claim.valid_until_ms = 10**15


class FailOpen(BrokenGate):
    """The gate that fails open.

    When the store cannot be reached the event is let through, because a duplicate seemed better than a
    delay.
    """

    caught_as = ("I5", "I1", "I3")

    class face_type(TrueFace):  # noqa: N801
        async def admit(self, surface: str, event: dict[str, Any]) -> Any:
            from oncegate.errors import StoreUnavailable

            try:
                return await super().admit(surface, event)
            except StoreUnavailable:
                return await self.run_without_gate(surface, event)


class UnknownIsYes(BrokenGate):
    """The lost reply taken for a yes.

    The answer to the reservation was lost. It was probably committed, so the handler is run; it was not.
    """

    caught_as = ("I5", "I1", "I3")

    class face_type(TrueFace):  # noqa: N801
        async def admit(self, surface: str, event: dict[str, Any]) -> Any:
            from oncegate.errors import StoreUnknown

            try:
                return await super().admit(surface, event)
            except StoreUnknown:
                return await self.run_without_gate(surface, event)
