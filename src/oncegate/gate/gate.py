"""The engine behind a gate: reads events, makes flows of them and knows what one process keeps.

Users see the gate in `facade.py`. What only our own packages need is here, behind `gate.engine`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from oncegate.clock import Clock, SystemClock
from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.operations import Operation
from oncegate.crashpoints import CrashPoints
from oncegate.errors import UsageError
from oncegate.gate.admission import Admission
from oncegate.gate.codec.declared_types import ABSENT
from oncegate.gate.codec.reading import Reader, readable
from oncegate.gate.driver.drivers import Driver, WaitingFlow, WrappingDriver
from oncegate.gate.driver.requests import Flow
from oncegate.gate.flows.accepting import accept_flow
from oncegate.gate.flows.admit import (
    NEVER,
    ClaimAttempt,
    admit_flow,
    counted_recovery,
    replay_from_memory,
    same_database_flow,
    wanted_again,
)
from oncegate.gate.flows.identity import identify_flow
from oncegate.gate.flows.joining import ambient_join, joined_admit_flow
from oncegate.gate.flows.observation import SwitchedCall, resting, switched_flow
from oncegate.gate.flows.observation_recorder import ObservationRecorder
from oncegate.gate.flows.observers import ArrivalObserver, observed_flow
from oncegate.gate.flows.restore import Restorer
from oncegate.gate.flows.superseded_keys import end_flow, newer_key_flow
from oncegate.gate.recalling import Recalling
from oncegate.gate.runtime.ambient import AmbientTransactions
from oncegate.gate.runtime.arrival_stats import Sightings
from oncegate.gate.runtime.cache import OutcomeCache
from oncegate.gate.runtime.circuits import Circuits
from oncegate.gate.runtime.context import GateContext
from oncegate.gate.runtime.decided import DecidedSurfaces
from oncegate.gate.runtime.leases import LeaseKeeper
from oncegate.gate.runtime.tokens import Tokens
from oncegate.gate.runtime.tracing import correlated
from oncegate.gate.starting import HandlerStart
from oncegate.gate.surface import Surface, check_on_store
from oncegate.model.canonical import copied
from oncegate.model.identity import KeyPlan, with_all_keys, with_former_keys
from oncegate.model.keys import Key
from oncegate.model.parking import PARKED_BYTES_MAX, PARKED_MAX, Parking
from oncegate.model.surface import WORKER, Arrival, authored, read_arrival
from oncegate.model.trace import Context
from oncegate.store import ClaimStore, EntryDetail, Joined, require_transactions

T = TypeVar("T")


class GateEngine(Recalling):
    """What a gate is made of. Internal: only oncegate's own packages use it."""

    _observer: ArrivalObserver | None = None

    def __init__(
        self,
        store: ClaimStore,
        *,
        clock: Clock | None = None,
        crashpoints: CrashPoints | None = None,
        actor: str = "gate",
        new_token: Callable[[], int] | None = None,
        replay_cache_max: int = 20_000,
        parked_max: int = PARKED_MAX,
        parked_bytes_max: int = PARKED_BYTES_MAX,
        commits: GroupCommit | None = None,
        leases: LeaseKeeper | None = None,
        sightings: Sightings | None = None,
        ambient: AmbientTransactions | None = None,
    ) -> None:
        super().__init__()
        clock, crashpoints = clock or SystemClock(), crashpoints or CrashPoints()
        commits = commits or GroupCommit(store, clock=clock, crashpoints=crashpoints)
        self.store = commits.store
        self.driver = Driver(commits, clock)
        self._context = GateContext(
            clock=clock,
            crashpoints=crashpoints,
            commits=commits,
            cache=OutcomeCache(replay_cache_max, clock),
            leases=leases or LeaseKeeper(commits, clock),
            sightings=sightings or Sightings(commits, clock),
            new_token=new_token or Tokens(),
            actor=actor,
            circuits=Circuits(clock.ticks_ms),
            decided=DecidedSurfaces(self, lambda: list(self._surfaces), self.store, clock),
            parking=Parking(parked_max, parked_bytes_max),
            downstreams=self._downstreams,
            ambient=ambient,
        )
        self._restorer = Restorer(self._context, self._downstreams, wanted_again)
        store.incarnations.attach(self._restorer)
        self._observing = ObservationRecorder(self._context, self.driver)

    def _check(self, surface: Surface) -> None:
        """Refuses a surface that needs what the ledger has not."""
        check_on_store(surface, self.store)

    @property
    def clock(self) -> Clock:
        """Where this gate gets its time from."""
        return self._context.clock

    @property
    def crashpoints(self) -> CrashPoints:
        """Where tests may stop this gate's process; parts that share the process use the same."""
        return self._context.crashpoints

    @property
    def commits(self) -> GroupCommit:
        """How this gate's process writes to the ledger; all writers of the process share it."""
        return self._context.commits

    @property
    def circuits(self) -> Circuits:
        """Which downstreams rest, for everything that this gate's process does."""
        return self._context.circuits

    @property
    def sightings(self) -> Sightings:
        """What this process has seen at this gate."""
        return self._context.sightings

    def begin(
        self, surface: str, event: Any, *, tenant: str | None = None, context: Context | None = None
    ) -> Admission | WaitingFlow[Admission]:
        """Admits an event as far as memory can answer; else the flow to run in this loop, or to close."""
        found = self.look(surface, event, tenant, None, context)
        return found if isinstance(found, Admission) else self.driver.begin_async(found)

    def arrival_of(self, surface: str, event: Any, tenant: str | None) -> Arrival:
        """Reads an event as admitting it would, with every key it may be known by; asks nothing."""
        rule = self.surface(surface).rule
        arrival = read_arrival(rule, event, tenant, self._context.clock.wall_ms())
        plan = self._context.plans.get(surface)
        return arrival if plan is None else with_former_keys(plan, rule, arrival, event, tenant)

    def join(self, surface: str, transaction: object) -> Joined:
        if self.surface(surface).lane is not None:
            raise UsageError(f"{surface} accepts events and runs them later; leave tx= to its handler")
        if not self.surface(surface).same_database:
            raise UsageError(
                f"{surface} may act outside the database, and a reservation in tx= is not durable by then; "
                "register it with same_database=True, or use once.commit(tx=…) in its handler"
            )
        require_transactions(self.store, "events admitted with tx=")
        return self.store.join(transaction)

    def look(
        self,
        name: str,
        event: Any,
        tenant: str | None,
        joined: Joined | None,
        context: Context | None,
        *,
        plan: KeyPlan | None = None,
        read: Reader | None = None,
        same: bytes | None = None,
        actor: str | None = None,
    ) -> Admission | Flow[Admission]:
        """Reads an event, by `read` or the surface's reader: what memory answers, or the flow to run."""
        surface, gate = self.surface(name), self._context
        if joined is None and gate.ambient is not None:
            joined = ambient_join(gate, surface)
        if same is None and not surface.is_plain:
            call = SwitchedCall(surface, event, tenant, joined, context, read, actor)
            return switched_flow(gate, self._observing, call, self.look)
        ticks_ms, plan = gate.clock.ticks_ms(), plan or gate.plans.get(name)
        if plan is None or ticks_ms >= plan.recheck_at_ticks_ms:
            return self._identified(surface, event, tenant, joined, context, read=read, actor=actor)
        rule, is_asked = surface.rule, surface.lane is None and not self._is_watched
        now_ms = 0 if is_asked and rule.occurred_at_path is None else gate.clock.wall_ms()
        arrival = authored(read_arrival(rule, event, tenant, now_ms), actor)
        if plan.first is not None or plan.also:
            arrival = with_former_keys(plan, rule, arrival, event, tenant)
        if same is not None:
            arrival = replace(arrival, fingerprint=same)
        if is_asked and (known := replay_from_memory(gate, surface, arrival, False, ticks_ms)) is not None:
            return known
        until, given, asked_ms = plan.until_ticks, ABSENT, ticks_ms if is_asked else 0
        if (read := read or surface.reader) is not None:
            arrival, given = readable(read, arrival, event)
        flow = self._attempt_flow(
            surface, arrival, event, joined, asked_ms, context=context, until_ticks=until, given=given
        )
        observer = None if is_asked else self._observer
        return flow if observer is None else observed_flow(observer, rule, arrival, now_ms, flow)

    def _identified(
        self,
        surface: Surface,
        event: Any,
        tenant: str | None,
        joined: Joined | None,
        context: Context | None,
        **given: Any,
    ) -> Flow[Admission]:
        """Compares the surface with what the ledger knows of it, and goes on if it is the same."""
        plan = yield from identify_flow(self._context, surface, joined)
        found = self.look(surface.name, event, tenant, joined, context, plan=plan, **given)
        return found if isinstance(found, Admission) else (yield from found)

    def _attempt_flow(
        self,
        surface: Surface,
        arrival: Arrival,
        event: Any,
        joined: Joined | None = None,
        looked_at_ms: int = 0,
        *,
        by_worker: bool = False,
        context: Context | None = None,
        at_once: bool = False,
        until_ticks: int = NEVER,
        from_lane: bool = False,
        given: Any = ABSENT,
    ) -> Flow[Admission]:
        gate = self._context
        if surface.lane is not None and not by_worker and not from_lane:
            if surface.correlation is not None:
                context = correlated(surface.correlation, event, context)
            start = HandlerStart(gate, self.driver, copied(event), context, given)
            declared = surface.declaring.now
            attempt = ClaimAttempt(
                surface, arrival, declared, start, False, context, until_ticks=until_ticks
            )
            return accept_flow(gate, attempt, surface.lane)
        if joined is None and surface.same_database and gate.ambient is not None:
            surface = gate.ambient.with_own(surface)
        only_records = surface.only_records and context is None
        if not only_records and (given is ABSENT or surface.writes is not None):
            event = copied(event)  # what a handler does to its event is no part of the next arrival
        start = HandlerStart(gate, self.driver, event, context, given)
        attempt = ClaimAttempt(
            surface, arrival, surface.declaring.now, start, by_worker, context, only_records, looked_at_ms,
            at_once, until_ticks, from_lane,
        )  # fmt: skip
        if joined is not None:
            return joined_admit_flow(gate, attempt, joined, start)
        if surface.same_database:
            return same_database_flow(gate, attempt, start)
        return admit_flow(gate, attempt)

    async def submit(self, operation: Operation[T]) -> T:
        """Puts a question to the ledger from a task, in turn with the writes."""
        return await self._context.commits.submit_async(operation)

    def ask_sync(self, operation: Operation[T]) -> T:
        """Puts a question to the ledger from a thread."""
        return self._context.commits.submit(operation)

    async def run_accepted(
        self, surface: str, arrival: Arrival, context: Context | None = None
    ) -> Admission:
        """Runs an accepted event whose turn it is; only the engine that keeps the order may call this."""
        return await self.driver.run_async(self._accepted_flow(self.surface(surface), arrival, context))

    def _accepted_flow(
        self, surface: Surface, arrival: Arrival, context: Context | None
    ) -> Flow[Admission]:
        """Under the key it was accepted by, unless it is known by another one meanwhile."""
        plan = self._context.plans.get(surface.name)
        if plan is None or self._context.clock.ticks_ms() >= plan.recheck_at_ticks_ms:
            plan = yield from identify_flow(self._context, surface)
        if (rests := resting(self.surface(surface.name), arrival.key)) is not None:
            return rests
        event = msgspec.json.decode(arrival.body)
        if not plan.is_plain:
            known = yield from newer_key_flow(plan, surface, arrival, event)
            arrival = with_all_keys(plan, surface.rule, arrival, event)
            arrival = arrival if known is None else replace(arrival, key=known, also=())
        return (yield from self._attempt_flow(surface, arrival, event, context=context, from_lane=True))

    def on_accepted(self, bell: Callable[[], None]) -> None:
        """Calls `bell` whenever an event was accepted here, from whatever thread."""
        self._context.bells.append(bell)

    def recover_flow(self, stranded: EntryDetail, *, at_once: bool = False) -> Flow[Admission]:
        """Runs a stranded entry again from its stored event, under the key it has."""
        if stranded.body is None:
            raise UsageError(f"entry {stranded.entry.entry_id} has no stored event to run again")
        entry, event = stranded.entry, msgspec.json.decode(stranded.body)
        # The entry's own key and content, whatever the surface's template says today.
        key, body = Key(entry.key), stranded.body
        arrival = Arrival(key, entry.tenant, entry.label, entry.fingerprint, body, None, actor=WORKER)
        surface = self.surface(entry.surface)
        flow = self._recovered_flow(surface, arrival, event, at_once=at_once)
        was_let_through = not entry.attempt  # by a person: nothing was interrupted
        return flow if was_let_through else counted_recovery(self._context, surface, flow)

    def _recovered_flow(
        self, surface: Surface, arrival: Arrival, event: Any, *, at_once: bool
    ) -> Flow[Admission]:
        """Another function under the same name must not take up what this one left."""
        plan = self._context.plans.get(surface.name)
        if plan is None or self._context.clock.ticks_ms() >= plan.recheck_at_ticks_ms:
            plan = yield from identify_flow(self._context, surface)
        if (rests := resting(self.surface(surface.name), arrival.key)) is not None:
            return rests
        known = yield from newer_key_flow(plan, surface, arrival, event)
        if known is not None:
            return (yield from end_flow(self._context, surface, arrival, known))
        return (yield from self._attempt_flow(surface, arrival, event, by_worker=True, at_once=at_once))

    def recover_sync(self, stranded: EntryDetail, *, at_once: bool = False) -> Admission:
        """Runs a stranded entry again, from a thread; with `at_once` before its wait is over."""
        return self.driver.run(self.recover_flow(stranded, at_once=at_once))

    async def recover(self, stranded: EntryDetail, *, at_once: bool = False) -> Admission:
        """Runs a stranded entry again, from a task."""
        return await self.driver.run_async(self.recover_flow(stranded, at_once=at_once))

    def check_surfaces(self) -> None:
        """Compares every registered surface with what the ledger knows of it, from a thread."""
        for surface in self._surfaces.values():
            self.driver.run(identify_flow(self._context, surface))

    def wrap_flows(self, wrap: Callable[[Flow[Any]], Flow[Any]]) -> None:
        """Wraps every flow from now on; `oncegate.signals.tracing` makes spans this way."""
        self.driver, self._is_watched = WrappingDriver(self.driver, wrap), True

    def observe(self, observer: ArrivalObserver) -> None:
        """Reports every later arrival and its answer to an observer; a `Recorder` writes them down."""
        if self._observer is not None:
            raise UsageError("an observer is already attached to this gate; only one is supported")
        self._observer, self._is_watched = observer, True

    def close(self) -> None:
        """Lets running work finish and closes the ledger."""
        self.store.incarnations.detach(self._restorer)
        self._observing.close()
        self._context.leases.close()
        self.driver.close()
        if self._observer is not None:
            self._observer.close()
        self._context.sightings.close()
        self._context.commits.close()


# A flow that compares first is an admission to those who look at flows: spans have its name.
_firsts = (switched_flow, GateEngine._identified, GateEngine._accepted_flow, GateEngine._recovered_flow)
for _first in _firsts:
    _first.__name__ = admit_flow.__name__
