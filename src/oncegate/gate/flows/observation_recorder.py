"""Notes what a gate would have done about arrivals of surfaces that observe, beside their handlers.

One thread a gate writes in batches. Must never raise into, or wait for, an arrival: what the ledger does
not take is counted as not recorded and told of in the log.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from datetime import timedelta
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from oncegate.commit.notice_operations import PostNotice
from oncegate.errors import ConfigError, OncegateError
from oncegate.gate.driver.drivers import Driver
from oncegate.gate.flows.admit import wanted_again
from oncegate.gate.flows.conflicts import known_body
from oncegate.gate.flows.identity import identify_flow
from oncegate.gate.runtime.arrival_stats import SENT_AGAIN
from oncegate.gate.runtime.context import GateContext
from oncegate.gate.runtime.observed_keys import NoteObserved, ObservedEnd, ObservedNote
from oncegate.gate.runtime.stale_offsets import Repeated
from oncegate.gate.surface import Surface
from oncegate.model.differences import differing, names_text
from oncegate.model.identity import with_former_keys
from oncegate.model.states import Decision
from oncegate.model.surface import LEASE_MAX, Arrival
from oncegate.store import Reservation, Reserved, What
from oncegate.store.notices import ObservedSample, observed_posting
from oncegate.store.tallies import of_delay, of_observed, of_observed_reason

FIRST_WAIT_SECONDS: Final = 1.0  # for what is decided, once in a process
WAITING_MAX: Final = 10_000  # arrivals that are not noted yet
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
BATCH_MAX: Final = 256
CLOSE_SECONDS: Final = 5.0
TELL_EVERY_MS: Final = 60_000
SAMPLES_MAX: Final = 5  # of each kind and surface
ATTEMPTS_MAX: Final = 2**31 - 1

log: Final = logging.getLogger("oncegate.surfaces")

_WOULD_BE: Final = {
    Decision.RUN: What.FRESH,
    Decision.RETRY: What.RETRY,
    Decision.RECOVER: What.RECOVER,
    Decision.REPLAY: What.REPLAY,
    Decision.BUSY: What.BUSY,
    Decision.CONFLICT: What.CONFLICT,
    Decision.HOLD: What.HOLD,
    Decision.QUARANTINE: What.QUARANTINED_AGAIN,
}


class ObservedArrival(Struct, eq=False):
    """One arrival while its handler runs, and until it is noted."""

    surface: Surface
    arrival: Arrival
    wanted: Reservation
    reserved: Reserved | None = None
    end: ObservedEnd | None = None

    @property
    def note(self) -> ObservedNote:
        """As the ledger gets it."""
        return ObservedNote(self.wanted, self.reserved, self.end)


class ObservationRecorder:
    """Notes the observed arrivals of one gate, in a thread. No method raises or waits."""

    def __init__(self, gate: GateContext, driver: Driver) -> None:
        self._gate, self._driver = gate, driver
        gate.sightings.hooks.append(gate.decided.read_in_turn)
        self._begin()

    def _begin(self) -> None:
        self._pid, self._thread = os.getpid(), threading.Thread()
        self._starting = threading.Lock()
        self._queue: queue.SimpleQueue[ObservedArrival | None] = queue.SimpleQueue()
        self._later: list[ObservedArrival] = []
        self._waiting = self._bytes = self._samples = 0
        self._asked_at_ms: int | None = None
        self._told_at_ms: int | None = None

    def start(self, surface: Surface) -> None:
        """Starts the thread, which first reads what is decided about surfaces."""
        if self._pid != os.getpid():
            self._begin()
        if self._asked_at_ms is not None:
            return
        with self._starting:
            if self._asked_at_ms is None:
                self._asked_at_ms = self._gate.clock.ticks_ms()
                self._gate.sightings.watch(surface.rule)
                self._thread = threading.Thread(target=self._run, name="oncegate-observing", daemon=True)
                self._thread.start()

    @property
    def must_wait(self) -> bool:
        """Whether what is decided is still being read for the first time, and not for long."""
        since = self._gate.clock.ticks_ms() - (self._asked_at_ms or 0)
        return not self._gate.decided.was_tried and since < FIRST_WAIT_SECONDS * 1000

    def began(self, surface: Surface, arrival: Arrival) -> ObservedArrival | None:
        """Takes an arrival whose handler is about to run; None where it cannot be noted."""
        if arrival.quarantine is not None:
            self._gate.sightings.count(surface.rule, of_observed_reason(arrival.quarantine))
            self._sample(surface, What.QUARANTINED, arrival, arrival.quarantine)
        if arrival.is_unreadable:
            self._count(surface, What.QUARANTINED)
            return None
        if self._waiting >= WAITING_MAX or self._bytes >= WAITING_BYTES_MAX:
            self._lose(surface, "too many wait to be recorded")
            return None
        found = ObservedArrival(surface, arrival, _reservation(self._gate, surface, arrival))
        self._put(found)
        return found

    def ended(
        self, found: ObservedArrival | None, *, succeeded: bool, outcome: bytes | None = None
    ) -> None:
        """Takes the end of a handler."""
        if found is not None:
            found.end = ObservedEnd(succeeded, self._gate.clock.wall_ms(), outcome)
            self._put(found)

    def unrecorded(self, surface: Surface, why: str) -> None:
        """Counts an arrival that no key can be made for."""
        self._lose(surface, why)

    def tell(self, surface: Surface, why: str) -> None:
        """Says in the log what is not recorded, about once a minute."""
        now_ms = self._gate.clock.ticks_ms()
        if self._told_at_ms is None or now_ms - self._told_at_ms >= TELL_EVERY_MS:
            self._told_at_ms = now_ms
            log.warning("%s observes, and %s; handlers run", surface.name, why)

    def _put(self, found: ObservedArrival) -> None:
        with self._starting:
            self._waiting += 1
            self._bytes += len(found.wanted.body)
        self._queue.put(found)

    def _run(self) -> None:
        self._gate.decided.read_in_turn()
        while (batch := self._take()) is not None:
            with self._starting:
                self._waiting -= len(batch)
                self._bytes -= sum(len(one.wanted.body) for one in batch)
            once = {id(one): one for one in [*self._later, *batch]}
            self._later = []
            self._note(list(once.values()))

    def _take(self) -> list[ObservedArrival] | None:
        batch: list[ObservedArrival] = []
        try:
            found = self._queue.get(timeout=1.0 if self._later else None)
            while found is not None:
                batch.append(found)
                if len(batch) >= BATCH_MAX:
                    return batch
                found = self._queue.get_nowait()
        except queue.Empty:
            return batch
        if not batch:
            return None
        self._queue.put(None)
        return batch

    def _note(self, batch: list[ObservedArrival]) -> None:
        try:
            known = [one for one in batch if one.reserved is not None or self._identified(one)]
            # What a handler says meanwhile is noted next time: the ledger gets one and the same note.
            notes = tuple(one.note for one in known)
            answers = self._gate.commits.submit(NoteObserved(notes)) if notes else []
        except OncegateError as error:  # oncegate: ignore[OG014] an observed arrival has no claim to lose
            self._failed(batch, f"the ledger does not answer ({error})")
            return
        except Exception as error:  # noqa: BLE001  an observed arrival never fails because of the gate
            self._failed(batch, f"{type(error).__name__}: {error}")
            return
        for one, note, reserved in zip(known, notes, answers, strict=True):
            if note.reserved is None:
                one.reserved = reserved
                self._judged(one, reserved)

    def _identified(self, one: ObservedArrival) -> bool:
        """Compares the surface with the ledger, as an admission would, and takes its former keys in."""
        surface, arrival = one.surface, one.arrival
        plan = self._gate.plans.get(surface.name)
        try:
            if plan is None or self._gate.clock.ticks_ms() >= plan.recheck_at_ticks_ms:
                plan = self._driver.run(identify_flow(self._gate, surface))
        except ConfigError as error:
            self._lose(surface, f"it would be refused: {error}")
            return False
        if not plan.is_plain:
            tenant = arrival.tenant if surface.rule.tenant_path is None else None
            event = msgspec.json.decode(arrival.body)
            one.arrival = with_former_keys(plan, surface.rule, arrival, event, tenant)
            one.wanted = _reservation(self._gate, surface, one.arrival)
        return True

    def _failed(self, batch: list[ObservedArrival], why: str) -> None:
        """Ends of claims are tried again; the rest is counted as not recorded."""
        for one in batch:
            if one.reserved is None:
                self._lose(one.surface, why)
                one.reserved = Reserved(Decision.BUSY, 0)
            elif one.end is not None and one.reserved.decision.claims and len(self._later) < WAITING_MAX:
                self._later.append(one)

    def _judged(self, one: ObservedArrival, reserved: Reserved) -> None:
        """Counts what the gate would have done, with a sample for people."""
        surface, arrival, decision = one.surface, one.arrival, reserved.decision
        if arrival.quarantine is not None and decision.claims:
            self._count(surface, What.QUARANTINED)
            return
        self._count(surface, _WOULD_BE[decision])
        if decision.claims:
            return
        now_ms, first_ms = self._gate.clock.wall_ms(), reserved.received_at_ms
        if decision in SENT_AGAIN:
            self._gate.sightings.count(surface.rule, of_delay(now_ms - first_ms))
        seen = self._gate.sightings.watch(surface.rule)
        if len(seen.observed) < BATCH_MAX:
            seen.observed.append(Repeated(decision, reserved.entry_id, first_ms, now_ms, 0))
        reason = self._differs(one, reserved) if decision is Decision.CONFLICT else ""
        self._sample(surface, _WOULD_BE[decision], arrival, reason)

    def _differs(self, one: ObservedArrival, reserved: Reserved) -> str:
        rule = one.surface.rule
        try:
            body = known_body(self._gate, reserved.entry_id)
        except OncegateError:
            return ""
        names = differing(body, one.arrival.body, ignore=rule.fingerprint_ignore, places=rule.places)
        if not names:
            return ""
        hint = self._gate.volatile.note(rule.name, names, one.arrival.key.digest)
        return f"differs in: {names_text(names)}" + ("" if hint is None else f" ({hint})")

    def _count(self, surface: Surface, what: What) -> None:
        self._gate.sightings.count(surface.rule, of_observed(what))

    def _sample(self, surface: Surface, what: What, arrival: Arrival, reason: str) -> None:
        self._samples += 1
        now_ms = self._gate.clock.wall_ms()
        sample = ObservedSample(what.name.lower(), arrival.label, arrival.key.text, now_ms, reason[:300])
        posting = observed_posting(surface.name, sample, self._samples % SAMPLES_MAX)
        self._gate.sightings.keep(PostNotice(posting))

    def _lose(self, surface: Surface, why: str) -> None:
        self._count(surface, What.LOST)
        self.tell(surface, f"arrivals are not recorded: {why}")

    def close(self) -> None:
        """Notes what waits, for a moment."""
        if self._pid == os.getpid() and self._thread.is_alive():
            self._queue.put(None)
            self._thread.join(CLOSE_SECONDS)


def _reservation(gate: GateContext, surface: Surface, arrival: Arrival) -> Reservation:
    """Asks for the key as an event that simply runs, under a lease that a handler does not outlast.

    Nothing is declared: an observed handler records no starts, so what a crash leaves goes to a person.
    """
    lease_ms = min(surface.rule.time_limit, LEASE_MAX) // timedelta(milliseconds=1)
    return replace(
        wanted_again(gate, surface, arrival),
        quarantine=None, hold=None, content=None, lease_ms=lease_ms, at_once=True,
        attempts_max=ATTEMPTS_MAX, deaths_max=ATTEMPTS_MAX, declared=None,
    )  # fmt: skip
