"""What all stores share about forgetting: which entries are due, and the sighting as stored text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from oncegate.model.retention import LEAP_MAX, Sighting
from oncegate.model.states import State
from oncegate.store import Due, Forgetting

_FINAL: Final = frozenset({State.COMMITTED.value, State.FAILED.value})
_AHEAD_MAX_MS: Final = LEAP_MAX // timedelta(milliseconds=1)

# An entry as the walk sees it: id, surface, state, received at, settled at.
Row = tuple[int, int, int, int, int]


def judge_rows(
    rows: Sequence[Row], surface: int | None, before_ms: int, now_ms: int, *, after_id: int, limit: int
) -> Due:
    """Finds what is due among entries that follow each other."""
    due = tuple(
        entry
        for entry, of, state, received_at, settled_at in rows
        if of == surface and state in _FINAL and received_at < before_ms and settled_at < before_ms
    )
    goes_on = any(row[3] < before_ms or row[3] > now_ms + _AHEAD_MAX_MS for row in rows)
    last = rows[-1][0] if rows else after_id
    return Due(due, len(rows), last, len(rows) < limit or not goes_on)


def note_of(wanted: Forgetting, removed: int) -> str:
    """What the log says about a step."""
    entries = "entry" if removed == 1 else "entries"
    return f"{removed} {entries} of {wanted.surface} from before {wanted.before_ms}"


def write_sighting(seen: Sighting) -> str:
    """A sighting as text."""
    doubted = "" if seen.doubted_since_ms is None else str(seen.doubted_since_ms)
    return f"{seen.wall_ms} {seen.ticks_ms} {doubted}".rstrip()


def read_sighting(text: str | None) -> Sighting | None:
    """A sighting from text, if there is one."""
    return None if not text else Sighting(*map(int, text.split()))
