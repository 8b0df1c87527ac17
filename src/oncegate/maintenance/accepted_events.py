"""Runs the handlers of accepted events: in order of their lanes, each once, through the gate.

The worker runs this as its job `accepted`. Any number of processes may do so on one ledger. A lane waits
while its head is held for a person or busy elsewhere, and goes on when that is settled; what ran before a
crash is replayed, not run again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final, Self

from oncegate.errors import ConfigError
from oncegate.gate.admission import Admission, Verdict
from oncegate.gate.facade import GateOnStore
from oncegate.gate.flows.accepting import accepted_arrival, destination_of
from oncegate.gate.flows.conflicts import DECIDED, WAITS
from oncegate.gate.flows.downstream_turns import Resting
from oncegate.gate.surface import Surface
from oncegate.lanes import Delivered, Destination, Engine, NotYet, Pass, RetryLater
from oncegate.lanes.engine import STOP_SECONDS
from oncegate.lanes.outcomes import Dead, Outcome
from oncegate.model.backoff import Backoff
from oncegate.store import Delivery, Facet, require

HELD_SECONDS: Final = 5.0  # how soon a lane looks again whether a person has decided about its head
# The gate times a key's retries and holds it for a person in the end; the lane only waits.
_PATIENCE: Final = Backoff(cap=timedelta(minutes=1), retry_for=None)


class AcceptedWork:
    """The engine behind a gate's accepting surfaces."""

    def __init__(
        self,
        gate: GateOnStore,
        *,
        concurrency: int = 64,
        stop_seconds: float = STOP_SECONDS,
        **options: Any,
    ) -> None:
        require(gate.engine.store, Facet.LANES, "accepted events")
        self._gate, self._stop_seconds = gate, stop_seconds
        destinations = [self._destination(one.name, concurrency) for one in accepting_surfaces(gate)]
        options = {"crashpoints": gate.engine.crashpoints, **options}
        self._engine = Engine(gate.engine.commits, destinations, clock=gate.engine.clock, **options)
        gate.engine.on_accepted(self._engine.wake)

    def _destination(self, surface: str, concurrency: int) -> Destination:
        name, run = destination_of(surface), self._runs(surface)
        return Destination(name, run, _PATIENCE, concurrency=concurrency, circuit=False)

    def _runs(self, surface: str) -> Callable[[Delivery], Awaitable[Outcome]]:
        async def run(delivery: Delivery) -> Outcome:
            circuits = self._gate.engine.circuits
            if (resting := circuits.rests(surface)) is not None:
                return NotYet(circuits.why(resting[0]), max(resting[1] / 1000, 0.1))
            try:
                return _outcome(await self._gate.engine.run_accepted(surface, *accepted_arrival(delivery)))
            except Resting as error:
                return NotYet(str(error), max(error.retry_after_seconds or 0.0, 0.1))
            except Exception as error:  # noqa: BLE001  the gate has recorded it: the next try learns the end
                return RetryLater(f"{type(error).__name__}: {error}")

        return run

    async def run_once(self) -> Pass:
        """Runs all that is due, with all that follows from it."""
        return await self._engine.run_once()

    async def __aenter__(self) -> Self:
        await self._engine.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._engine.stop(self._stop_seconds)


def accepting_surfaces(gate: GateOnStore) -> list[Surface]:
    """The surfaces with `mode="accept"`; raises ConfigError where there is none."""
    surfaces = [surface for surface in gate.engine.surfaces if surface.lane is not None]
    if not surfaces:
        raise ConfigError("no surface accepts events; register one with mode='accept'")
    return surfaces


def _outcome(admission: Admission) -> Outcome:
    if admission.verdict in (Verdict.BUSY, Verdict.HOLD, Verdict.QUARANTINE):
        wait = admission.retry_after_seconds if admission.verdict is Verdict.BUSY else HELD_SECONDS
        return NotYet(admission.reason or admission.verdict.value, max(wait, 0.1))
    if admission.verdict is Verdict.CONFLICT and admission.reason not in (WAITS, DECIDED):
        return Dead("its key was run with another content meanwhile, and this one is not kept elsewhere")
    return Delivered(admission.verdict.value if admission.error is None else f"failed: {admission.error}")
