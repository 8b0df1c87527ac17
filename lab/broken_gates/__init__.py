"""The broken-gate suite: mistakes seen in public, each as a few changed lines of the same gate.

The harness that the true gate passes must catch every one of them. `BROKEN_GATES` is the collection.
"""

from __future__ import annotations

from typing import Final

from lab.broken_gates import batches, deployments, failovers, fences, keys, outcomes
from lab.broken_gates.broken_gate import BrokenGate

_ROOMS: Final = (keys, fences, outcomes, batches, deployments, failovers)

BROKEN_GATES: Final[dict[str, type[BrokenGate]]] = {
    name: found
    for room in _ROOMS
    for name, found in vars(room).items()
    if isinstance(found, type) and issubclass(found, BrokenGate) and found is not BrokenGate
}
