"""A worker of traffic: production engine, feed and rulings in a process that crashes and stalls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lab.simulator.mortal import Mortal, StrikingPoints
from lab.simulator.traffic.evidence import Reading
from lab.simulator.traffic.plan import Click, Emit, Publish
from oncegate.commit.lane_operations import Enqueue
from oncegate.errors import RulingRefused, StoreError
from oncegate.feed import Feed
from oncegate.gate.facade import GateOnStore
from oncegate.lanes import Destination, Engine
from oncegate.model.backoff import Backoff
from oncegate.model.decisions import Verb
from oncegate.review.decisions import Decisions, EntryDecision
from oncegate.store import Outgoing, Policy
from oncegate.testing.simulation import (
    SilentSightings,
    SimulatedCommits,
    SimulatedLeases,
)
from oncegate.testing.simulation.embedded import EmbeddedStore

if TYPE_CHECKING:
    from lab.simulator.traffic.world import TrafficWorld

DESTINATION: Final = "receiver"
LEASE_MS: Final = 20_000
TRAVEL_SECONDS_MAX: Final = 0.02  # of a message, wherever to
LOOK_SECONDS: Final = 5.0  # between two looks at lanes that another worker may have left
READ_SECONDS: Final = 7.0
PAGE: Final = 2


class TrafficWorker(Mortal):
    """A worker with an engine, a feed and rulings."""

    travel_seconds_max = TRAVEL_SECONDS_MAX

    def __init__(self, world: TrafficWorld, number: int) -> None:
        self.world = world
        super().__init__(world, number)

    def _wake_up(self) -> None:
        world, points = self.world, StrikingPoints(self, self.world)
        self.store = store = EmbeddedStore(world.database, self.clock, self._commit_fault)
        commits = SimulatedCommits(store, clock=self.clock, crashpoints=points, loop=world.loop, wire=self)
        self.commits = commits
        self.rulings = Decisions(commits, self.clock)
        gate = GateOnStore(
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
        placed = await self.commits.submit_async(Enqueue(outgoing))
        return placed.placing.value

    async def publish(self, event_id: str, item: Publish) -> str:
        """Publishes an event."""
        published = await self.feed.publish(event_id=event_id, key=item.key, data={"id": event_id})
        return f"seq {published.seq}"

    async def rule(self, entry_id: int, fence: int, item: Click) -> str:
        """Carries out a decision, as its operator saw the entry."""
        word = EntryDecision(
            Verb.APPROVE if item.approves else Verb.REJECT, item.operator, "looked into it"
        )
        try:
            self.rulings.say(entry_id, word, fence)
        except RulingRefused:
            return "refused"
        return "done"
