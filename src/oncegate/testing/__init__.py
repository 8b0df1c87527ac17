"""For tests, ours and users': clocks moved by hand, armed crash points, faulty stores, forked workers.

The conformance suite for stores is `oncegate.testing.conformance`, for queues `SourceConformance`. Nothing
here needs pytest.
"""

from oncegate.testing.clock import ManualClock, SharedClock
from oncegate.testing.crashing import ArmedCrashPoints, CrashReached
from oncegate.testing.faults import Fault, Faults, faulty
from oncegate.testing.forking import Forked, run_forked
from oncegate.testing.harness.chaos import Chaos
from oncegate.testing.memory_source import MemorySource
from oncegate.testing.source_conformance import SourceConformance
from oncegate.testing.waiting import wait_until

__all__ = [
    "ArmedCrashPoints",
    "Chaos",
    "CrashReached",
    "Fault",
    "Faults",
    "Forked",
    "ManualClock",
    "MemorySource",
    "SharedClock",
    "SourceConformance",
    "faulty",
    "run_forked",
    "wait_until",
]
