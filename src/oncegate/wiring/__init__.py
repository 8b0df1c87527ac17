"""Where implementations are chosen: an address becomes a store, a store becomes a gate.

The public `Gate` lives here so that the gate itself knows no store. Methods import what only they need:
a program that admits events loads neither background work nor signals nor the sender.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack

from oncegate.clock import Clock
from oncegate.crashpoints import CrashPoints
from oncegate.errors import ConfigError
from oncegate.gate.facade import GateOnStore
from oncegate.gate.options import GateOptions
from oncegate.model.durations import parse_duration
from oncegate.store import ClaimStore, Facet, require
from oncegate.wiring.ledgers import open_store as open_store

if TYPE_CHECKING:
    from oncegate.journal.rollback.mutations import Mutation
    from oncegate.maintenance.background import Worker
    from oncegate.maintenance.schedule import JobKind, Notice, PeriodicJob
    from oncegate.review.decisions import Decisions
    from oncegate.sender.sender import SenderOnCommits
    from oncegate.signals.definitions import Thresholds
    from oncegate.signals.notifiers import Notifier
    from oncegate.sources.contract import Source
    from oncegate.sources.lambda_events import LambdaHandler
    from oncegate.sources.options import ConsumeOptions, Consumption
    from oncegate.sources.reading import Decode

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound="Callable[[], Any]")


def declared_thresholds(gate: GateOnStore, given: Thresholds | None = None) -> Thresholds:
    """The limits to watch by: those given, under those that surfaces declare with `limits=`."""
    from oncegate.signals.definitions import Thresholds

    declared = {one.name: dict(one.limits) for one in gate.engine.surfaces if one.limits}
    return (given or Thresholds()).under(Thresholds(places=declared))


class Gate(GateOnStore):
    """The gate on the ledger at `url`, else at ONCEGATE_URL, else in ./oncegate.db."""

    def __init__(
        self,
        url: str | None = None,
        *,
        store: ClaimStore | None = None,
        clock: Clock | None = None,
        crashpoints: CrashPoints | None = None,
        **options: Unpack[GateOptions],
    ) -> None:
        chosen = store if store is not None else open_store(url, clock=clock)
        super().__init__(chosen, clock=clock, crashpoints=crashpoints, **options)
        self.sources: list[Consumption] = []

    def consume(self, source: Source, *, surface: str, **options: Unpack[ConsumeOptions]) -> None:
        """Has the worker receive events of a surface from a queue, run each once, and acknowledge.

        Register the handler first. At most `concurrency` handlers run at once, and no more messages are
        received than that. `order_by` is a template over the event: events with the same value run one
        after the other. `decode` makes the event of a `Delivery` where the body is not plain JSON.
        `poison` says where messages go that are no events: into `quarantine`, or to the queue's own
        `dead-letter` queue. `tenant` owns all events of the source. `name` is shown in lists.
        """
        from oncegate.sources.options import consumption_of

        one = consumption_of(source, self.engine.surface(surface), **options)
        if one.name in {known.name for known in self.sources}:
            raise ConfigError(f"source {one.name} is consumed already; give each a name of its own")
        self.sources.append(one)

    def belief(
        self, name: str, *, id_field: str = "id", content: Sequence[str] | None = None
    ) -> Callable[[F], F]:
        """Declares a function that gives what the system believes, for snapshots.

        It takes nothing and returns, or streams, objects with an id: dicts with `id_field`, or pairs of id
        and object. It may be async. `content` names the fields by which two objects are duplicates; by
        default all but the id.
        """
        from oncegate.wiring.history import history_of

        return history_of(self).belief(name, id_field, content)

    def mutation(
        self,
        name: str,
        *,
        read: Callable[..., Any] | None = None,
        compensate: Callable[..., Any] | None = None,
        get: Callable[..., Any] | None = None,
        put: Callable[..., Any] | None = None,
        belief: str | None = None,
    ) -> Callable[[Callable[P, R]], Mutation[P, R]]:
        """Declares a function that changes one object, so that a roll-back can undo it.

        Its first parameter is the object's id. Called inside a handler, the object's value before and after
        is recorded with the event. `read(id)` returns the object or None. `compensate(id, value)` gives the
        object that value, or removes it for None. With `get` and `put` instead, a roll-back sets back only
        the fields that events changed. Functions that take `tx` first are recorded in the event's own
        transaction. `belief` names the belief that has the objects.
        """
        from oncegate.wiring.history import history_of

        return history_of(self).mutation(name, belief, read=read, compensate=compensate, get=get, put=put)

    def snapshots(
        self,
        to: str,
        *,
        signed_by: str,
        every: str | timedelta = "15m",
        second_person_above: int = 100,
        plan_expires: str | timedelta = "1h",
        known_keys: str | None = None,
    ) -> None:
        """Has the worker take signed snapshots of all beliefs, and apply approved roll-back plans.

        `to` is `file:///path` or `s3://bucket/prefix?mode=compliance&retain=90d`. `signed_by` is the key,
        as `file:PATH`, `env:NAME` or `command:PROGRAM`. A roll-back of more than `second_person_above`
        lines needs two people. A plan can be approved for as long as `plan_expires`. `known_keys` is a file
        with the verifier keys of earlier signing keys.
        """
        from oncegate.wiring.history import SnapshotSettings, history_of

        interval, expires = parse_duration(every), parse_duration(plan_expires)
        history_of(self).keep(
            SnapshotSettings(to, signed_by, interval, second_person_above, expires, known_keys)
        )

    def lambda_handler(
        self, surface: str, *, tenant: str | None = None, decode: Decode | None = None
    ) -> LambdaHandler:
        """A function for AWS Lambda behind an SQS queue; it answers `batchItemFailures`.

        The event source mapping must have ReportBatchItemFailures: without it Lambda deletes the whole
        batch.
        """
        from oncegate.sources.lambda_events import LambdaHandler

        return LambdaHandler(self, surface, tenant=tenant, decode=decode)

    def worker(
        self,
        *,
        only: Collection[JobKind] | None = None,
        without: Collection[JobKind] = (),
        reconcile_every: str | timedelta = "5s",
        prune_every: str | timedelta = "1h",
        scan_every: str | timedelta = "1d",
        scan_window: str | timedelta = "72h",
        keep_delivered: str | timedelta = "7d",
        watch_every: str | timedelta = "1m",
        thresholds: Thresholds | None = None,
        notifiers: Sequence[Notifier] | None = None,
        alarms_to: str | None = None,
        ping: str | None = None,
        feed_retention: str | timedelta | None = "90d",
        sender: SenderOnCommits | None = None,
        notice: Notice | None = None,
        grace: str | timedelta = "10s",
        more: Sequence[PeriodicJob] = (),
    ) -> Worker:
        """All background work of this gate, while a `with` or `async with` block lasts.

        The jobs are recovery, pruning, scans, watch, accepted, deliveries and sources. Choose with `only`
        or `without`. In an async program use `async with`: async handlers run in the event loop they belong
        to, and a plain `with` does not run them. Register handlers first. `deliveries` sends through
        `sender`, by default one on this gate's ledger. Leaving the block waits up to `grace` for what is
        under way. `notice(name, report)` is called after each run. With `feed_retention=None` the feed is
        not pruned. Alarms go to `notifiers`, by default the log `oncegate.signals`, and to `alarms_to`,
        under the sender's guard. `ping` is posted to after every measurement, for dead man's alarms.
        """
        from oncegate.maintenance.jobs import standard_jobs
        from oncegate.sender.endpoint_registry import followers
        from oncegate.signals.notifiers import LogNotifier
        from oncegate.wiring.sender import alarm_webhook, alive_ping
        from oncegate.wiring.worker import make_worker, watch_jobs

        jobs = standard_jobs(
            self,
            reconcile_every=parse_duration(reconcile_every),
            prune_every=parse_duration(prune_every),
            scan_every=parse_duration(scan_every),
            scan_window=parse_duration(scan_window),
            feed_retention=None if feed_retention is None else parse_duration(feed_retention),
            followers=followers,
            keep_delivered=parse_duration(keep_delivered),
        )
        alarms: list[Notifier] = [LogNotifier()] if notifiers is None else list(notifiers)
        if alarms_to is not None:
            alarms.append(alarm_webhook(alarms_to))
        limits, pings = declared_thresholds(self, thresholds), None if ping is None else alive_ping(ping)
        jobs += [*more, *watch_jobs(self, parse_duration(watch_every), limits, alarms, pings)]
        within = parse_duration(grace)
        return make_worker(
            self, jobs, only, without, sender=sender, notice=notice, grace=within, sources=self.sources
        )

    def dashboard(self, *, login: bool = False) -> Any:
        """The operations page of this gate's ledger, as an ASGI application to be mounted anywhere.

        Every visitor may look and none may act: put it behind your own sign-in. With `login`,
        every visitor signs in with a token of `oncegate operators add`, and acts as their role allows.
        """
        try:
            from oncegate.dashboard.application import page_of
        except ModuleNotFoundError as error:
            raise ConfigError("the page needs two packages more: pip install 'oncegate[server]'") from error
        from oncegate.dashboard.auth import Access

        return page_of(self, Access.LOGIN if login else Access.READ_ONLY)

    @property
    def people(self) -> Decisions:
        """Decisions about entries that wait for a person: approve, reject, release, discard."""
        from oncegate.review.decisions import Decisions

        require(self.engine.store, Facet.OPEN_ENTRIES, "decisions")
        return Decisions(self.engine.commits, self.engine.clock)
