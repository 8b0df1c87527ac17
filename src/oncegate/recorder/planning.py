"""What is played when: the order, the speed, and the times that events carry.

Pure. The same recording, seed and speed give the same plan. An event that is played at another moment than
it came gets a new date by the same distance, all its arrivals alike: its repeats stay repeats, and it is as
old when it arrives as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import accumulate
from random import Random
from typing import Any

from msgspec import Struct

from oncegate.errors import BadTimestamp
from oncegate.model.paths import lookup, parse_path
from oncegate.model.timestamps import format_timestamp, parse_timestamp
from oncegate.recorder.reading import began_ms
from oncegate.recorder.recording import ArrivalLine, Recording


class Planned(Struct, frozen=True):
    """One arrival with the moment it is played at, in milliseconds since the beginning of the replay."""

    arrival: ArrivalLine
    at_ms: int
    payload: Any


def make_plan(
    recording: Recording,
    *,
    surfaces: Sequence[str] = (),
    shuffle_seed: int | None = None,
    speed: float | None = None,
    starts_at_ms: int | None = None,
) -> list[Planned]:
    """Everything of the recording that has a payload, in the order it is played.

    With `shuffle_seed` the arrivals change places, and the moments stay. `speed` compresses the time
    between them; None means no time at all. `starts_at_ms` is when the replay begins by the clock that will
    judge the events, if that is not the clock of the recording.
    """
    wanted = [one for one in recording.arrivals if one.has_payload and _is_wanted(one, surfaces)]
    # Never backwards, also where the recorded clock was set back.
    moments = list(accumulate((one.at_ms for one in wanted), max))
    if shuffle_seed is not None:
        Random(shuffle_seed).shuffle(wanted)
    start = began_ms(recording)
    shifts = _shifts(wanted, moments, start, starts_at_ms, speed)
    return [
        Planned(one, moment, _dated(recording, one, shifts[one.event]))
        for one, moment in zip(wanted, moments, strict=True)
    ]


def _is_wanted(arrival: ArrivalLine, surfaces: Sequence[str]) -> bool:
    return not surfaces or arrival.surface in surfaces


def _shifts(
    wanted: Sequence[ArrivalLine],
    moments: Sequence[int],
    start: int,
    starts_at_ms: int | None,
    speed: float | None,
) -> dict[str, int]:
    """By how much each event's date moves: from its first arrival then to its first arrival now."""
    recorded: dict[str, int] = {}
    for one in wanted:
        recorded[one.event] = min(one.at_ms, recorded.get(one.event, one.at_ms))
    shifts: dict[str, int] = {}
    for one, moment in zip(wanted, moments, strict=True):
        if one.event not in shifts:
            now = moment + start
            if starts_at_ms is not None:
                now = starts_at_ms + (0 if speed is None else int(moment / speed))
            shifts[one.event] = now - (recorded[one.event] + start)
    return shifts


def _dated(recording: Recording, arrival: ArrivalLine, shift_ms: int) -> Any:
    """The payload, its own time moved; a time that cannot be read stays as it is."""
    payload = arrival.decoded()
    surface = recording.surfaces.get(arrival.surface)
    if not shift_ms or surface is None or surface.occurred_at is None:
        return payload
    *outer, name = parse_path(surface.occurred_at)
    holder = lookup(payload, tuple(outer))
    if not isinstance(holder, dict) or name not in holder:
        return payload
    try:
        moved = parse_timestamp(holder[name]) + timedelta(milliseconds=shift_ms)
        holder[name] = format_timestamp(moved)
    except (BadTimestamp, OverflowError, ValueError):
        return payload
    return payload
