"""The ordered-work engine: leases the heads of lanes, delivers them, records what came of it.

It knows neither HTTP nor handlers: a destination is a name and a coroutine.
"""

from oncegate.lanes.destinations import Destination
from oncegate.lanes.engine import Engine, Pass
from oncegate.lanes.outcomes import Dead, Delivered, Disable, NotYet, RetryLater, Throttle, Unreached

__all__ = [
    "Dead",
    "Delivered",
    "Destination",
    "Disable",
    "Engine",
    "NotYet",
    "Pass",
    "RetryLater",
    "Throttle",
    "Unreached",
]
