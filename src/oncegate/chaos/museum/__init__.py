"""The museum of broken gates: mistakes seen in public, each as a few changed lines of the same gate.

The harness that the true gate passes must catch every one of them. `EXHIBITS` is the collection.
"""

from __future__ import annotations

from typing import Final

from oncegate.chaos.museum import batches, deployments, failovers, fences, keys, outcomes
from oncegate.chaos.museum.exhibit import Exhibit

_ROOMS: Final = (keys, fences, outcomes, batches, deployments, failovers)

EXHIBITS: Final[dict[str, type[Exhibit]]] = {
    name: found
    for room in _ROOMS
    for name, found in vars(room).items()
    if isinstance(found, type) and issubclass(found, Exhibit) and found is not Exhibit
}
