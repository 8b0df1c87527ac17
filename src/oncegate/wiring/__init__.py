"""Where implementations are chosen: an address becomes a store, a store becomes a gate.

The public `Gate` lives here so that the gate itself knows no store. Methods import what only they need:
a program that admits events loads neither background work nor signals nor the sender.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from oncegate.clock import Clock
from oncegate.config import store_url
from oncegate.crashpoints import CrashPoints
from oncegate.errors import BadUrl, ConfigError
from oncegate.gate.facade import GateOnStore
from oncegate.gate.gate import GateOptions
from oncegate.model.durations import parse_duration
from oncegate.model.ledger_addresses import masked_address
from oncegate.store import ClaimStore, Facet, Store, require

if TYPE_CHECKING:
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


def open_store(url: str | None = None, *, clock: Clock | None = None) -> Store:
    """Makes the store behind an address; nothing is opened yet."""
    address = store_url(url)
    scheme = address.partition(":")[0].lower()
    maker = _MAKERS.get(scheme)
    if maker is None or "://" not in address:
        known = ", ".join(f"{name}://" for name in _MAKERS)
        raise BadUrl(f"{masked_address(address)} is not a store address; it must begin with one of {known}")
    return maker(address, clock)


def _open_sqlite(address: str, clock: Clock | None) -> Store:
    from oncegate.stores.sqlite import SqliteStore

    parts, options = _taken_apart(address, {"synchronous"})
    if parts.fragment or "\0" in unquote(parts.path):
        raise BadUrl(
            f"{masked_address(address)}: a file name here cannot hold '#' or NUL; write %23 for '#'"
        )
    if parts.netloc or not parts.path.strip("/"):
        raise BadUrl(
            f"{masked_address(address)} names no file; use sqlite:///relative.db or sqlite:////absolute.db"
        )
    path = unquote(parts.path[1:])
    return SqliteStore(path, synchronous=options.get("synchronous", "FULL"), clock=clock)


def _open_postgres(address: str, clock: Clock | None) -> Store:
    try:
        from oncegate.stores.postgres import PostgresStore
    except ModuleNotFoundError as error:
        raise ConfigError("PostgreSQL needs its driver: pip install 'oncegate[postgres]'") from error
    address, durability = _without(address, "durability")
    if durability not in (None, "accept"):
        raise BadUrl(f"{masked_address(address)}: durability can only be 'accept', not {durability[:40]!r}")
    return PostgresStore(address, clock=clock, accept_loss=durability == "accept")


def _without(address: str, option: str) -> tuple[str, str | None]:
    """Takes one of our own options out of an address; the rest is left as it was written."""
    head, mark, query = address.partition("?")
    kept = [part for part in query.split("&") if part and part.partition("=")[0] != option]
    found = [part.partition("=")[2] for part in query.split("&") if part.partition("=")[0] == option]
    return (f"{head}{mark if kept else ''}{'&'.join(kept)}", found[-1] if found else None)


def _taken_apart(address: str, known: set[str]) -> tuple[SplitResult, dict[str, str]]:
    try:
        parts = urlsplit(address)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        raise BadUrl(
            f"{masked_address(address)} cannot be taken apart; check its brackets and options"
        ) from None
    unknown = sorted(set(options) - known)
    if unknown:
        raise BadUrl(
            f"{masked_address(address)}: unknown option {unknown[0][:40]!r}; known: {', '.join(known)}"
        )
    return parts, options


_MAKERS: dict[str, Callable[[str, Clock | None], Store]] = {
    "sqlite": _open_sqlite,
    "postgresql": _open_postgres,
    "postgres": _open_postgres,
}


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
        from oncegate.wiring.worker import make_worker, watch_job

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
        jobs += [*more, watch_job(self, parse_duration(watch_every), limits, alarms, pings)]
        within = parse_duration(grace)
        return make_worker(
            self, jobs, only, without, sender=sender, notice=notice, grace=within, sources=self.sources
        )

    def dashboard(self, *, login: bool = False) -> Any:
        """The operations page of this gate's ledger, as an ASGI application to be mounted anywhere.

        Whoever reaches it may look and nobody may act: put it behind your own sign-in. With `login`,
        everybody signs in with a token of `oncegate operators add`, and acts as their role allows.
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

        require(self.engine.store, Facet.REVIEW, "decisions")
        return Decisions(self.engine.commits, self.engine.clock)
