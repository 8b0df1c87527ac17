"""Reads a snapshot from a ledger: a few sums and counts, none of which looks at settled entries.

A caller that measures often keeps a `Memory`: what was counted in six hours or more changes little from one
minute to the next, and adding up a week of minutes takes longer than everything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from oncegate.clock import Clock
from oncegate.lanes.circuit_status import read_circuits
from oncegate.model.circuit import CircuitState
from oncegate.signals.limits import decided_limits
from oncegate.signals.seconds import MEASURED_MAX, counts_of, judged
from oncegate.signals.snapshot import (
    DAY,
    HOUR,
    TEN_MINUTES,
    WINDOWS,
    Counts,
    JournalWord,
    Snapshot,
    SnapshotsWord,
    Watcher,
    WatchWord,
    WorkerStatus,
    added,
    by_surface,
)
from oncegate.store import Session, Waiting
from oncegate.store.incarnations import WENT_BACK
from oncegate.store.notices import DRIFT, KEYLESS, WATCH, WORKER, DriftWord, WorkerWord
from oncegate.store.registry import JOURNAL_KIND, SNAPSHOTS_KIND

MINUTE_MS: Final = 60_000
KEYLESS_SHOWN_MS: Final = 2 * 3_600_000
PAST_DAYS: Final = 7
PAST_WINDOWS: Final = (TEN_MINUTES, HOUR)
LATE_PART: Final = 144  # a remembered window may begin so small a part of its length too early,
LATE_MINUTES_MAX: Final = 10
SETTLED_MINUTES: Final = 5  # after which processes have written down what they counted in a minute


class Memory:
    """Sums of long windows, and what waits, as they were read before. Several threads may use it.

    What is remembered ends some minutes ago, when counting was over; what came since is read each time, so
    that nothing is shown as missing that has just arrived.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, dict[str, Counts]]] = {}
        self._parked: tuple[bytes, list[Waiting]] | None = None
        self._past: tuple[int, dict[int, tuple[dict[str, Counts], ...]]] | None = None

    def waiting(self, session: Session) -> list[Waiting]:
        """What is open: those in flight counted each time, the others only if any has changed."""
        mark = session.waiting_mark()
        if mark is None:
            return session.waiting()
        known = self._parked
        if known is None or known[0] != mark:
            known = self._parked = (mark, session.waiting(in_flight=False))
        return [*session.waiting(in_flight=True), *known[1]]

    def sums(self, session: Session, length: int, end: int) -> dict[str, Counts]:
        """What was counted in a window that ends before a minute; it may begin a little too early."""
        if length <= HOUR:
            return by_surface(session.tally_sums(end - length, end))
        settled = end - SETTLED_MINUTES
        known = self._known.get(length)
        if known is None or not 0 <= settled - known[0] < min(length // LATE_PART, LATE_MINUTES_MAX):
            past = by_surface(session.tally_sums(end - length, settled))
            known = self._known[length] = (settled, past)
        return added(known[1], by_surface(session.tally_sums(known[0], end)))

    def past(self, session: Session, end: int) -> dict[int, tuple[dict[str, Counts], ...]]:
        """What was counted on each of the last seven days in the windows that end at this time of day."""
        known = self._past
        if known is None or known[0] != end:
            found = {
                length: tuple(
                    by_surface(session.tally_sums(end - day * DAY - length, end - day * DAY))
                    for day in range(1, PAST_DAYS + 1)
                )
                for length in PAST_WINDOWS
            }
            known = self._past = (end, found)
        return known[1]


def measure(
    session: Session,
    clock: Clock,
    now_ms: int | None = None,
    *,
    windows: Sequence[int] = WINDOWS,
    memory: Memory | None = None,
) -> Snapshot:
    """Takes a snapshot; `now_ms` is the wall time to go by, where the clock's own is not believed."""
    memory, wall_ms = memory or Memory(), clock.wall_ms()
    now_ms = wall_ms if now_ms is None else now_ms
    end, kept = now_ms // MINUTE_MS + 1, session.documents(SNAPSHOTS_KIND)
    seconds = session.second_resources(0, MEASURED_MAX)
    return Snapshot(
        now_ms,
        session.now_ticks(),
        {length: memory.sums(session, length, end) for length in windows},
        tuple(memory.waiting(session)),
        session.clock_ahead_ms(wall_ms),
        tuple(session.destinations()),
        tuple(session.doubled()),
        tuple(session.reader_positions()),
        {name: one for name, one in read_circuits(session).items() if one.state is not CircuitState.CLOSED},
        _workers(session),
        memory.past(session, end) if HOUR in windows else {},
        session.unscanned(),
        tuple(judged(seconds)),
        _keyless(session),
        {one.name: msgspec.json.decode(one.body, type=DriftWord) for one in session.notices(DRIFT)},
        tuple(
            Watcher(one.writer, one.age_ms, msgspec.json.decode(one.body, type=WatchWord))
            for one in session.notices(WATCH)
        ),
        decided_limits(session),
        tuple(one.name for one in session.documents(WENT_BACK)),
        next((msgspec.json.decode(one.body, type=SnapshotsWord) for one in kept), None),
        tuple(counts_of(session.second_counts(), seconds)),
        _journal(session),
    )


def _journal(session: Session) -> JournalWord | None:
    state, problem = session.document(JOURNAL_KIND, "state"), session.document(JOURNAL_KIND, "problem")
    if state is None:
        return None
    word = msgspec.json.decode(state.body, type=JournalWord)
    unsealed = session.read_log(word.position, 1)
    return JournalWord(
        word.position,
        word.every_ms,
        unsealed[0].at_ms if unsealed else None,
        "" if problem is None else problem.body.decode("utf-8", "replace"),
    )


def _workers(session: Session) -> tuple[WorkerStatus, ...]:
    return tuple(
        WorkerStatus(one.writer, one.age_ms, msgspec.json.decode(one.body, type=WorkerWord))
        for one in session.notices(WORKER)
    )


def _keyless(session: Session) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for one in session.notices(KEYLESS):
        if one.age_ms < KEYLESS_SHOWN_MS:
            found[one.name] = (*found.get(one.name, ()), one.writer)
    return found
