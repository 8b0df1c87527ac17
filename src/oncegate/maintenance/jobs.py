"""The background jobs that every gate needs, how often they run, and which of them a worker runs.

The interval of recovery follows from A6: a lease expires at most 20 s after the crash, a request to a
downstream may be under way for another 60 s, and 90 s after the crash everything must be settled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
from typing import Final, get_args

from oncegate.errors import ConfigError
from oncegate.gate.facade import GateOnStore
from oncegate.maintenance.accepted_events import AcceptedWork, accepting_surfaces
from oncegate.maintenance.background import ContinuousJob
from oncegate.maintenance.content_scan import ContentScan
from oncegate.maintenance.feed_pruner import FeedPruner, Followers, nobody
from oncegate.maintenance.lane_pruner import KEEP_DELIVERED, LanePruner
from oncegate.maintenance.payload_pruner import PayloadPruner
from oncegate.maintenance.pruner import Pruner
from oncegate.maintenance.reconciler import Reconciler
from oncegate.maintenance.schedule import JobKind, PeriodicJob
from oncegate.model.content import WINDOW
from oncegate.store import Facet, ledgers_of, require

RECONCILE_EVERY: Final = timedelta(seconds=5)
PRUNE_EVERY: Final = timedelta(hours=1)
SCAN_EVERY: Final = timedelta(days=1)
FEED_RETENTION: Final = timedelta(days=90)

_NEEDS: Final[dict[JobKind, Facet]] = {
    "pruning": Facet.REVIEW,
    "scans": Facet.REVIEW,
    "watch": Facet.STATS,
    "deliveries": Facet.LANES,
}
KINDS: Final[tuple[JobKind, ...]] = get_args(JobKind)
DOES: Final[dict[JobKind, str]] = {
    "recovery": "recovers interrupted events and retries failed attempts",
    "pruning": "removes what is past its retention",
    "scans": "finds the same change under different keys",
    "watch": "measures the signals and raises alarms",
    "accepted": "runs the handlers of accepted events",
    "deliveries": "sends emitted events to their endpoints",
    "sources": "receives from queues, runs each event once, and acknowledges",
    "journal": "seals the log under signed heads",
    "snapshots": "takes signed snapshots, and applies approved roll-backs",
}


def standard_jobs(
    gate: GateOnStore,
    *,
    reconcile_every: timedelta = RECONCILE_EVERY,
    prune_every: timedelta = PRUNE_EVERY,
    scan_every: timedelta = SCAN_EVERY,
    scan_window: timedelta = WINDOW,
    feed_retention: timedelta | None = FEED_RETENTION,
    followers: Followers = nobody,
    keep_delivered: timedelta = KEEP_DELIVERED,
) -> list[PeriodicJob | ContinuousJob]:
    """The reconciler, the pruners of keys, of the feed and of lanes, and the content scan of a gate.

    A ledger without review has the reconciler only: it removes final keys by itself. One with shards has
    the pruners too.
    """
    reconciler = Reconciler(gate, every=reconcile_every)
    jobs: list[PeriodicJob | ContinuousJob] = [
        PeriodicJob(
            "reconciler",
            reconcile_every,
            run_once_async=reconciler.run_once_async,
            run_once_apart=reconciler.run_once_apart,
            under_way=reconciler.under_way,
            kind="recovery",
        )
    ]
    missing = missing_facets(gate)
    jobs += [] if "pruning" in missing else _pruners(gate, prune_every)
    if missing:
        return jobs
    lanes = LanePruner(gate.engine.store, gate.engine.clock, keep_delivered)
    scan = ContentScan(gate.engine.store, gate.engine.clock, window=scan_window)
    jobs.append(PeriodicJob("lane pruner", prune_every, run_once=lanes.run_once, kind="pruning"))
    jobs.append(PeriodicJob("content scan", scan_every, run_once=scan.run_once, kind="scans"))
    if feed_retention is not None:
        feed = FeedPruner(gate.engine.store, gate.engine.clock, feed_retention, followers=followers)
        jobs.append(PeriodicJob("feed pruner", prune_every, run_once=feed.run_once, kind="pruning"))
    return jobs


def _pruners(gate: GateOnStore, every: timedelta) -> Iterator[PeriodicJob]:
    """Two for the ledger; of several shards each has its own, so that one that is away stops no other."""
    ledgers = ledgers_of(gate.engine.store)
    for place, store in enumerate(ledgers):
        of = f" of shard {place}" if len(ledgers) > 1 else ""
        keys, contents = Pruner(gate, store=store), PayloadPruner(gate, store=store)
        yield PeriodicJob(f"pruner{of}", every, run_once=keys.run_once, kind="pruning")
        yield PeriodicJob(f"payload pruner{of}", every, run_once=contents.run_once, kind="pruning")


def missing_facets(gate: GateOnStore) -> dict[JobKind, str]:
    """The jobs that a gate's ledger has no facets for, each with the reason."""
    missing: dict[JobKind, str] = {}
    for kind, facet in _NEEDS.items():
        try:
            asked = ledgers_of(gate.engine.store)[0] if kind == "pruning" else gate.engine.store
            require(asked, facet, f"the jobs {kind}")
        except ConfigError as error:
            missing[kind] = str(error)
    return missing


def accepted_job(gate: GateOnStore) -> ContinuousJob:
    """Runs what accepting surfaces have stored; raises ConfigError where no surface accepts."""
    surfaces = accepting_surfaces(gate)
    own_loop = [surface.name for surface in surfaces if surface.is_async]
    return ContinuousJob(
        "accepted",
        lambda seconds: AcceptedWork(gate, stop_seconds=seconds),
        lambda: AcceptedWork(gate).run_once(),
        f"the handler of {own_loop[0]} is async; use `async with`, or leave out 'accepted'"
        if own_loop
        else None,
    )


def choose(
    only: Collection[str] | None, without: Collection[str], unavailable: Mapping[JobKind, str]
) -> dict[JobKind, str]:
    """Which kinds of jobs are left out, each with the reason; raises ConfigError for a wrong choice."""
    unknown = [name for name in (*(only or ()), *without) if name not in KINDS]
    if unknown:
        raise ConfigError(f"there is no job {unknown[0][:40]!r}; jobs are {', '.join(KINDS)}")
    if only is not None and without:
        raise ConfigError("a worker takes a list of jobs to run or a list of jobs to leave out, not both")
    wanted = [kind for kind in KINDS if kind not in without and (only is None or kind in only)]
    missing = [kind for kind in wanted if kind in unavailable]
    if missing and only is not None:
        raise ConfigError(f"the job {missing[0]} cannot run: {unavailable[missing[0]]}")
    if len(missing) == len(wanted):
        raise ConfigError(f"no job is left to run; jobs are {', '.join(KINDS)}")
    return {
        kind: unavailable[kind] if kind in wanted else "not chosen"
        for kind in KINDS
        if kind in missing or kind not in wanted
    }
