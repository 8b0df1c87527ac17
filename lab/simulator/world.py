"""One run of one schedule: its faults strike; then nothing goes wrong any more and all must settle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from lab.simulator.checkers.doubts import is_excused
from lab.simulator.evidence import Change, Evidence, Intent, Write
from lab.simulator.queue import Queue
from lab.simulator.schedule import WORKERS, Event, Schedule
from lab.simulator.services import Kind, Network, Service
from lab.simulator.stage import Stage
from lab.simulator.surfaces import intent_of
from lab.simulator.worker import Blueprint, Worker
from oncegate.model.conflicts import known_key
from oncegate.model.states import State
from oncegate.testing.simulation import Ledger
from oncegate.testing.simulation.ledger import Row

_OPEN: Final = frozenset({State.IN_FLIGHT, State.RETRYABLE})


class World(Stage):
    """Everything in one simulated run of the gate."""

    workers: Sequence[Worker]
    aftermath_seconds = 60.0

    def __init__(self, schedule: Schedule, blueprint: Blueprint) -> None:
        super().__init__(schedule.seed, schedule.faults)
        self.schedule = schedule
        self.evidence = Evidence(unsettled=self.unsettled, is_faultless=not schedule.faults)
        self.ledger = Ledger()
        self.ledger.exists = True
        self.ledger.tables.business |= {"bookings": (), "numbers": (), "invoices": ()}
        self.ledger.on_row = self._note_row
        self.evidence.tables = self.ledger.tables
        self.network = Network(self.loop, self.rng, self.faults, self.evidence)
        self.services = (
            Service("seats", Kind.HONOURS, self.evidence),
            Service("labels", Kind.ASKED, self.evidence),
            Service("mails", Kind.NEITHER, self.evidence),
        )
        self._open: set[int] = set()
        self.looking: set[str] = set()  # workers that have not seen the ledger since a failover
        self._intents = self.evidence.intents
        self.evidence.fates = {_meant(event): event.fate for event in schedule.events}
        self.queue = Queue(self)
        self.workers = [Worker(self, number, blueprint) for number in range(WORKERS)]

    def run(self) -> Evidence:
        """Plays the schedule to its end."""
        self.play()
        return self.evidence

    def _begin(self) -> Iterator[float]:
        self.queue.schedule()
        return (item.at for item in self.schedule.deliveries)

    def _heal(self) -> None:
        super()._heal()
        self.queue.redrive()

    def _is_settled(self) -> bool:
        is_looking = any(worker.is_up and worker.actor.name in self.looking for worker in self.workers)
        return self.queue.is_empty and not self._open and not is_looking

    def _still_open(self) -> Iterator[str]:
        rows = self.ledger.tables.rows
        self._note_alive()
        for number in sorted(self._open):
            if is_excused(self.evidence, self._intents[number]):
                continue  # its sender was answered before the failover; an incident names it
            yield f"entry {number} is still {rows[number].state.label}"
        for number in self.queue.open:
            yield f"delivery {number} is not acknowledged"

    def _bury(self) -> None:
        self._note_alive()
        self.ledger.on_row = None
        super()._bury()

    def _note_alive(self) -> None:
        self.evidence.alive = {worker.actor.name for worker in self.workers if worker.is_up}

    def _set_store_down(self, is_down: bool) -> None:
        super()._set_store_down(is_down)
        for worker in self.workers:
            worker.store.is_down = is_down

    def _fail_over(self, commits: int) -> None:
        """The ledger is an older one from now on; workers live on, and notice within a second."""
        touched, changes = self.ledger.go_back(commits)
        self.note("failover", commits, sorted(touched))
        evidence, rows = self.evidence, self.ledger.tables.rows
        if changes:
            del evidence.changes[-changes:]
        for intent in {self._intents[number] for number in touched if number in self._intents}:
            evidence.lost[intent] = set(evidence.knowers.get(intent, ()))
        for number in touched - rows.keys():
            self._intents.pop(number, None)
        self.network.reserved = {self._intents[number] for number in rows if number in self._intents}
        self._open = {number for number, row in rows.items() if row.state in _OPEN}
        self.wake()
        for worker in self.workers:
            worker.store.cut()
            if worker.is_up:
                self.looking.add(worker.actor.name)
                worker.spawn(worker.look_again())

    def note_write(
        self, call: str, claim: tuple[int, int], before: Row | None, after: Row | None, answer: bool
    ) -> None:
        """A worker has shown a claim to the ledger."""
        self.evidence.writes.append(Write(self.loop.time(), call, claim, before, after, answer))

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
            if payload is None or known_key(row.reason) is not None:
                return  # kept for a person, without an effect of its own: see `one_content_for_a_key`
            intent = self._intents[row.entry_id] = intent_of(msgspec.json.decode(payload))
        if after is None:
            self.network.reserved.discard(intent)
        else:
            self.network.reserved.add(intent)

    def is_quiet(self) -> bool:
        """Whether there is nothing for workers to do."""
        return not self._open and not self.queue.in_hand


def _meant(event: Event) -> Intent:
    return Intent(event.surface, event.tenant, event.ident)
