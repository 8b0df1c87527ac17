"""What the gate has seen: arrivals counted by minute, repeats classified, told to the ledger once a second.

Every arrival passes `answered` or `remembered`, so these only count and keep a few numbers; what takes
longer (classifying, comparing contents, writing) is done by one thread a gate, in batches of bounded size.
The ledger has what other processes saw, so that one event under two ids, or a run of repeats, is found
whichever process each part reached.
Must never delay, change or fail an arrival: what cannot be written is counted as lost. A killed process
loses what it saw in its last second; no decision depends on it.
"""

from __future__ import annotations

import os
import threading
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakSet

from oncegate.clock import Clock
from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.notice_operations import PostNotice
from oncegate.commit.operations import Observe, Operation
from oncegate.commit.seen_operations import Meet
from oncegate.gate.runtime.asked import AskedAgain
from oncegate.gate.runtime.cache import CachedOutcome
from oncegate.gate.runtime.duplicate_detector import Comparing, look_at
from oncegate.gate.runtime.not_run_log import DONE_BEFORE, NotRunLine, Why, held_reason, parked_reason
from oncegate.gate.runtime.stale_offsets import Repeated, classified, recent_of
from oncegate.gate.runtime.surface_sightings import RepeatedTuple, SurfaceSightings, taken
from oncegate.gate.runtime.targets import Bringing, Brought, resources_seen
from oncegate.model.keys import Key
from oncegate.model.repeats import Classified
from oncegate.model.states import Decision
from oncegate.model.surface import Arrival, SurfaceRule
from oncegate.store import Facet, Met, Observations, Repeat, Reserved, ResourceSeen, Seen, Tally, What
from oncegate.store.notices import keyless_posting
from oncegate.store.tallies import of_class, of_delay, of_latency, of_reason

FLUSH_SECONDS = 1.0
CLASSIFIED_MAX: Final = 1_000  # repeats of a surface between two flushes; more are only counted
COMPARED_MAX: Final = 250  # new events of a gate whose content is compared between two flushes,
COMPARED_MIN: Final = 10  # shared out among its surfaces, with so many for each at least
COMPARED_BYTES_MAX: Final = 8 * 1024
WAITING_MAX: Final = 100_000  # sightings of a surface while the thread is kept from gathering them
KEPT_MAX: Final = 1_000  # operations, and steps without a key, while the ledger cannot be reached
UNTOLD_MAX: Final = 20_000  # counters kept while the ledger cannot be reached
MINUTE_MS: Final = 60_000
TRIM_MS: Final = 5_000  # how often what processes have seen is trimmed by each of them

_RUN: Final = Decision.RUN
_REPLAY: Final = Decision.REPLAY
_WHAT: Final = {
    Decision.RETRY: What.RETRY,
    Decision.RECOVER: What.RECOVER,
    Decision.REPLAY: What.REPLAY,
    Decision.BUSY: What.BUSY,
    Decision.CONFLICT: What.CONFLICT,
    Decision.HOLD: What.HOLD,
    Decision.QUARANTINE: What.QUARANTINED_AGAIN,
}
# New keys that were not run: they come with no first arrival before this one.
_PARKED: Final = {Decision.QUARANTINE: What.QUARANTINED, Decision.HOLD: What.HELD}
_REPLAYED: Final = What.REPLAY.value
_NEW: Final = frozenset(_PARKED.values())
SENT_AGAIN: Final = frozenset({Decision.REPLAY, Decision.BUSY, Decision.QUARANTINE, Decision.HOLD})

Sums = dict[tuple[str, int, int], tuple[int, int]]  # (surface, minute, what) -> (count, total)


class Sightings:
    """The observations of one gate, in one process."""

    def __init__(self, commits: GroupCommit, clock: Clock) -> None:
        self._commits = commits
        self._clock = clock
        self._tells = Facet.STATS in commits.store.capabilities.facets
        self.hooks: list[Callable[[], None]] = []  # called by the thread, about once a second
        self._begin()
        _live.add(self)

    def _begin(self) -> None:
        self._surfaces: dict[str, SurfaceSightings] = {}
        self._compared_max = COMPARED_MAX
        self._trimmed_at_ms = 0
        self._untold: Sums = {}
        self._untold_repeats: dict[tuple[int, int], Repeat] = {}
        self._untold_resources: deque[ResourceSeen] = deque(maxlen=UNTOLD_MAX)
        self._kept: deque[Operation[Any]] = deque(maxlen=KEPT_MAX)
        self._keyless: dict[tuple[str, str, str], int] = {}
        self._asked = AskedAgain()
        self.why = Why()
        self._totals: dict[tuple[str, int], tuple[int, int]] = {}
        self._flushing = threading.Lock()
        self._starting = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def answered(self, rule: SurfaceRule, arrival: Arrival, reserved: Reserved, began_us: int = 0) -> None:
        """Notes an arrival that the ledger has answered; it was asked at `began_us`, if that is known."""
        seen = self._surfaces.get(rule.name) or self.watch(rule)
        if reserved.decision is not _RUN:
            asked = self._asked.is_asked(reserved, self._clock.wall_ms())
            self._repeated(seen, reserved.decision, reserved.entry_id, reserved.received_at_ms, asked)
            self._tell_why(rule, arrival, reserved)
            if reserved.decision is Decision.QUARANTINE and not reserved.received_at_ms:
                self.count(rule, of_reason(arrival.quarantine))
            return
        if len(seen.fresh) >= WAITING_MAX:
            seen.lost += 1
            return
        seen.fresh.append(self._clock.elapsed_us() - began_us if began_us else -1)
        if len(seen.new) < self._compared_max and len(arrival.body) <= COMPARED_BYTES_MAX:
            seen.new.append((reserved.entry_id, arrival.tenant, arrival.body, reserved.received_at_ms))

    def _tell_why(self, rule: SurfaceRule, arrival: Arrival, reserved: Reserved) -> None:
        """Has a line written about an arrival that may not run; a conflict is reported by its own flow."""
        decision, first = reserved.decision, reserved.received_at_ms
        if decision is _REPLAY and not self.why.tells_replays:
            return
        reason = DONE_BEFORE
        if decision is Decision.QUARANTINE:
            reason = parked_reason(reserved.reason or arrival.quarantine)
        elif decision is Decision.HOLD:
            reason = held_reason(reserved.reason or rule.hold)
        elif decision is not _REPLAY:
            return
        self.why.note(
            NotRunLine(decision.value, rule.name, arrival.key.digest, arrival.label, reason, first)
        )

    def remembered(self, rule: SurfaceRule, known: CachedOutcome, key: Key, label: str = "") -> None:
        """Notes a replay that was answered from memory."""
        if self.why.tells_replays:
            first = known.received_at_ms
            self.why.note(NotRunLine("replay", rule.name, key.digest, label, DONE_BEFORE, first))
        seen = self._surfaces.get(rule.name) or self.watch(rule)
        asked, again = self._asked, known.claimed_again
        is_due = (again or bool(asked.due)) and asked.finds_done(known.entry_id, again)
        self._repeated(seen, _REPLAY, known.entry_id, known.received_at_ms, is_due)

    def _repeated(
        self, seen: SurfaceSightings, decision: Decision, entry_id: int, first_at_ms: int, asked: bool
    ) -> None:
        if len(seen.repeated) < CLASSIFIED_MAX:
            now_ms = self._clock.wall_ms()
            seen.repeated.append((decision, entry_id, first_at_ms, now_ms, len(seen.fresh), asked))
        elif len(seen.others) < WAITING_MAX:
            is_plain = decision is _REPLAY and not asked
            seen.others.append(_REPLAYED if is_plain else _what(decision, first_at_ms, asked).value)
        else:
            seen.lost += 1

    def count(self, rule: SurfaceRule, what: int) -> None:
        """Notes something that is no arrival."""
        seen = self._surfaces.get(rule.name) or self.watch(rule)
        if len(seen.others) < WAITING_MAX:
            seen.others.append(int(what))

    def brought(self, rule: SurfaceRule, arrival: Arrival, brought: Brought, entry_id: int) -> None:
        """Notes what an event that ran got from downstreams, for its target."""
        seen = self._surfaces.get(rule.name) or self.watch(rule)
        if brought and len(seen.brought) < WAITING_MAX:
            now_ms = self._clock.wall_ms()
            seen.brought.append(Bringing(entry_id, arrival.tenant, arrival.body, brought, now_ms))

    def sent_without_key(self, rule: SurfaceRule, step: str, downstream: str) -> None:
        """Notes a call that did not take the key although its downstream is said to honour one (F7)."""
        self.count(rule, What.KEYLESS)
        place = (rule.name, step, downstream)
        if place in self._keyless or len(self._keyless) < KEPT_MAX:
            self._keyless[place] = self._keyless.get(place, 0) + 1

    def keep(self, operation: Operation[Any]) -> None:
        """Has an operation that could not be done tried again, about once a second."""
        self._kept.append(operation)

    def watch(self, rule: SurfaceRule) -> SurfaceSightings:
        """What is seen of a surface; the first one starts the thread."""
        if (known := self._surfaces.get(rule.name)) is not None:
            return known
        with self._starting:
            if self._thread is None and not self._stop.is_set():
                self._start()
            seen = self._surfaces.setdefault(rule.name, SurfaceSightings(rule))
            self._compared_max = max(COMPARED_MIN, COMPARED_MAX // len(self._surfaces))
            return seen

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="oncegate-sightings", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(FLUSH_SECONDS):
            for hook in self.hooks:
                hook()
            self.flush()

    def flush(self) -> bool:
        """Tells the ledger what was seen since the last time; False if that has to wait."""
        with self._flushing:
            self._gather()
            self._compare()
            self.why.write()
            return self._forget_untold() if not self._tells else self._tell() and self._do_kept()

    def totals(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Everything counted since this process began, by surface and kind, for scraping."""
        with self._flushing:
            self._gather()
            self._compare()
            return dict(self._totals)

    def _gather(self) -> None:
        """Takes what the surfaces have seen, classifies it and adds it to what is to be told."""
        minute = self._clock.wall_ms() // MINUTE_MS
        for name, seen in list(self._surfaces.items()):
            repeated, fresh = taken(seen.repeated), taken(seen.fresh)
            self._count_fresh(name, minute, fresh)
            self._count_repeats(seen, repeated, len(fresh))
            for what, count in Counter(taken(seen.others)).items():
                self._add(name, minute, what, count)
            for entry_id, tenant, body, now_ms in taken(seen.new):
                look = look_at(seen.rule, entry_id, tenant, body, now_ms)
                if look is not None and len(seen.looks) < self._compared_max:
                    seen.looks.append(look)
            for one in taken(seen.brought):
                self._untold_resources.extend(resources_seen(seen.rule, one))
            if seen.lost:
                self._add(name, minute, What.LOST, seen.lost)
                seen.lost = 0

    def _count_fresh(self, surface: str, minute: int, fresh: list[int]) -> None:
        if not fresh:
            return
        self._add(surface, minute, What.FRESH, len(fresh))
        sums: dict[int, list[int]] = {}
        for took_us, count in Counter(fresh).items():
            if took_us >= 0:
                found = sums.setdefault(of_latency(took_us), [0, 0])
                found[0] += count
                found[1] += took_us * count
        for what, (count, total) in sums.items():
            self._add(surface, minute, what, count, total)

    def _count_repeats(self, seen: SurfaceSightings, repeated: list[RepeatedTuple], fresh: int) -> None:
        place = 0
        for decision, entry_id, first_at_ms, now_ms, fresh_before, asked in repeated:
            what = _what(decision, first_at_ms, asked)
            self._add(seen.rule.name, now_ms // MINUTE_MS, what)
            if first_at_ms and decision in SENT_AGAIN:
                self._add(seen.rule.name, now_ms // MINUTE_MS, of_delay(now_ms - first_at_ms))
            if what not in _NEW and len(seen.repeats) < CLASSIFIED_MAX:
                fresh_between = seen.fresh_left + fresh_before - place
                seen.repeats.append(Repeated(decision, entry_id, first_at_ms, now_ms, fresh_between, asked))
                place, seen.fresh_left = fresh_before, 0
        seen.repeats += taken(seen.observed)[:CLASSIFIED_MAX]
        seen.fresh_left += fresh - place

    def _compare(self) -> None:
        """Brings what was gathered before the ledger, which knows what others saw, and classifies it."""
        waiting = [seen for seen in list(self._surfaces.values()) if seen.looks or seen.repeats]
        if not waiting:
            return
        comparing = Comparing(look for seen in waiting for look in taken(seen.looks))
        repeats = [(seen, taken(seen.repeats)) for seen in waiting]
        met = self._meet(comparing, repeats)
        for found in comparing.found(met.before):
            self._note(found.surface, found.entry_id, found.at_ms, found.classified)
        for seen, own in repeats:
            recent = [one for one in met.recent if one.surface == seen.rule.name]
            for item, kind in classified(own, recent, seen.late_ms):
                self._note(seen.rule.name, item.entry_id, item.now_ms, kind)

    def _meet(self, comparing: Comparing, repeats: list[tuple[SurfaceSightings, list[Repeated]]]) -> Met:
        """What others saw; nothing where the ledger does not answer: then only one's own is compared."""
        if not self._tells:
            return Met()
        now_ms = self._clock.wall_ms()
        brought = tuple(one for seen, own in repeats for one in recent_of(seen.rule.name, own))
        trims = abs(now_ms - self._trimmed_at_ms) >= TRIM_MS
        try:
            met = self._commits.submit(Meet(Seen(comparing.contents(), brought, now_ms, trims)))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # noqa: BLE001  reports go on with what this process saw itself
            return Met()
        self._trimmed_at_ms = now_ms if trims else self._trimmed_at_ms
        return met

    def _note(self, surface: str, entry_id: int, now_ms: int, found: Classified) -> None:
        self._add(surface, now_ms // MINUTE_MS, of_class(found.kind))
        place = (entry_id, found.kind.value)
        known = self._untold_repeats.get(place)
        if known is None and len(self._untold_repeats) >= UNTOLD_MAX:
            self._add(surface, now_ms // MINUTE_MS, What.LOST)
            return
        first_at_ms, times = (known.first_at_ms, known.times + 1) if known is not None else (now_ms, 1)
        self._untold_repeats[place] = Repeat(
            entry_id, found.kind, first_at_ms, now_ms, times, found.evidence
        )

    def _add(self, surface: str, minute: int, what: int, count: int = 1, total: int = 0) -> None:
        had = self._totals.get((surface, what), (0, 0))
        self._totals[surface, what] = (had[0] + count, had[1] + total)
        place = (surface, minute, what)
        if place not in self._untold and len(self._untold) >= UNTOLD_MAX:
            self._untold.pop(next(iter(self._untold)))  # the oldest tell the least
        had = self._untold.get(place, (0, 0))
        self._untold[place] = (had[0] + count, had[1] + total)

    def _tell(self) -> bool:
        if not self._untold and not self._untold_repeats and not self._untold_resources:
            return True
        tallies = tuple(Tally(*place, *sums) for place, sums in self._untold.items())
        seen = Observations(tallies, tuple(self._untold_repeats.values()), tuple(self._untold_resources))
        try:
            self._commits.submit(Observe(seen))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # noqa: BLE001  whatever it is, what was seen is kept for the next time
            return False
        return self._forget_untold()

    def _forget_untold(self) -> bool:
        """It is reported, or cannot be: `totals` goes on."""
        self._untold, self._untold_repeats = {}, {}
        self._untold_resources.clear()
        return True

    def _do_kept(self) -> bool:
        """Does what was kept, and puts up which steps send no key."""
        keyless, self._keyless = self._keyless, {}
        now_ms = self._clock.wall_ms()
        self._kept.extend(PostNotice(keyless_posting(place, now_ms)) for place in keyless)
        while self._kept:
            try:
                self._commits.submit(self._kept[0])
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException:  # noqa: BLE001  whatever it is, it is tried again the next time
                return False
            self._kept.popleft()
        return True

    def close(self) -> None:
        """Ends the thread and tells the ledger what is left, as far as that is possible."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5.0)
        self.flush()

    def after_fork_in_child(self) -> None:
        """Starts again: the parent reports what the parent saw."""
        self._begin()


def _what(decision: Decision, first_at_ms: int, asked: bool) -> What:
    """What a decision is counted as."""
    if asked and decision is _REPLAY:
        return What.AWAITED
    return _PARKED[decision] if not first_at_ms and decision in _PARKED else _WHAT[decision]


_live: WeakSet[Sightings] = WeakSet()


def _after_fork_in_child() -> None:
    for sightings in list(_live):
        sightings.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
