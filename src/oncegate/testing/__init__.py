"""For tests, ours and users': a manual clock, armed crash points, the conformance suite for stores."""

from oncegate.testing.clock import ManualClock
from oncegate.testing.crashing import ArmedCrashPoints, CrashReached

__all__ = ["ArmedCrashPoints", "CrashReached", "ManualClock"]
