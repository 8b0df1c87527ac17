"""A simulated machine room: a virtual-time event loop, workers that crash and stall, a ledger in memory.

What the simulator (`lab.simulator`) and the fixtures for users' handlers share. Nothing here
reads a clock, starts a thread or draws a random number of its own: the same calls in the same order give
the same run.
"""

from oncegate.testing.simulation.actors import Actor, ActorCrashed
from oncegate.testing.simulation.commits import SilentSightings, SimulatedCommits, SimulatedLeases
from oncegate.testing.simulation.ledger import Ledger
from oncegate.testing.simulation.loop import VirtualClock, VirtualLoop
from oncegate.testing.simulation.store import SimulatedStore

__all__ = [
    "Actor",
    "ActorCrashed",
    "Ledger",
    "SilentSightings",
    "SimulatedCommits",
    "SimulatedLeases",
    "SimulatedStore",
    "VirtualClock",
    "VirtualLoop",
]
