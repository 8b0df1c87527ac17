"""Why an event did not run: one line of the log for each drop, conflict, quarantine and hold.

The log is `oncegate.arrivals`. Arrivals only append to a list; the gate's thread for sightings writes the
lines, about once a second. Of a flood it writes so many lines and one summary: a sender cannot fill a disk
with them. A line has the key, the label, the reason and when the key was first seen. Must never have a
value of the event beside the label, nor what a handler's error said: both may be secrets.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from oncegate.clock import from_wall_ms
from oncegate.model.escape import visible
from oncegate.model.states import State
from oncegate.model.surface import APPROVAL

LINES_MAX: Final = 20  # of a gate between two flushes, about a second apart; the rest is one summary
WAITING_MAX: Final = 100_000
REASON_LENGTH_MAX: Final = 200
DONE_BEFORE: Final = "already done"
GAVE_UP: Final = "gave up after "
_WAS: Final = "; was "

log: Final = logging.getLogger("oncegate.arrivals")


class NotRunLine(Struct, frozen=True, gc=False):
    """What the log says of one arrival. `first_at_ms` is 0 where it is the first."""

    verdict: str
    surface: str
    key: bytes
    label: str
    reason: str
    first_at_ms: int


class Why:
    """The lines of one gate that wait to be written."""

    __slots__ = ("_lines", "_more", "tells_replays")

    def __init__(self) -> None:
        self._lines: list[NotRunLine] = []
        self._more: list[tuple[str, str]] = []
        self.tells_replays = log.isEnabledFor(logging.INFO)  # asked at every replay; renewed at each flush

    def note(self, line: NotRunLine) -> None:
        """Keeps a line to be written; beyond the bound only that there was one."""
        if len(self._lines) < LINES_MAX:
            self._lines.append(line)
        elif len(self._more) < WAITING_MAX:
            self._more.append((line.verdict, line.surface))

    def write(self) -> None:
        """Writes what waits, from the thread."""
        self.tells_replays = log.isEnabledFor(logging.INFO)
        lines, more = self._lines[:], self._more[:]
        del self._lines[: len(lines)], self._more[: len(more)]
        for line in lines:
            log.log(
                logging.INFO if line.verdict == "replay" else logging.WARNING,
                "%s on %s: key=%s label=%s reason=%s first_seen=%s",
                line.verdict, line.surface, line.key.hex(), visible(line.label), visible(line.reason),
                from_wall_ms(line.first_at_ms).isoformat(timespec="milliseconds")
                if line.first_at_ms else "now",
            )  # fmt: skip
        for (verdict, surface), count in sorted(Counter(more).items()):
            level = logging.INFO if verdict == "replay" else logging.WARNING
            log.log(
                level, "%s on %s: %d more within a second, not told one by one", verdict, surface, count
            )


def parked_reason(reason: str | None) -> str:
    """Why a key is in quarantine, in our own words: what it waited for before is left out."""
    return (reason or "").partition(_WAS)[0][:REASON_LENGTH_MAX]


def held_reason(reason: str | None) -> str:
    """Why a key waits for a person, without what a handler's error said."""
    text = reason or ""
    if text.startswith(APPROVAL):
        return text[:REASON_LENGTH_MAX]
    if text.startswith(GAVE_UP):
        return text.partition(":")[0]
    return "two resources for one key" if " resources for " in text else "in doubt"


REASONS: Final[dict[State, Callable[[str | None], str]]] = {
    State.QUARANTINED: parked_reason,
    State.HELD: held_reason,
    State.UNKNOWN: held_reason,
}
