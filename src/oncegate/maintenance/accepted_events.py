"""Runs the handlers of accepted events: in order of their lanes, each once, through the gate.

    async with gate.working():
        ...

In a program without an event loop, `with gate.working():` does the same in a thread of its own. Any number
of processes may do so on one ledger. A lane waits while its head is held for a person or busy elsewhere,
and goes on when that is settled; what ran before a crash is replayed, not run again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final, Self

from oncegate.errors import ConfigError, UsageError
from oncegate.gate.admission import Admission, Verdict
from oncegate.gate.flows.accepting import accepted_arrival, destination_of
from oncegate.gate.flows.conflicts import DECIDED, WAITS
from oncegate.gate.flows.downstream_turns import Resting
from oncegate.gate.gate import GateOnStore
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
        require(gate.store, Facet.LANES, "accepted events")
        self._gate, self._stop_seconds = gate, stop_seconds
        surfaces = [surface.name for surface in gate.surfaces if surface.lane is not None]
        if not surfaces:
            raise ConfigError("no surface accepts events; register one with mode='accept'")
        destinations = [self._destination(name, concurrency) for name in surfaces]
        options = {"crashpoints": gate.crashpoints, **options}
        self._engine = Engine(gate.commits, destinations, clock=gate.clock, **options)
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        gate.on_accepted(self._engine.wake)

    def _destination(self, surface: str, concurrency: int) -> Destination:
        name, run = destination_of(surface), self._runs(surface)
        return Destination(name, run, _PATIENCE, concurrency=concurrency, circuit=False)

    def _runs(self, surface: str) -> Callable[[Delivery], Awaitable[Outcome]]:
        async def run(delivery: Delivery) -> Outcome:
            circuits = self._gate.circuits
            if (resting := circuits.rests(surface)) is not None:
                return NotYet(circuits.why(resting[0]), max(resting[1] / 1000, 0.1))
            try:
                return _outcome(await self._gate.run_accepted(surface, *accepted_arrival(delivery)))
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

    def __enter__(self) -> Self:
        foreign = [s.name for s in self._gate.surfaces if s.lane is not None and s.is_async]
        if foreign:
            raise UsageError(f"the handler of {foreign[0]} is async; use `async with` instead")
        self._stop.clear()
        self._thread = threading.Thread(target=self._work_apart, name="oncegate-accepted", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _work_apart(self) -> None:
        asyncio.run(self._work_until_stopped())

    async def _work_until_stopped(self) -> None:
        async with self:
            await asyncio.to_thread(self._stop.wait)


def _outcome(admission: Admission) -> Outcome:
    if admission.verdict in (Verdict.BUSY, Verdict.HOLD, Verdict.QUARANTINE):
        wait = admission.retry_after_seconds if admission.verdict is Verdict.BUSY else HELD_SECONDS
        return NotYet(admission.reason or admission.verdict.value, max(wait, 0.1))
    if admission.verdict is Verdict.CONFLICT and admission.reason not in (WAITS, DECIDED):
        return Dead("its key was run with another content meanwhile, and this one is not kept elsewhere")
    return Delivered(admission.verdict.value if admission.error is None else f"failed: {admission.error}")
