"""The gate as users see it: register surfaces and downstreams, admit events, wrap plain functions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Any, Final, Self, TypeVar
from weakref import WeakSet

import msgspec

from oncegate.clock import Clock, SystemClock
from oncegate.crashpoints import CrashPoints
from oncegate.errors import ConfigError, UnknownSurface, UsageError
from oncegate.gate.accepting import accept_flow, lane_of
from oncegate.gate.admission import Admission
from oncegate.gate.cache import OutcomeCache
from oncegate.gate.claim import Claim
from oncegate.gate.codec import codec_of, declared_codec
from oncegate.gate.context import GateContext
from oncegate.gate.drive import Driver, WrappingDriver
from oncegate.gate.effects import opaque_flow, warn_if_keyless
from oncegate.gate.flows import Attempt, admit_flow, counted_recovery, same_database_flow
from oncegate.gate.functions import OnceFunction
from oncegate.gate.introspection import is_async
from oncegate.gate.joining import joined_admit_flow
from oncegate.gate.leases import LeaseKeeper
from oncegate.gate.observing import ArrivalObserver, observed_flow
from oncegate.gate.once import AsyncOnce, Once
from oncegate.gate.requests import Flow, Invoke, Where
from oncegate.gate.sightings import Sightings
from oncegate.gate.surfaces import UNDECLARED, Downstream, Surface, takes_once
from oncegate.gate.tokens import Tokens
from oncegate.gate.tracing import correlated, current_claim, link_flow
from oncegate.gate.transactions import OpenTransaction
from oncegate.groupcommit import GroupCommit
from oncegate.model.content import Content, ContentRule
from oncegate.model.downstream import Capability
from oncegate.model.durations import parse_duration
from oncegate.model.keys import Key
from oncegate.model.paths import parse_path
from oncegate.model.retention import RETENTION_FLOOR
from oncegate.model.surface import Arrival, OnBusy, SurfaceRule, check_name, read_arrival
from oncegate.model.template import KeyTemplate
from oncegate.model.trace import Context
from oncegate.operations import Operation
from oncegate.store import EntryDetail, Joined, Statement, Store

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
Duration = str | timedelta
_CALL: Final = Where.CALL


class Gate:
    """One ledger's gate. Safe to share between threads, tasks and, after a fork, processes."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock | None = None,
        crashpoints: CrashPoints | None = None,
        actor: str = "gate",
        new_token: Callable[[], int] | None = None,
        replay_cache_max: int = 20_000,
        commits: GroupCommit | None = None,
        leases: LeaseKeeper | None = None,
        sightings: Sightings | None = None,
    ) -> None:
        clock, crashpoints = clock or SystemClock(), crashpoints or CrashPoints()
        commits = commits or GroupCommit(store, clock=clock, crashpoints=crashpoints)
        self.store = store
        self._surfaces: dict[str, Surface] = {}
        self._downstreams: dict[str, Downstream] = {}
        self._driver = Driver(commits, clock)
        self._observer: ArrivalObserver | None = None
        self._context = GateContext(
            clock=clock,
            crashpoints=crashpoints,
            commits=commits,
            cache=OutcomeCache(replay_cache_max),
            leases=leases or LeaseKeeper(commits, clock),
            sightings=sightings or Sightings(commits, clock),
            new_token=new_token or Tokens(),
            actor=actor,
        )
        _live.add(self)

    @property
    def clock(self) -> Clock:
        """Where this gate gets its time from."""
        return self._context.clock

    @property
    def crashpoints(self) -> CrashPoints:
        """Where this gate's process may be made to die; whoever works beside it uses the same."""
        return self._context.crashpoints

    @property
    def commits(self) -> GroupCommit:
        """How this gate's process writes to the ledger; whoever writes too shares it."""
        return self._context.commits

    @property
    def sightings(self) -> Sightings:
        """What this process has seen at this gate."""
        return self._context.sightings

    @property
    def surfaces(self) -> tuple[Surface, ...]:
        """The registered surfaces."""
        return tuple(self._surfaces.values())

    def downstream(
        self,
        name: str,
        *,
        honours_key: Duration | None = None,
        probe: Callable[[str], Any] | None = None,
        request_life_max: Duration = "1m",
    ) -> Downstream:
        """Declares what a downstream can do about repeats.

        `honours_key` is how long it remembers an idempotency key. `probe(key)` returns what the key owns,
        or None. With neither, its effects happen at most once and a person decides what a crash left open.
        """
        check_name("downstream", name)
        if name in self._downstreams:
            raise ConfigError(f"downstream {name!r} is declared twice")
        capability = Capability(
            honours_key_for=None if honours_key is None else parse_duration(honours_key),
            can_be_asked=probe is not None,
            request_life_max=parse_duration(request_life_max),
        )
        self._downstreams[name] = Downstream(name, capability, probe)
        return self._downstreams[name]

    def handler(
        self,
        surface: str,
        *,
        key: str,
        tenant: str | None = None,
        retention: Duration = "90d",
        retention_floor: Duration = RETENTION_FLOOR,
        redelivery_horizon: Duration | None = None,
        lease: Duration = "20s",
        time_limit: Duration = "5m",
        attempts_max: int = 8,
        on_busy: str = "refuse",
        busy_wait_max: Duration = "10s",
        ignore: Collection[str] = (),
        occurred_at: str | None = None,
        skew_max: Duration = "5m",
        late_replay_after: Duration = "1h",
        same_database: bool = False,
        downstream: Downstream | None = None,
        final_errors: tuple[type[BaseException], ...] = (),
        returns: Any = None,
        allow_transport: Collection[str] = (),
        caller_retries: bool = False,
        approve_first: bool = False,
        decide_within: Duration | None = None,
        writes: Callable[[Any], Sequence[Statement]] | None = None,
        content: Content | None = None,
        mode: str = "inline",
        lane: str | None = None,
        correlation: str | None = None,
    ) -> Callable[[F], F]:
        """Registers a function as the handler of a surface and returns it unchanged.

        It takes (event) or (event, once). `key` is a template over the event's fields; `ignore` names
        fields that may differ between two sendings of the same event. `redelivery_horizon` is how long
        after its first sending an event may come again, manual replays included: a shorter `retention` is
        refused. So is one below `retention_floor`; lower that where keys are meant to be kept for less.
        With `approve_first` nothing runs before a person says so, who has `decide_within` for it.
        `writes(event)` gives business writes that are committed with every success of the handler.
        `content` says what an event changes, so that the same change under two keys can be found.
        With `mode="accept"` an event is stored and answered at once; `AcceptedWork` runs the handler later,
        one event after the other in each `lane`, which is a template like `key`. `correlation` names
        the field that has the correlation id, which travels with everything the handler emits.
        """
        _check_lists(ignore, final_errors)
        in_lane = lane_of(mode, lane, key)
        rule = SurfaceRule(
            name=surface,
            key=KeyTemplate.parse(key, allow_transport=allow_transport),
            tenant_path=None if tenant is None else parse_path(tenant.strip("{}")),
            retention=parse_duration(retention),
            retention_floor=parse_duration(retention_floor),
            redelivery_horizon=None if redelivery_horizon is None else parse_duration(redelivery_horizon),
            lease=parse_duration(lease),
            time_limit=parse_duration(time_limit),
            attempts_max=attempts_max,
            on_busy=_on_busy(on_busy),
            busy_wait_max=parse_duration(busy_wait_max),
            fingerprint_ignore=tuple(ignore),
            occurred_at_path=None if occurred_at is None else parse_path(occurred_at.strip("{}")),
            skew_max=parse_duration(skew_max),
            approve_first=approve_first,
            decide_within=None if decide_within is None else parse_duration(decide_within),
            late_replay_after=parse_duration(late_replay_after),
            content=None if content is None else ContentRule.of(content, surface),
        )

        def register(function: F) -> F:
            wants_once = takes_once(function)
            if downstream is not None and not wants_once:
                warn_if_keyless(function, downstream)
            if downstream is not None and wants_once:
                raise ConfigError("a handler that takes once names its downstreams in once.effect")
            codec = codec_of(function) if returns is None else declared_codec(returns)
            self._register(
                Surface(
                    rule,
                    function,
                    codec,
                    wants_once,
                    same_database,
                    downstream or UNDECLARED,
                    final_errors,
                    is_async(function),
                    caller_retries,
                    writes,
                    in_lane,
                    None if correlation is None else parse_path(correlation.strip("{}")),
                )
            )
            return function

        return register

    def _register(self, surface: Surface) -> None:
        if surface.name in self._surfaces:
            raise ConfigError(f"surface {surface.name!r} is registered twice")
        self._surfaces[surface.name] = surface

    def adopt(self, other: Gate, change: Callable[[Surface], Surface] | None = None) -> None:
        """Takes over every surface and downstream that is registered with another gate.

        For tests: the same handlers on another ledger, without registering them again.
        """
        for name, surface in other._surfaces.items():
            self._surfaces[name] = surface if change is None else change(surface)
        self._downstreams.update(other._downstreams)

    def surface(self, name: str) -> Surface:
        """Finds a registered surface."""
        try:
            return self._surfaces[name]
        except KeyError:
            known = ", ".join(sorted(self._surfaces)) or "none"
            raise UnknownSurface(f"no surface is called {name[:120]!r}; registered: {known}") from None

    async def admit(
        self,
        surface: str,
        event: Any,
        *,
        tenant: str | None = None,
        tx: object = None,
        context: Context | None = None,
    ) -> Admission:
        """Admits an event from a task: runs its handler once, or says why not.

        With `tx`, a same-database handler is reserved, run and settled in that open transaction; the caller
        commits it, or rolls it back if this raises. `context` is the journey that the event belongs to, as
        it came with it (`oncegate trace`); an accepting surface reads it from the event instead.
        """
        joined = None if tx is None else self._join(surface, tx)
        return await self._driver.run_async(self._admit_flow(surface, event, tenant, joined, context))

    def admit_sync(
        self,
        surface: str,
        event: Any,
        *,
        tenant: str | None = None,
        tx: object = None,
        context: Context | None = None,
    ) -> Admission:
        """Admits an event from a thread: runs its handler once, or says why not; all as in `admit`."""
        if self.surface(surface).is_async:
            raise UsageError(f"the handler of {surface} is async; await gate.admit(…) instead")
        joined = None if tx is None else self._join(surface, tx)
        if joined is not None and joined.is_async:
            raise UsageError("tx= is async; await gate.admit(…) instead")
        return self._driver.run(self._admit_flow(surface, event, tenant, joined, context))

    def _join(self, surface: str, transaction: object) -> Joined:
        if self.surface(surface).lane is not None:
            raise UsageError(f"{surface} accepts events and runs them later; leave tx= to its handler")
        if not self.surface(surface).same_database:
            raise UsageError(
                f"{surface} may act outside the database, and a reservation in tx= is not durable by then; "
                "register it with same_database=True, or use once.commit(tx=…) in its handler"
            )
        return self.store.join(transaction)

    def _admit_flow(
        self,
        name: str,
        event: Any,
        tenant: str | None,
        joined: Joined | None = None,
        context: Context | None = None,
    ) -> Flow[Admission]:
        surface, now_ms = self.surface(name), self._context.clock.wall_ms()
        arrival = read_arrival(surface.rule, event, tenant, now_ms)
        if surface.lane is not None:
            attempt = Attempt(surface, arrival, lambda claim: self._start(claim, event, None))
            flow = accept_flow(self._context, attempt, surface.lane)
        else:
            flow = self._attempt_flow(surface, arrival, event, joined, context=context)
        observer = self._observer
        return flow if observer is None else observed_flow(observer, surface.rule, arrival, now_ms, flow)

    def _attempt_flow(
        self,
        surface: Surface,
        arrival: Arrival,
        event: Any,
        joined: Joined | None = None,
        *,
        by_caretaker: bool = False,
        context: Context | None = None,
    ) -> Flow[Admission]:
        attempt = Attempt(
            surface, arrival, lambda claim: self._start(claim, event, None, context), by_caretaker
        )
        if joined is not None:
            return joined_admit_flow(
                self._context, attempt, joined, lambda claim, tx: self._start(claim, event, tx, context)
            )
        if surface.same_database:
            return same_database_flow(
                self._context, attempt, lambda claim, tx: self._start(claim, event, tx, context)
            )
        return admit_flow(self._context, attempt)

    def _start(
        self,
        claim: Claim,
        event: Any,
        transaction: OpenTransaction | Joined | None,
        context: Context | None = None,
    ) -> Flow[Any]:
        """Calls the handler; what it emits meanwhile belongs to this claim's journey."""
        if claim.surface.correlation is not None:
            context = correlated(claim.surface.correlation, event, context)
        if (context is not None or not claim.is_first_attempt) and self.store.capabilities.traces:
            claim.context = context
            yield from link_flow(claim, in_transaction=transaction is not None)
        outer = current_claim.get()
        current_claim.set(claim)
        try:
            return (yield from self._call(claim, event, transaction))
        finally:
            current_claim.set(outer)

    def _call(self, claim: Claim, event: Any, transaction: OpenTransaction | Joined | None) -> Flow[Any]:
        surface = claim.surface
        is_callers = transaction is not None and not isinstance(transaction, OpenTransaction)
        where = Where.HERE if is_callers else _CALL
        if surface.writes is not None:
            claim.writes = [*claim.writes, *surface.writes(event)]
        if surface.takes_once:
            face = AsyncOnce if surface.is_async else Once
            once = face(self._context, self._driver, claim, transaction)
            return (yield Invoke(surface.handler, (event, once), where=where))
        if transaction is not None:
            return (yield Invoke(surface.handler, (event,), where=where))
        return (yield from opaque_flow(self._context, claim, surface.handler, (event,)))

    async def ask(self, operation: Operation[T]) -> T:
        """Puts a question to the ledger from a task, in turn with the writes."""
        return await self._context.commits.perform_async(operation)

    def ask_sync(self, operation: Operation[T]) -> T:
        """Puts a question to the ledger from a thread."""
        return self._context.commits.perform(operation)

    async def run_accepted(self, surface: str, arrival: Arrival) -> Admission:
        """Runs an accepted event whose turn it is; only the engine that keeps the order may call this."""
        event = msgspec.json.decode(arrival.body)
        return await self._driver.run_async(self._attempt_flow(self.surface(surface), arrival, event))

    def on_accepted(self, bell: Callable[[], None]) -> None:
        """Calls `bell` whenever an event was accepted here, from whatever thread."""
        self._context.bells.append(bell)

    def recover_flow(self, stranded: EntryDetail) -> Flow[Admission]:
        """Runs a stranded entry again from its stored event, under the key it has."""
        if stranded.body is None:
            raise UsageError(f"entry {stranded.entry.entry_id} has no stored event to run again")
        entry, event = stranded.entry, msgspec.json.decode(stranded.body)
        # The entry's own key and content, whatever the surface's template says today.
        arrival = Arrival(Key(entry.key), entry.tenant, entry.label, entry.fingerprint, stranded.body, None)
        surface = self.surface(entry.surface)
        flow = self._attempt_flow(surface, arrival, event, by_caretaker=True)
        return counted_recovery(self._context, surface, flow)

    def recover_sync(self, stranded: EntryDetail) -> Admission:
        """Runs a stranded entry again, from a thread."""
        return self._driver.run(self.recover_flow(stranded))

    async def recover(self, stranded: EntryDetail) -> Admission:
        """Runs a stranded entry again, from a task."""
        return await self._driver.run_async(self.recover_flow(stranded))

    def once(
        self,
        *,
        key: str,
        name: str | None = None,
        downstream: Downstream | None = None,
        **options: Any,
    ) -> Callable[[F], F]:
        """Makes a plain function run once for each key; a repeat returns the recorded value.

        The key template reads the call's arguments by name: `key="{order_id}"`. What a crash or an
        unexpected error leaves open is decided by what `downstream` can do; without one, by a person.
        """

        options.update(key=key, downstream=downstream)

        def wrap(function: F) -> F:
            return OnceFunction(self, function, name, dict(options)).wrapper  # type: ignore[return-value]

        return wrap

    def wrap_flows(self, wrap: Callable[[Flow[Any]], Flow[Any]]) -> None:
        """Lets somebody look at every flow from now on; `oncegate.signals.tracing` makes spans this way."""
        self._driver = WrappingDriver(self._driver, wrap)

    def observe(self, observer: ArrivalObserver) -> None:
        """Tells somebody of every arrival from now on, and of its answer; a `Recorder` writes them down."""
        self._observer = observer

    def close(self) -> None:
        """Lets running work finish and closes the ledger."""
        self._context.leases.close()
        self._driver.close()
        if self._observer is not None:
            self._observer.close()
        self._context.sightings.close()
        self._context.commits.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_live: WeakSet[Gate] = WeakSet()


def live_gates() -> tuple[Gate, ...]:
    """Every gate of this process, so that tests find the one a handler is registered with."""
    return tuple(_live)


def _check_lists(ignore: object, final_errors: object) -> None:
    if isinstance(ignore, str) or not isinstance(ignore, Collection):
        raise ConfigError("ignore= is a list of paths, such as ['sent_at']")
    if not isinstance(final_errors, tuple) or not all(
        isinstance(kind, type) and issubclass(kind, BaseException) for kind in final_errors
    ):
        raise ConfigError("final_errors= is a tuple of exception classes, such as (ValueError,)")


def _on_busy(text: str) -> OnBusy:
    try:
        return OnBusy(text)
    except ValueError:
        choices = ", ".join(choice.value for choice in OnBusy)
        raise ConfigError(f"on_busy={text!r} cannot be used; choose one of {choices}") from None
