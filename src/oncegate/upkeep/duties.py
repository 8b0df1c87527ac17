"""The caretakers that every gate should have, and how often their turns come.

The reconciler's interval is what A6 leaves over: a lease lapses at most 20 s after the crash, a downstream
that is asked may get the request for another 60 s, and 90 s after the crash all must be settled.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from oncegate.gate.gate import Gate
from oncegate.upkeep.pruner import Pruner
from oncegate.upkeep.reconciler import Reconciler
from oncegate.upkeep.turns import Duty

RECONCILE_EVERY: Final = timedelta(seconds=5)
PRUNE_EVERY: Final = timedelta(hours=1)


def standard_duties(
    gate: Gate, *, reconcile_every: timedelta = RECONCILE_EVERY, prune_every: timedelta = PRUNE_EVERY
) -> list[Duty]:
    """The reconciler and the pruner of a gate."""
    reconciler, pruner = Reconciler(gate), Pruner(gate)
    return [
        Duty(
            "reconciler",
            reconcile_every,
            run_once_async=reconciler.run_once_async,
            run_once_apart=reconciler.run_once_apart,
            under_way=reconciler.under_way,
        ),
        Duty("pruner", prune_every, run_once=pruner.run_once),
    ]
