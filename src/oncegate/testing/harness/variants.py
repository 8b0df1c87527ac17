"""Near-duplicates of a user's event: the same key with one field changed."""

from __future__ import annotations

import copy
from typing import Any

from oncegate.model.surface import SurfaceRule, read_arrival


def near_duplicates(rule: SurfaceRule, event: Any, now_ms: int) -> list[Any]:
    """Every version of the event with one top-level field changed that has its key and another content."""
    if not isinstance(event, dict):
        return []
    first = read_arrival(rule, event, None, now_ms)
    found = []
    for name in event:
        changed = copy.deepcopy(event)
        changed[name] = _other(event[name])
        arrival = read_arrival(rule, changed, None, now_ms)
        if arrival.key == first.key and arrival.fingerprint != first.fingerprint and not arrival.quarantine:
            found.append(changed)
    return found


def _other(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return f"{value}~"
    if isinstance(value, list):
        return [*value, "~"]
    return {**value, "~": 1} if isinstance(value, dict) else "~"
