"""Where implementations are chosen: an address becomes a store, a store becomes a gate.

The public `Gate` lives here so that the gate itself knows no store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from oncegate.clock import Clock
from oncegate.commit.group_commit import GroupCommit
from oncegate.config import store_url
from oncegate.crashpoints import CrashPoints
from oncegate.errors import BadUrl, ConfigError
from oncegate.gate.gate import GateOnStore
from oncegate.maintenance.accepted_events import AcceptedWork
from oncegate.maintenance.background import GRACE, Caretakers
from oncegate.maintenance.jobs import (
    FEED_RETENTION,
    PRUNE_EVERY,
    RECONCILE_EVERY,
    SCAN_EVERY,
    standard_duties,
)
from oncegate.maintenance.lane_pruner import KEEP_DELIVERED
from oncegate.maintenance.schedule import Duty, Notice
from oncegate.model.content import WINDOW
from oncegate.model.durations import parse_duration
from oncegate.model.ledger_addresses import masked_address
from oncegate.review.decisions import Decisions
from oncegate.sender.addresses import AddressPolicy
from oncegate.sender.endpoint_registry import followers
from oncegate.sender.sender import SenderOnCommits
from oncegate.sender.settings import policy_from_environment
from oncegate.sender.urls import parse_endpoint_url
from oncegate.signals.definitions import Thresholds
from oncegate.signals.notifiers import LogNotifier, Notifier, WebhookNotifier
from oncegate.signals.watch import WATCH_EVERY, Watch
from oncegate.store import ClaimStore, Facet, Store, require
from oncegate.store.lanes import LANE_BACKLOG_MAX

if TYPE_CHECKING:
    from oncegate.sender.delivery import DeliveryService


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


class Sender(SenderOnCommits):
    """The sender on the ledger at `url`, else at ONCEGATE_URL, else in ./oncegate.db.

    Given a gate instead, it shares that gate's ledger and batches. `policy` says which addresses besides
    public https ones may be called; by default the environment does (`ONCEGATE_ALLOW_…`). `backlog_max` is
    how many events of one key may wait; emitting more raises Backlogged.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        gate: GateOnStore | None = None,
        store: ClaimStore | None = None,
        clock: Clock | None = None,
        policy: AddressPolicy | None = None,
        backlog_max: int = LANE_BACKLOG_MAX,
    ) -> None:
        self._owns_commits = gate is None
        if gate is not None:
            commits, clock = gate.commits, clock or gate.clock
        else:
            commits = GroupCommit(store if store is not None else open_store(url, clock=clock), clock=clock)
        policy = policy or policy_from_environment()
        super().__init__(commits, clock=clock, policy=policy, backlog_max=backlog_max)

    def delivering(self, **options: Any) -> DeliveryService:
        """Delivers in this process while an `async with` block lasts."""
        from oncegate.sender.connection import check_parser
        from oncegate.sender.delivery import DeliveryService

        check_parser()
        return DeliveryService(self, **options)

    def close(self) -> None:
        """Closes the ledger, unless it is a gate's."""
        if self._owns_commits:
            self.commits.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def alarm_webhook(url: str, policy: AddressPolicy | None = None) -> Notifier:
    """Posts alarms to an address that may be called; by default the environment says which may."""
    from oncegate.sender.posting import guarded_post

    policy = policy or policy_from_environment()
    parse_endpoint_url(url, policy)
    return WebhookNotifier(url, guarded_post(policy))


def alive_ping(url: str, policy: AddressPolicy | None = None) -> Callable[[], None]:
    """Posts nothing to an address that may be called: a dead man's ping."""
    from oncegate.sender.posting import guarded_post

    policy = policy or policy_from_environment()
    parse_endpoint_url(url, policy)
    post = guarded_post(policy)

    def ping() -> None:
        status = post(url, b"{}", {"content-type": "application/json"})
        if not 200 <= status < 300:
            raise ConnectionError(f"answered {status}")

    return ping


class Gate(GateOnStore):
    """The gate on the ledger at `url`, else at ONCEGATE_URL, else in ./oncegate.db."""

    def __init__(
        self,
        url: str | None = None,
        *,
        store: ClaimStore | None = None,
        clock: Clock | None = None,
        crashpoints: CrashPoints | None = None,
        **options: Any,
    ) -> None:
        chosen = store if store is not None else open_store(url, clock=clock)
        super().__init__(chosen, clock=clock, crashpoints=crashpoints, **options)

    def caretakers(
        self,
        *,
        reconcile_every: str | timedelta = RECONCILE_EVERY,
        prune_every: str | timedelta = PRUNE_EVERY,
        scan_every: str | timedelta = SCAN_EVERY,
        scan_window: str | timedelta = WINDOW,
        keep_delivered: str | timedelta = KEEP_DELIVERED,
        watch_every: str | timedelta | None = WATCH_EVERY,
        thresholds: Thresholds | None = None,
        notifiers: Sequence[Notifier] | None = None,
        alarms_to: str | None = None,
        ping: str | None = None,
        feed_retention: str | timedelta = FEED_RETENTION,
        notice: Notice | None = None,
        grace: str | timedelta = GRACE,
        more: Sequence[Duty] = (),
    ) -> Caretakers:
        """Caretakers for this gate's surfaces, at work while a `with` or `async with` block lasts.

        In an async program use `async with`: async handlers are run again in the event loop they belong
        to, and a plain `with` leaves them alone. `notice(name, report)` is told what each turn did.
        Alarms go to `notifiers`, by default to the log `oncegate.signals`; not with `watch_every=None`.
        With `alarms_to` they are posted to that address as well, under the sender's guard. `ping` is an
        address that is posted to at every look that went well: a service that misses it calls somebody.
        `more` are caretakers besides those that every gate has.
        """
        duties = standard_duties(
            self,
            reconcile_every=parse_duration(reconcile_every),
            prune_every=parse_duration(prune_every),
            scan_every=parse_duration(scan_every),
            scan_window=parse_duration(scan_window),
            feed_retention=parse_duration(feed_retention),
            followers=followers,
            keep_delivered=parse_duration(keep_delivered),
        )
        duties += more
        if watch_every is not None:
            told: list[Notifier] = [LogNotifier()] if notifiers is None else list(notifiers)
            if alarms_to is not None:
                told.append(alarm_webhook(alarms_to))
            require(self.store, Facet.STATS, "alarms")
            every = parse_duration(watch_every)
            watch = Watch(
                self.store, self.clock, thresholds=self.thresholds(thresholds), notifiers=told,
                ping=None if ping is None else alive_ping(ping), every=every,
            )  # fmt: skip
            duties.append(Duty("watch", every, run_once=watch.run_once))
        return Caretakers(duties, clock=self.clock, notice=notice, grace=parse_duration(grace))

    def thresholds(self, given: Thresholds | None = None) -> Thresholds:
        """The limits to watch by: those given, under those that surfaces declare with `limits=`."""
        declared = {one.name: dict(one.limits) for one in self.surfaces if one.limits}
        return (given or Thresholds()).under(Thresholds(places=declared))

    def working(self, *, concurrency: int = 64) -> AcceptedWork:
        """Runs what surfaces with `mode="accept"` have stored, while an `async with` or `with` block lasts.

        In order of each lane, each event once; any number of processes may do so. In an async program use
        `async with`; a plain `with` runs plain handlers only.
        """
        return AcceptedWork(self, concurrency=concurrency)

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
        require(self.store, Facet.REVIEW, "decisions")
        return Decisions(self._context.commits, self.clock)
