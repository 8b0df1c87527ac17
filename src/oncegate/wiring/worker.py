"""The worker of a gate: which background jobs it runs, and why it leaves others out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from functools import partial

from oncegate.errors import ConfigError
from oncegate.gate.facade import GateOnStore
from oncegate.maintenance.accepted_events import accepting_surfaces
from oncegate.maintenance.background import ContinuousJob, Worker
from oncegate.maintenance.jobs import accepted_job, choose, missing_facets
from oncegate.maintenance.schedule import JobKind, Notice, PeriodicJob
from oncegate.sender.connection import check_parser
from oncegate.sender.sender import SenderOnCommits
from oncegate.signals.definitions import Thresholds
from oncegate.signals.notifiers import Notifier
from oncegate.signals.watch import Watch
from oncegate.sources.options import Consumption
from oncegate.store import Facet
from oncegate.wiring.history import declared_snapshots, history_jobs
from oncegate.wiring.journal import journal_jobs
from oncegate.wiring.sender import Sender
from oncegate.wiring.sources import sources_job


def make_worker(
    gate: GateOnStore,
    jobs: Sequence[PeriodicJob | ContinuousJob],
    only: Collection[JobKind] | None,
    without: Collection[JobKind],
    *,
    sender: SenderOnCommits | None,
    notice: Notice | None,
    grace: timedelta,
    sources: Sequence[Consumption] = (),
) -> Worker:
    """The worker with the given jobs, accepted events, deliveries and sources, less those left out."""
    left_out = choose(only, without, _unavailable_jobs(gate, sources))
    wanted = list(jobs)
    if "accepted" not in left_out:
        wanted.append(accepted_job(gate))
    if "deliveries" not in left_out:
        wanted.append(_delivery_job(sender or Sender(gate=gate)))
    if "sources" not in left_out:
        wanted.append(sources_job(gate, sources))
    wanted += journal_jobs(gate, left_out)
    wanted += history_jobs(gate, left_out)
    chosen = [job for job in wanted if job.kind not in left_out]
    return Worker(chosen, clock=gate.engine.clock, notice=notice, grace=grace, left_out=left_out)


def watch_jobs(
    gate: GateOnStore,
    every: timedelta,
    limits: Thresholds,
    alarms: Sequence[Notifier],
    ping: Callable[[], None] | None,
) -> list[PeriodicJob]:
    """Measures, evaluates and notifies; none where the ledger has no stats."""
    store, clock = gate.engine.store, gate.engine.clock
    if Facet.STATS not in store.capabilities.facets:
        return []
    watch = Watch(store, clock, thresholds=limits, notifiers=alarms, ping=ping, every=every)
    return [PeriodicJob("watch", every, run_once=watch.run_once, kind="watch")]


def _unavailable_jobs(gate: GateOnStore, sources: Sequence[Consumption]) -> dict[JobKind, str]:
    """Jobs that cannot run for this gate or with this installation, each with the reason."""
    checks: dict[JobKind, Callable[[], object]] = {
        "accepted": lambda: accepting_surfaces(gate),
        "deliveries": check_parser,
        "sources": partial(sources_job, gate, sources),
        "journal": partial(journal_jobs, gate),
        "snapshots": partial(declared_snapshots, gate),
    }
    unavailable = missing_facets(gate)
    for kind, check in checks.items():
        try:
            check()
        except ConfigError as error:
            unavailable.setdefault(kind, str(error))
    return unavailable


def _delivery_job(sender: SenderOnCommits) -> ContinuousJob:
    """Delivers to every endpoint of the ledger; endpoints that are added later are noticed."""
    from oncegate.sender.delivery import DeliveryService

    async def run_once() -> object:
        async with DeliveryService(sender, runs=False) as service:
            return await service.engine.run_once()

    return ContinuousJob("deliveries", lambda s: DeliveryService(sender, stop_seconds=s), run_once)
