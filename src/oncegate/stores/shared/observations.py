"""Observations of several callers as one: what is to be added to which counter, in one order for all.

Both ledgers write them sorted: two processes that add to the same counters never wait for each other in a
circle, and no statement meets the same counter twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from oncegate.errors import ConfigError
from oncegate.model.durations import parse_duration
from oncegate.model.repeats import RepeatClass
from oncegate.model.states import State
from oncegate.model.surface import DECIDE_WITHIN
from oncegate.store import Observations, Repeat, Waiting

# The kinds of reasons that people and metrics see; few, whatever senders and handlers write.
SQLITE_KIND: Final = """
CASE WHEN state = 7 AND instr(reason, ':') BETWEEN 2 AND 40 THEN substr(reason, 1, instr(reason, ':') - 1)
     WHEN state = 7 THEN 'other'
     WHEN state IN (5, 6) AND reason LIKE 'gave up after %' THEN 'attempts_used_up'
     WHEN state IN (5, 6) AND reason LIKE '% resources for %' THEN 'two_resources'
     WHEN state = 6 AND reason LIKE '%approv%' THEN 'approval'
     WHEN state IN (5, 6) THEN 'in_doubt'
     ELSE '' END
"""
POSTGRES_KIND: Final = """
CASE WHEN entry.state = 7 AND strpos(reason, ':') BETWEEN 2 AND 40 THEN split_part(reason, ':', 1)
     WHEN entry.state = 7 THEN 'other'
     WHEN entry.state IN (5, 6) AND reason LIKE 'gave up after %%' THEN 'attempts_used_up'
     WHEN entry.state IN (5, 6) AND reason LIKE '%% resources for %%' THEN 'two_resources'
     WHEN entry.state = 6 AND reason LIKE '%%approv%%' THEN 'approval'
     WHEN entry.state IN (5, 6) THEN 'in_doubt'
     ELSE '' END
"""
# How long a person has for an event that waits for approval, in words; null where nothing was said.
SQLITE_TIME_TO_DECIDE: Final = f"""
CASE WHEN state = 6 AND reason LIKE '{DECIDE_WITHIN}%'
     THEN substr(reason, {len(DECIDE_WITHIN) + 1}) END
"""
POSTGRES_TIME_TO_DECIDE: Final = f"""
CASE WHEN entry.state = 6 AND reason LIKE '{DECIDE_WITHIN}%%'
     THEN substr(reason, {len(DECIDE_WITHIN) + 1}) END
"""
Sums = dict[tuple[int, str, int], tuple[int, int]]  # (minute, surface, what) -> (count, total)


def summed(seen: Sequence[Observations]) -> Sums:
    """Adds up equal counters; in order of minute, surface and kind."""
    sums: Sums = {}
    for item in seen:
        for tally in item.tallies:
            place = (tally.minute, tally.surface, tally.what)
            count, total = sums.get(place, (0, 0))
            sums[place] = (count + tally.count, total + tally.total)
    return dict(sorted(sums.items()))


def joined(seen: Sequence[Observations]) -> list[Repeat]:
    """Makes one of each entry's repeats of a class; in order of entry and class."""
    found: dict[tuple[int, int], Repeat] = {}
    for item in seen:
        for repeat in item.repeats:
            place = (repeat.entry_id, repeat.kind.value)
            found[place] = _joined(found[place], repeat) if place in found else repeat
    return [found[place] for place in sorted(found)]


def _joined(one: Repeat, other: Repeat) -> Repeat:
    latest = max(one, other, key=lambda repeat: repeat.last_at_ms)
    return Repeat(
        one.entry_id,
        one.kind,
        min(one.first_at_ms, other.first_at_ms),
        latest.last_at_ms,
        one.times + other.times,
        latest.evidence,
    )


def repeat_of(row: tuple[int, int, int, int, int, str]) -> Repeat:
    """A repeat as it was stored."""
    entry, kind, first_at, last_at, times, evidence = row
    return Repeat(entry, RepeatClass(kind), first_at, last_at, times, evidence)


def waiting_of(row: tuple[Any, ...]) -> Waiting:
    """A count of open entries as it was read."""
    surface, state, reason, within, count, oldest_ticks, oldest_at, lapsed, tried = row
    limit = _limit_ms(within)
    return Waiting(surface, State(state), reason, count, oldest_ticks, oldest_at, lapsed, limit, tried)


def _limit_ms(within: str | None) -> int | None:
    try:
        return None if within is None else parse_duration(within) // timedelta(milliseconds=1)
    except ConfigError:  # an older version's words, or a handler's: no limit is known
        return None
