"""Recorded arrivals: what came in, with personal data taken out, kept to be played again.

recording   the format: one JSON object a line, with a version
reading     a recording from a file, or one clear line about what is wrong with it
redaction   which values of an event are kept, dropped, masked or replaced by a keyed hash
pseudonyms  the keyed hash: equal values stay equal, and nothing can be read back
recorder    writes down arrivals as a gate sees them
export      makes a recording of what a ledger still holds
planning    what is played when: order, speed, times
replaying   plays a recording to a gate, and counts what came of it
"""

from oncegate.recorder.recorder import Recorder
from oncegate.recorder.redaction import Rules

__all__ = ["Recorder", "Rules"]
