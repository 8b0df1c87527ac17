"""What all stores share about forgetting: which entries are due, and the sighting as stored text."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Final

from oncegate.model.retention import LEAP_MAX, Sighting
from oncegate.model.states import State
from oncegate.store import Due, Forgetting

_FINAL: Final = frozenset({State.COMMITTED.value, State.FAILED.value})
# What the walk sees in place of the state of an entry that is retryable and has done nothing.
REFUSED: Final = -State.RETRYABLE.value
_FINAL_OR_REFUSED: Final = _FINAL | {REFUSED}
# An entry that is retryable although one of its steps was called keeps what that step needs (I14).
IS_REFUSED: Final = """
(state = 4 AND NOT EXISTS (
    SELECT 1 FROM oncegate_step AS step WHERE step.entry = oncegate_entry.id AND step.state <> 3))
""".strip()
SEEN_STATE: Final = f"CASE WHEN {IS_REFUSED} THEN {REFUSED} ELSE state END"
_NAMED_MAX: Final = 5  # tenants in a record of the log
_AHEAD_MAX_MS: Final = LEAP_MAX // timedelta(milliseconds=1)

# An entry as the walk sees it: id, surface, state or REFUSED, received at, settled at, tenant.
Row = tuple[int, int, int, int, int, int]


def judge_rows(
    rows: Sequence[Row],
    surface: int | None,
    before_ms: int,
    now_ms: int,
    *,
    after_id: int,
    limit: int,
    refused: bool,
    tenants: Collection[int],
    others: bool,
) -> Due:
    """Finds what is due among entries that follow each other."""
    states = _FINAL_OR_REFUSED if refused else _FINAL
    due = tuple(
        entry
        for entry, of, state, received_at, settled_at, tenant in rows
        if of == surface and (tenant in tenants) != others
        if state in states and received_at < before_ms and settled_at < before_ms
    )
    goes_on = any(row[3] < before_ms or row[3] > now_ms + _AHEAD_MAX_MS for row in rows)
    last = rows[-1][0] if rows else after_id
    return Due(due, len(rows), last, len(rows) < limit or not goes_on)


def note_of(wanted: Forgetting, removed: int) -> str:
    """What the log says about a step."""
    entries = "entry" if removed == 1 else "entries"
    names = () if wanted.tenants.others else wanted.tenants.names
    whose = f", {', '.join(names[:_NAMED_MAX])}{', …' if len(names) > _NAMED_MAX else ''}," if names else ""
    return f"{removed} {entries} of {wanted.surface}{whose} from before {wanted.before_ms}"


def write_sighting(seen: Sighting) -> str:
    """A sighting as text."""
    later = (seen.doubted_since_ms, seen.ledger_ms)
    return " ".join(
        [str(seen.wall_ms), str(seen.ticks_ms), *("-" if one is None else str(one) for one in later)]
    )


def read_sighting(text: str | None) -> Sighting | None:
    """A sighting from text, if there is one."""
    return None if not text else Sighting(*(None if one == "-" else int(one) for one in text.split()))  # type: ignore[arg-type]  # the first two are always there
