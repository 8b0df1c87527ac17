"""A worker of traffic: production engine, feed and rulings in a process that crashes and stalls."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from oncegate.chaos.simulator.schedule import Fault, FaultKind
from oncegate.chaos.simulator.traffic.evidence import Reading
from oncegate.chaos.simulator.traffic.plan import Click, Emit, Publish
from oncegate.crashpoints import CrashPoints
from oncegate.errors import RulingRefused, StoreError
from oncegate.feed import Feed
from oncegate.gate.gate import Gate
from oncegate.lane_operations import Enqueue
from oncegate.lanes import Destination, Engine
from oncegate.model.backoff import Backoff
from oncegate.model.rulings import Verb
from oncegate.store import Outgoing, Policy
from oncegate.testing.simulation import (
    Actor,
    ActorCrashed,
    SilentSightings,
    SimulatedCommits,
    SimulatedLeases,
    VirtualClock,
)
from oncegate.testing.simulation.commits import Journey
from oncegate.testing.simulation.embedded import EmbeddedStore
from oncegate.testing.simulation.store import CommitFault
from oncegate.upkeep.rulings import Rulings, Word

if TYPE_CHECKING:
    from oncegate.chaos.simulator.traffic.world import TrafficWorld

DESTINATION: Final = "receiver"
LEASE_MS: Final = 20_000
LOOK_SECONDS: Final = 5.0  # between two looks at lanes that another worker may have left
READ_SECONDS: Final = 7.0
PAGE: Final = 2


class TrafficPoints(CrashPoints):
    """Crash points at which the schedule's faults strike."""

    def __init__(self, worker: TrafficWorker) -> None:
        self._worker = worker

    def hit(self, name: str) -> None:
        """Crashes or stalls, if the schedule says so here."""
        worker = self._worker
        fault = None if worker.actor.dead else worker.world.faults.at_point(name)
        if fault is None:
            return
        if fault.kind is FaultKind.STALL_AT_POINT:
            worker.stall(fault.seconds)
            return
        worker.crash(fault.seconds)
        raise ActorCrashed(name)


class TrafficWorker:
    """One worker over all its lives."""

    def __init__(self, world: TrafficWorld, number: int) -> None:
        self.world = world
        self.number = number
        self.clock = VirtualClock(world.loop)
        self.lives = 0
        self.start()

    def start(self) -> None:
        """Begins a new life: nothing is remembered."""
        self.lives += 1
        self.actor = Actor(f"worker {self.number}.{self.lives}", self)
        world, points = self.world, TrafficPoints(self)
        store = EmbeddedStore(world.database, self.clock, self._commit_fault)
        commits = SimulatedCommits(store, clock=self.clock, crashpoints=points, loop=world.loop, wire=self)
        self.commits = commits
        self.rulings = Rulings(commits, self.clock)
        gate = Gate(
            store,
            clock=self.clock,
            commits=commits,
            leases=SimulatedLeases(commits, self.clock),
            sightings=SilentSightings(commits, self.clock),
        )
        self.feed = Feed(gate)
        self.engine = Engine(
            commits,
            [Destination(DESTINATION, world.receiver.deliver, Backoff(attempts_max=50), Policy.ADVANCE)],
            clock=self.clock,
            crashpoints=points,
            jitter=world.rng.random,
            new_token=lambda: world.rng.getrandbits(62),
            lease_ms=LEASE_MS,
        )
        for work in (self._deliver(), self._read_by_cursor(), self._read_by_ack()):
            self.spawn(work)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Starts a task of this worker's present life."""
        self.world.loop.create_task(work, context=self.actor.context())

    def _commit_fault(self) -> CommitFault:
        return CommitFault.DOWN if self.world.store_is_down else self.world.faults.unit()

    # --- what it does all the time ---

    async def _deliver(self) -> None:
        while True:
            wait = LOOK_SECONDS
            try:
                done = await self.engine.run_once()
                if done.next_due_in_ms is not None:
                    wait = max(done.next_due_in_ms, 1) / 1000
            except StoreError:
                wait = 1.0
            await self.world.rest(wait, self.world.lanes_are_empty)

    async def _read_by_cursor(self) -> None:
        """A consumer that keeps its cursor together with what it did."""
        reading = self.world.evidence.by_cursor
        if self.number != 0:
            return
        while True:
            try:
                page = await self.feed.read("cursor", since=reading.cursor or "oldest", limit=PAGE)
                self._keep(reading, page)
                reading.cursor = page.next_cursor
            except StoreError:
                pass
            await self.world.rest(READ_SECONDS, lambda: self.world.has_read_all(reading))

    async def _read_by_ack(self) -> None:
        """A consumer that leaves its place to the ledger: it acknowledges after it has acted."""
        reading = self.world.evidence.by_ack
        if self.number != 1:
            return
        while True:
            try:
                page = await self.feed.read("acking", limit=PAGE)
                self._keep(reading, page)
                if page.events:
                    await self.feed.ack("acking", page.next_cursor)
            except StoreError:
                pass
            await self.world.rest(READ_SECONDS, lambda: self.world.has_read_all(reading))

    def _keep(self, reading: Reading, page: Any) -> None:
        for event in page.events:
            self.world.note("read", event.id, event.seq)
            reading.events.append((event.id, event.key, event.seq))

    # --- what it is asked to do; whether it could is told, or nothing is ---

    async def emit(self, event_id: str, item: Emit) -> str:
        """Puts an event into its lane."""
        payload = event_id.encode()
        outgoing = Outgoing(
            DESTINATION, "", item.key, event_id, "thing.changed", payload, payload, self.clock.wall_ms()
        )
        placed = await self.commits.perform_async(Enqueue(outgoing))
        return placed.placing.value

    async def publish(self, event_id: str, item: Publish) -> str:
        """Publishes an event."""
        published = await self.feed.publish(event_id=event_id, key=item.key, data={"id": event_id})
        return f"seq {published.seq}"

    async def rule(self, entry_id: int, fence: int, item: Click) -> str:
        """Carries out a decision, as its operator saw the entry."""
        word = Word(Verb.APPROVE if item.approves else Verb.REJECT, item.operator, "looked into it")
        try:
            self.rulings.say(entry_id, word, fence)
        except RulingRefused:
            return "refused"
        return "done"

    # --- faults ---

    @property
    def is_up(self) -> bool:
        """Whether it can be given anything."""
        return not self.actor.dead

    def crash(self, restart_seconds: float) -> None:
        """Ends this life; the next one begins after a while."""
        self.world.note("crash", self.actor.name)
        self.actor.dead = True
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
        there, back = self.world.travel(), self.world.travel()
        if fault is None:
            return Journey(there, back)
        if fault.kind is FaultKind.STORE_REQUEST_LOST:
            return Journey(None, None)
        if fault.kind is FaultKind.STORE_REPLY_LOST:
            return Journey(there, None)
        return Journey(there + fault.seconds, back)
