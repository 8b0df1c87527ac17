"""The caretakers that every gate should have, and how often their turns come.

The reconciler's interval is what A6 leaves over: a lease lapses at most 20 s after the crash, a downstream
that is asked may get the request for another 60 s, and 90 s after the crash all must be settled.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from oncegate.clock import Clock
from oncegate.gate.gate import GateOnStore
from oncegate.maintenance.content_scan import ContentScan
from oncegate.maintenance.feed_pruner import FeedPruner, Followers, nobody
from oncegate.maintenance.lane_pruner import KEEP_DELIVERED, LanePruner
from oncegate.maintenance.pruner import Pruner
from oncegate.maintenance.reconciler import Reconciler
from oncegate.maintenance.schedule import Duty
from oncegate.model.content import WINDOW
from oncegate.store import Facet, Store, require

RECONCILE_EVERY: Final = timedelta(seconds=5)
PRUNE_EVERY: Final = timedelta(hours=1)
SCAN_EVERY: Final = timedelta(days=1)
FEED_RETENTION: Final = timedelta(days=90)


def standard_duties(
    gate: GateOnStore,
    *,
    reconcile_every: timedelta = RECONCILE_EVERY,
    prune_every: timedelta = PRUNE_EVERY,
    scan_every: timedelta = SCAN_EVERY,
    scan_window: timedelta = WINDOW,
    feed_retention: timedelta = FEED_RETENTION,
    followers: Followers = nobody,
    keep_delivered: timedelta = KEEP_DELIVERED,
) -> list[Duty]:
    """The reconciler, the pruners of keys, of the feed and of lanes, and the content scan of a gate."""
    for facet in (Facet.REVIEW, Facet.FEED, Facet.LANES):
        require(gate.store, facet, "workers")
    feed = FeedPruner(gate.store, gate.clock, feed_retention, followers=followers)
    reconciler, pruner = Reconciler(gate, every=reconcile_every), Pruner(gate)
    scan = ContentScan(gate.store, gate.clock, window=scan_window)
    return [
        Duty(
            "reconciler",
            reconcile_every,
            run_once_async=reconciler.run_once_async,
            run_once_apart=reconciler.run_once_apart,
            under_way=reconciler.under_way,
        ),
        Duty("pruner", prune_every, run_once=pruner.run_once),
        Duty("feed pruner", prune_every, run_once=feed.run_once),
        lane_duty(gate.store, gate.clock, prune_every, keep_delivered),
        Duty("content scan", scan_every, run_once=scan.run_once),
    ]


def lane_duty(
    store: Store, clock: Clock, every: timedelta = PRUNE_EVERY, keep: timedelta = KEEP_DELIVERED
) -> Duty:
    """The pruner of lanes, for whoever sends without a gate too."""
    return Duty("lane pruner", every, run_once=LanePruner(store, clock, keep).run_once)
