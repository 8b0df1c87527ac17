"""A simulated worker: a gate with its caretakers in a process that crashes, stalls and starts again.

Everything in its memory is lost with a crash; the ledger, the downstreams and messages under way are not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from oncegate.chaos.simulator.evidence import Intent, Start, began_at
from oncegate.chaos.simulator.observing import ObservedStore
from oncegate.chaos.simulator.schedule import Fault, FaultKind
from oncegate.chaos.simulator.services import Network
from oncegate.chaos.simulator.surfaces import Handlers
from oncegate.crashpoints import CrashPoints
from oncegate.errors import StoreError
from oncegate.gate.admission import Admission, Verdict
from oncegate.gate.gate import Gate
from oncegate.model.surface import read_arrival
from oncegate.store import Store
from oncegate.testing.simulation import (
    Actor,
    ActorCrashed,
    Ledger,
    SilentSightings,
    SimulatedCommits,
    SimulatedLeases,
    SimulatedStore,
    VirtualClock,
    VirtualLoop,
)
from oncegate.testing.simulation.commits import Journey, crash
from oncegate.testing.simulation.store import CommitFault, SimulatedSession
from oncegate.upkeep.reconciler import Reconciler

if TYPE_CHECKING:
    from oncegate.chaos.simulator.world import World

CARE_EVERY_SECONDS: Final = 5.0
RECONCILE_EVERY_TURNS: Final = 5


class Face(Protocol):
    """A gate as the simulator uses it, a true one or one of the museum's."""

    async def admit(self, surface: str, event: dict[str, Any]) -> Admission:
        """Admits an event."""

    async def reconcile(self) -> None:
        """Looks after what a crash stranded."""

    def renew(self) -> None:
        """Keeps live claims alive."""


class Blueprint:
    """How a worker's gate is built: by default the production gate. The museum changes single parts."""

    session_type: type[SimulatedSession] = SimulatedSession

    def build(self, worker: Worker) -> Face:
        """Makes the gate of a worker that has just started."""
        return TrueFace(worker)


@cache
def registered(handlers_type: Callable[[], Handlers]) -> Gate:
    """A gate that does nothing but know the handlers; registering takes longer than a whole run."""
    gate = Gate(cast("Store", SimulatedStore(Ledger(), VirtualClock(VirtualLoop()))))
    handlers_type().register(gate)
    return gate


class TrueFace:
    """The production gate and reconciler."""

    handlers_type: type[Handlers] = Handlers
    leases_type: type[SimulatedLeases] = SimulatedLeases
    replay_cache_max = 1_000

    def __init__(self, worker: Worker) -> None:
        store = cast("Store", worker.store)
        self.worker = worker
        self.commits = SimulatedCommits(
            store, clock=worker.clock, crashpoints=worker.crashpoints, loop=worker.world.loop, wire=worker
        )
        self._leases = self.leases_type(self.commits, worker.clock)
        self.gate = Gate(
            store,
            clock=worker.clock,
            crashpoints=worker.crashpoints,
            new_token=lambda: worker.rng.getrandbits(62),
            replay_cache_max=self.replay_cache_max,
            commits=self.commits,
            leases=self._leases,
            sightings=SilentSightings(self.commits, worker.clock),
        )
        self.gate.adopt(registered(cast("Any", self.handlers_type)))
        self._reconciler = Reconciler(self.gate, jitter=worker.rng.random)

    async def admit(self, surface: str, event: dict[str, Any]) -> Admission:
        """Admits an event."""
        return await self.gate.admit(surface, event)

    async def reconcile(self) -> None:
        """Runs the reconciler once."""
        await self._reconciler.run_once_async()

    def renew(self) -> None:
        """Renews what is due."""
        if self._leases.is_needed:
            self._leases.renew_due()

    def key_of(self, surface: str, event: dict[str, Any]) -> bytes:
        """The key of an event; for gates of the museum that look it up by themselves."""
        now_ms = self.worker.clock.wall_ms()
        return read_arrival(self.gate.surface(surface).rule, event, None, now_ms).key.digest

    async def run_without_gate(self, surface: str, event: dict[str, Any]) -> Admission:
        """Runs the handler past the gate; only gates of the museum do."""
        outcome = await self.gate.surface(surface).handler(event, *self._past_the_gate(surface))
        return Admission(Verdict.RUN, "", outcome)

    def _past_the_gate(self, surface: str) -> tuple[PastTheGate, ...]:
        return (PastTheGate(),) if self.gate.surface(surface).takes_once else ()


class PastTheGate:
    """What a handler gets where there is no gate: effects are plain calls and nothing is recorded."""

    attempt = 1

    async def effect(self, downstream: Any, function: Any, *arguments: Any) -> Any:
        """Calls, with no key that anybody knows."""
        return await function(*arguments)

    def commit(self, **_: Any) -> PastTheGate:
        """Records nothing."""
        return self

    @property
    def tx(self) -> PastTheGate:
        """No transaction."""
        return self

    async def execute(self, *_: Any) -> None:
        """Writes nothing."""

    async def __aenter__(self) -> PastTheGate:
        return self

    async def __aexit__(self, *_: object) -> None:
        return


class WorkerPoints(CrashPoints):
    """Crash points at which the schedule's faults strike."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def hit(self, name: str) -> None:
        """Crashes or stalls, if the schedule says so here."""
        worker = self._worker
        if worker.actor.dead:
            return
        worker.world.reached[name] += 1
        fault = worker.world.faults.at_point(name)
        if fault is None:
            return
        if fault.kind is FaultKind.STALL_AT_POINT:
            worker.stall(fault.seconds)
            return
        worker.crash(fault.seconds)
        raise ActorCrashed(name)


class Worker:
    """One worker over all its lives."""

    def __init__(self, world: World, number: int, blueprint: Blueprint) -> None:
        self.world = world
        self.number = number
        self.rng: Random = world.rng
        self.network: Network = world.network
        self.seats, self.labels, self.mails = world.services
        self.clock = VirtualClock(world.loop)
        self.lives = 0
        self._blueprint = blueprint
        self.start()

    def start(self) -> None:
        """Begins a new life: nothing is remembered."""
        self.lives += 1
        self.actor = Actor(f"worker {self.number}.{self.lives}", self)
        self.store = ObservedStore(
            self.world.ledger, self.clock, self._commit_fault, self._blueprint.session_type
        )
        self.store.is_down = self.world.store_is_down
        self.store.note = self.world.note_write
        self.crashpoints = WorkerPoints(self)
        self.face = self._blueprint.build(self)
        self.spawn(self._care())

    def _commit_fault(self) -> CommitFault:
        return CommitFault.DOWN if self.world.store_is_down else self.world.faults.unit()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Starts a task of this worker's present life."""
        self.world.loop.create_task(work, context=self.actor.context())

    async def _care(self) -> None:
        """Renews leases and reconciles, as long as there is anything to look after."""
        turn = self.number
        while True:
            if self.world.is_quiet():
                await self.world.activity()
            await asyncio.sleep(CARE_EVERY_SECONDS)
            self.face.renew()
            turn += 1
            if turn % RECONCILE_EVERY_TURNS == 0:
                await self._reconcile()

    async def _reconcile(self) -> None:
        began_at.set(self.world.loop.time())
        try:
            await self.face.reconcile()
        except StoreError:
            return  # the next turn tries again

    @property
    def is_up(self) -> bool:
        """Whether it can be given anything."""
        return not self.actor.dead

    def crash(self, restart_seconds: float) -> None:
        """Ends this life; the next one begins after a while."""
        self.world.note("crash", self.actor.name)
        crash(self.actor, self.store)
        self.world.later(restart_seconds, self.restart)

    def restart(self) -> None:
        """Begins the next life, if this one has ended."""
        if self.actor.dead:
            self.start()

    def stall(self, seconds: float) -> None:
        """Stops doing anything for a while, without knowing."""
        self.world.note("stall", self.actor.name, seconds)
        self.world.loop.stall(self.actor, seconds)

    def next_journey(self) -> Journey:
        """What the network does to the next batch for the store."""
        fault: Fault | None = self.world.faults.batch()
        there, back = 0.001 + self.rng.random() * 0.01, 0.001 + self.rng.random() * 0.01
        if fault is None:
            return Journey(there, back)
        if fault.kind is FaultKind.STORE_REQUEST_LOST:
            return Journey(None, None)
        if fault.kind is FaultKind.STORE_REPLY_LOST:
            return Journey(there, None)
        return Journey(there + fault.seconds, back)

    def think_seconds(self) -> float:
        """How long a handler takes before its effect."""
        return self.rng.random() * (0.02 if self.rng.random() < 0.8 else 30.0)

    def note_start(self, intent: Intent, amount: int, attempt: int) -> None:
        """A handler has begun."""
        world = self.world
        world.note("start", self.actor.name, intent.surface, attempt)
        world.evidence.starts.append(Start(began_at.get(), intent, amount, attempt))
