"""One run of one schedule: its faults strike; then nothing goes wrong any more and all must settle."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextvars import Context
from hashlib import sha256
from random import Random
from typing import Any, Final

import msgspec

from oncegate.chaos.simulator.evidence import Change, Evidence, Intent, Write
from oncegate.chaos.simulator.faults import Faults
from oncegate.chaos.simulator.queue import Queue
from oncegate.chaos.simulator.schedule import WORKERS, Event, Fault, FaultKind, Schedule
from oncegate.chaos.simulator.services import Kind, Network, Service
from oncegate.chaos.simulator.surfaces import intent_of
from oncegate.chaos.simulator.worker import Blueprint, Worker
from oncegate.model.states import State
from oncegate.testing.simulation import Ledger, VirtualLoop
from oncegate.testing.simulation.ledger import Row
from oncegate.testing.simulation.loop import WentInCircles

AFTERMATH_SECONDS: Final = 60.0
SETTLE_SECONDS_MAX: Final = 4 * 3600.0
_OPEN: Final = frozenset({State.IN_FLIGHT, State.RETRYABLE})


class World:
    """Everything in one simulated run."""

    def __init__(self, schedule: Schedule, blueprint: Blueprint) -> None:
        self.schedule = schedule
        self.loop = VirtualLoop()
        self.rng = Random(schedule.seed)
        self.faults = Faults(schedule.faults)
        self.evidence = Evidence()
        self.reached: Counter[str] = Counter()
        self.trace: list[tuple[Any, ...]] = []
        self.store_is_down = False
        self.ledger = Ledger()
        self.ledger.exists = True
        self.ledger.tables.business["bookings"] = ()
        self.ledger.on_row = self._note_row
        self.evidence.tables = self.ledger.tables
        self.network = Network(self.loop, self.rng, self.faults, self.evidence)
        self.services = (
            Service("seats", Kind.HONOURS, self.evidence),
            Service("labels", Kind.ASKED, self.evidence),
            Service("mails", Kind.NEITHER, self.evidence),
        )
        self._nobody = Context()
        self._open: set[int] = set()
        self._waiting: list[asyncio.Future[None]] = []
        self._intents = self.evidence.intents
        self.evidence.fates = {_meant(event): event.fate for event in schedule.events}
        self.queue = Queue(self)
        self.workers = [Worker(self, number, blueprint) for number in range(WORKERS)]

    def run(self) -> Evidence:
        """Plays the schedule to its end."""
        try:
            self._play()
        except WentInCircles as error:
            self.evidence.unsettled.append(str(error))
        finally:
            self._bury()
        return self.evidence

    def _play(self) -> None:
        self.queue.schedule()
        for fault in self.faults.timed:
            self.later(fault.at, self._strike, fault)
        last = max(
            [item.at for item in self.schedule.deliveries] + [fault.at for fault in self.faults.timed]
        )
        self.loop.run_until(lambda: False, last + AFTERMATH_SECONDS)
        self._heal()
        if not self.loop.run_until(self._is_settled, self.loop.time() + SETTLE_SECONDS_MAX):
            self._note_unsettled()

    def _heal(self) -> None:
        """Nothing goes wrong any more, and everybody is up."""
        self.note("heal")
        self.faults.end()
        self._set_store_down(False)
        for worker in self.workers:
            self.loop.end_stall(worker.actor)
            worker.restart()
        self.queue.redrive()

    def _is_settled(self) -> bool:
        return self.queue.is_empty and not self._open

    def _note_unsettled(self) -> None:
        rows = self.ledger.tables.rows
        self.evidence.unsettled += [
            f"entry {number} is still {rows[number].state.label}" for number in sorted(self._open)
        ]
        self.evidence.unsettled += [f"delivery {number} is not acknowledged" for number in self.queue.open]

    def _bury(self) -> None:
        """Ends what the dead left: their code must not notice before all has been noted."""
        self.ledger.on_row = None
        for worker in self.workers:
            worker.actor.dead = True
        self.loop.bury()

    def later(self, seconds: float, call: Callable[..., Any], *arguments: Any) -> None:
        """Lets something happen after a while, whoever is alive then."""
        self.loop.call_later(seconds, call, *arguments, context=self._nobody)

    def _strike(self, fault: Fault) -> None:
        """A fault that was set for this moment."""
        if self.faults.over:
            return
        worker = self.workers[fault.worker]
        self.faults.fired[fault.kind] += 1
        if fault.kind is FaultKind.STORE_DOWN:
            self._set_store_down(True)
            self.later(fault.seconds, self._set_store_down, False)
        elif fault.kind is FaultKind.CLOCK_STEP:
            worker.clock.wall_offset_ms += int(fault.seconds * 1000)
        elif worker.is_up and fault.kind is FaultKind.STALL_AT_TIME:
            worker.stall(fault.seconds)
        elif worker.is_up:
            worker.crash(fault.seconds)

    def _set_store_down(self, is_down: bool) -> None:
        self.store_is_down = is_down
        for worker in self.workers:
            worker.store.is_down = is_down

    def note(self, *words: Any) -> None:
        """Adds a line to the trace."""
        self.trace.append((round(self.loop.time(), 6), *words))

    def digest(self) -> str:
        """The whole trace in a few letters: equal for equal runs."""
        return sha256(repr(self.trace).encode()).hexdigest()[:16]

    def note_write(
        self, call: str, fence: int, before: Row | None, after: Row | None, answer: bool
    ) -> None:
        """A worker has shown a fence to the ledger."""
        self.evidence.writes.append(Write(self.loop.time(), call, fence, before, after, answer))

    def _note_row(self, before: Row | None, after: Row | None) -> None:
        """A commit has changed an entry."""
        now = self.loop.time()
        self.evidence.changes.append(Change(now, int(now * 1000), before, after))
        row = after or before
        if row is None:
            return
        self.note("row", row.entry_id, row.state.label, row.fence, row.attempt, after is None)
        self._note_open(row, after)
        self._note_intent(row, after)

    def _note_open(self, row: Row, after: Row | None) -> None:
        if after is not None and after.state in _OPEN:
            self._open.add(row.entry_id)
            self.wake()
        else:
            self._open.discard(row.entry_id)

    def _note_intent(self, row: Row, after: Row | None) -> None:
        intent = self._intents.get(row.entry_id)
        if intent is None:
            payload = self.ledger.tables.payloads.get(row.entry_id)
            if payload is None:
                return
            intent = self._intents[row.entry_id] = intent_of(msgspec.json.decode(payload))
        if after is None:
            self.network.reserved.discard(intent)
        else:
            self.network.reserved.add(intent)

    def is_quiet(self) -> bool:
        """Whether there is nothing for caretakers to do."""
        return not self._open and not self.queue.in_hand

    def activity(self) -> asyncio.Future[None]:
        """Waits until something comes in."""
        waiting: asyncio.Future[None] = self.loop.create_future()
        self._waiting.append(waiting)
        return waiting

    def wake(self) -> None:
        """Something has come in."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


def _meant(event: Event) -> Intent:
    return Intent(event.surface, event.tenant, event.ident)
