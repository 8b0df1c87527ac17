"""Alarms: signals with a memory, so that one that comes and goes does not call a person each time. Pure.

An alarm is raised at once and calms down slowly: only after its value has stayed well below its limit for a
while. Goes by ticks, so that no step of a wall clock raises, hides or repeats anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from enum import Enum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from oncegate.signals.alerts import Signal
from oncegate.signals.definition import Level
from oncegate.signals.definitions import CALM_FOR, CLEAR_SHARE

REMIND_EVERY: Final = timedelta(hours=4)
_CALM_MS: Final = CALM_FOR // timedelta(milliseconds=1)
_REMIND_MS: Final = REMIND_EVERY // timedelta(milliseconds=1)

Place = tuple[str, str]


class AlarmChange(Enum):
    """What happened to an alarm."""

    RAISED = "raised"
    WORSE = "worse"
    STILL = "still so"
    CALMED = "calmed"


class Alarm(Struct, frozen=True):
    """A signal that matters: how much, since when, when it was last told, since when it is calm."""

    level: Level
    limit: float | None
    since_ticks: int
    told_ticks: int
    calm_since_ticks: int | None = None


class AlarmNotice(Struct, frozen=True):
    """A notice for a person: each change of an alarm once, and a reminder now and then."""

    change: AlarmChange
    signal: Signal
    level: Level


Alarms = Mapping[Place, Alarm]


def advance(alarms: Alarms, signals: Iterable[Signal], now_ticks: int) -> tuple[Alarms, list[AlarmNotice]]:
    """Takes the alarms one evaluation further and says what is to be told."""
    after: dict[Place, Alarm] = {}
    notices: list[AlarmNotice] = []
    for signal in signals:
        known = alarms.get(signal.place)
        alarm, change = _advance(known, signal, now_ticks)
        if alarm is not None:
            after[signal.place] = alarm
        if change is not None:
            level = alarm.level if alarm is not None else Level.OK
            notices.append(AlarmNotice(change, signal, level))
    return after, notices


def _advance(known: Alarm | None, signal: Signal, now: int) -> tuple[Alarm | None, AlarmChange | None]:
    if known is None:
        if signal.level <= Level.OK:
            return None, None
        return Alarm(signal.level, signal.limit, now, now), AlarmChange.RAISED
    if signal.level > known.level:
        return Alarm(signal.level, signal.limit, known.since_ticks, now), AlarmChange.WORSE
    if signal.level == known.level or not _is_calm(known, signal):
        return _still(known, now)
    calm_since = now if known.calm_since_ticks is None else known.calm_since_ticks
    if now - calm_since < _CALM_MS:
        return replace(known, calm_since_ticks=calm_since), None
    if signal.level <= Level.OK:
        return None, AlarmChange.CALMED
    return Alarm(signal.level, signal.limit, known.since_ticks, now), AlarmChange.CALMED


def _is_calm(known: Alarm, signal: Signal) -> bool:
    """Well below the limit that raised it: not merely under it by a hair."""
    return known.limit is None or signal.value < CLEAR_SHARE * known.limit


def _still(known: Alarm, now: int) -> tuple[Alarm, AlarmChange | None]:
    if known.level is Level.PAGE and now - known.told_ticks >= _REMIND_MS:
        return replace(known, told_ticks=now, calm_since_ticks=None), AlarmChange.STILL
    return replace(known, calm_since_ticks=None), None
