"""Recorded arrivals as a schedule: the same moments, repeats and conflicts, in the simulated world.

The simulator needs no payloads: which arrivals carry the same event, and which of them another content, is
what the gate is about. So a recording whose rules keep no payload can still be played here.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from lab.simulator.schedule import WORKERS, Delivery, Event, Schedule
from lab.simulator.workload import SURFACES, make_schedule
from oncegate.errors import ConfigError
from oncegate.recorder.recording import ArrivalLine, Recording

DELIVERIES_MAX: Final = 5_000  # what one run can play in a time that somebody waits for


def schedule_of(
    recording: Recording, seed: int, *, shuffle: bool = False, surfaces: Sequence[str] = ()
) -> Schedule:
    """The recording with the faults of a seed; each recorded surface uses the gate in another way."""
    wanted = _wanted(recording, surfaces)
    moments = sorted(one.at_ms for one in wanted)
    rng = Random(seed)
    if shuffle:
        rng.shuffle(wanted)
    first: dict[str, ArrivalLine] = {}
    for one in wanted:
        first.setdefault(one.event, one)
    numbers = {event: number for number, event in enumerate(first)}
    deliveries = tuple(
        Delivery(
            (moment - moments[0]) / 1000,
            numbers[one.event],
            rng.randrange(WORKERS),
            changed=one.content != first[one.event].content,
        )
        for one, moment in zip(wanted, moments, strict=True)
    )
    ways = {name: SURFACES[place % len(SURFACES)] for place, name in enumerate(_names(wanted))}
    events = tuple(
        Event(ways[one.surface], one.tenant or "nobody", (name, one.surface)) for name, one in first.items()
    )
    return Schedule(seed, events, deliveries, make_schedule(seed).faults)


def _names(wanted: Sequence[ArrivalLine]) -> list[str]:
    return sorted({one.surface for one in wanted})


def _wanted(recording: Recording, surfaces: Sequence[str]) -> list[ArrivalLine]:
    wanted = [one for one in recording.arrivals if not surfaces or one.surface in surfaces]
    if not wanted:
        raise ConfigError("the recording has no arrival to play")
    if len(wanted) > DELIVERIES_MAX:
        raise ConfigError(
            f"{len(wanted)} arrivals are more than the simulator plays at once, {DELIVERIES_MAX}; "
            "choose a --surface or record a shorter span"
        )
    return wanted
