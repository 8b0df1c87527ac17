"""A simulated worker: a gate with its background jobs in a process that crashes, stalls and starts again.

Everything in its memory is lost with a crash; the ledger, the downstreams and messages under way are not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from lab.simulator.evidence import Intent, Start, began_at
from lab.simulator.mortal import Mortal, StrikingPoints
from lab.simulator.observing import ObservedStore
from lab.simulator.services import Network
from lab.simulator.surfaces import VERSIONS, Handlers, warm_up
from oncegate.errors import StoreError
from oncegate.gate.admission import Admission, Verdict
from oncegate.gate.facade import GateOnStore
from oncegate.maintenance.reconciler import Reconciler
from oncegate.model.surface import read_arrival
from oncegate.store import Store
from oncegate.testing.simulation import (
    ActorCrashed,
    Ledger,
    SilentSightings,
    SimulatedCommits,
    SimulatedLeases,
    SimulatedStore,
    VirtualClock,
    VirtualLoop,
)
from oncegate.testing.simulation.store import SimulatedSession

if TYPE_CHECKING:
    from lab.simulator.world import World

CARE_EVERY_SECONDS: Final = 5.0
RECONCILE_EVERY_TURNS: Final = 5
WARM_OF: Final = 4  # lives, all but one are warm


class Face(Protocol):
    """A gate as the simulator uses it, a true one or a broken one."""

    async def admit(self, surface: str, event: dict[str, Any]) -> Admission:
        """Admits an event."""

    async def reconcile(self) -> None:
        """Looks after what a crash stranded."""

    def renew(self) -> None:
        """Keeps live claims alive."""


class Blueprint:
    """How a worker's gate is built: by default the production gate. Broken gates change single parts."""

    session_type: type[SimulatedSession] = SimulatedSession

    def build(self, worker: Worker) -> Face:
        """Makes the gate of a worker that has just started."""
        return TrueFace(worker)


@cache
def registered(handlers_type: Callable[[], Handlers], version: int = 0) -> GateOnStore:
    """A gate that does nothing but know the handlers; registering takes longer than a whole run."""
    gate = GateOnStore(cast("Store", SimulatedStore(Ledger(), VirtualClock(VirtualLoop()))))
    handlers = handlers_type()
    handlers.version = version
    handlers.register(gate)
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
        self.gate = GateOnStore(
            store,
            clock=worker.clock,
            crashpoints=worker.crashpoints,
            new_token=lambda: worker.rng.getrandbits(62),
            replay_cache_max=self.replay_cache_max,
            commits=self.commits,
            leases=self._leases,
            sightings=SilentSightings(self.commits, worker.clock),
        )
        self.gate.engine.adopt(registered(cast("Any", self.handlers_type), worker.version).engine)
        if worker.is_warm:
            warm_up(self.gate, worker.version)
        self._reconciler = Reconciler(self.gate)

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
        """The key of an event; for broken gates that look it up by themselves."""
        now_ms = self.worker.clock.wall_ms()
        return read_arrival(self.gate.engine.surface(surface).rule, event, None, now_ms).key.digest

    async def run_without_gate(self, surface: str, event: dict[str, Any]) -> Admission:
        """Runs the handler past the gate; only broken gates do."""
        outcome = await self.gate.engine.surface(surface).handler(event, *self._past_the_gate(surface))
        return Admission(Verdict.RUN, "", outcome)

    def _past_the_gate(self, surface: str) -> tuple[PastTheGate, ...]:
        return (PastTheGate(),) if self.gate.engine.surface(surface).takes_once else ()


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


class Worker(Mortal):
    """A worker with a gate and its background jobs."""

    store: ObservedStore
    travel_seconds_max = 0.01

    def __init__(self, world: World, number: int, blueprint: Blueprint) -> None:
        self.world = world
        self.rng: Random = world.rng
        self.network: Network = world.network
        self.seats, self.labels, self.mails = world.services
        self._blueprint = blueprint
        super().__init__(world, number)

    def _wake_up(self) -> None:
        self.store = ObservedStore(
            self.world.ledger, self.clock, self._commit_fault, self._blueprint.session_type
        )
        self.store.is_down = self.world.store_is_down
        self.store.note = self.world.note_write
        self.crashpoints = StrikingPoints(self, self.world)
        self._face: Face | None = None
        self._turn = self.number
        self._home = self.actor.context()
        self._rest()

    @property
    def version(self) -> int:
        """Which version of the program this life runs: a deployment rolls over the workers."""
        return (self.number + self._lives) % VERSIONS

    @property
    def is_warm(self) -> bool:
        """Whether this life has handled events before those of the run, and knows its steps."""
        return (self.number + self._lives) % WARM_OF != 0

    @property
    def face(self) -> Face:
        """The gate of this life, built when it is first needed: many a worker never is."""
        if self._face is None:
            self._face = self._blueprint.build(self)
        return self._face

    # Background jobs run at moments, not in a task that sleeps: most of the moments of a run are theirs.

    def _rest(self) -> None:
        """Waits for the next moment; if there is nothing to look after, first for something to come in."""
        if self.world.is_quiet():
            self.world.activity().add_done_callback(self._doze, context=self._home)
        else:
            self._doze()

    def _doze(self, _: object = None) -> None:
        self.world.loop.call_later(CARE_EVERY_SECONDS, self._care, context=self._home)

    def _care(self) -> None:
        """Renews leases, and reconciles now and then."""
        self._turn += 1
        try:
            if self._face is not None:
                self._face.renew()
        except ActorCrashed:
            return
        if self._turn % RECONCILE_EVERY_TURNS:
            self._rest()
        else:
            self.spawn(self._reconcile())

    async def _reconcile(self) -> None:
        began_at.set(self.world.loop.time())
        with suppress(StoreError):  # the next turn tries again
            await self.face.reconcile()
        self._rest()

    async def look_again(self) -> None:
        """Asks the store as sessions do once a second, until it answers."""
        while True:
            await asyncio.sleep(self.rng.random())
            with suppress(StoreError):
                self.store.connect()
                self.world.looking.discard(self.actor.name)
                return

    def think_seconds(self) -> float:
        """How long a handler takes before its effect."""
        return self.rng.random() * (0.02 if self.rng.random() < 0.8 else 30.0)

    def note_start(self, intent: Intent, amount: int, attempt: int) -> None:
        """A handler has begun."""
        world = self.world
        world.note("start", self.actor.name, intent.surface, attempt)
        world.evidence.knowers.setdefault(intent, set()).add(self.actor.name)
        world.evidence.starts.append(Start(began_at.get(), intent, amount, attempt))
