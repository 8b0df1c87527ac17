"""The queue in front of the workers: at least once, in no order, with a visibility limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lab.simulator.evidence import Ack, began_at
from lab.simulator.schedule import WORKERS
from lab.simulator.surfaces import intent_of, payload_of
from oncegate.errors import Failed
from oncegate.gate.admission import Admission, Verdict

if TYPE_CHECKING:
    from lab.simulator.worker import Worker
    from lab.simulator.world import World

VISIBILITY_SECONDS: Final = 45.0
RECEIVES_MAX: Final = 4  # then a message is parked until the faults are over, as a dead letter is


class Queue:
    """Messages until they are acknowledged."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.open: dict[int, int] = {}  # message -> how often it was received
        self.in_hand: set[int] = set()
        self._payloads = [
            payload_of(world.schedule.events[item.event], item.changed)
            for item in world.schedule.deliveries
        ]

    def schedule(self) -> None:
        """Sends every delivery at its time."""
        for number, item in enumerate(self._world.schedule.deliveries):
            self.open[number] = 0
            self._world.later(item.at, self._receive, number)

    @property
    def is_empty(self) -> bool:
        """Whether every message is acknowledged."""
        return not self.open

    def redrive(self) -> None:
        """Sends again whatever is not acknowledged."""
        for number in sorted(self.open):
            self._world.later(0.1 * number, self._receive, number)

    def _receive(self, number: int) -> None:
        received = self.open.get(number)
        if received is None:
            return
        if received >= RECEIVES_MAX and not self._world.faults.over:
            return
        worker = self._next_worker(number + received + self._world.schedule.deliveries[number].worker)
        if worker is None:
            self._world.later(5.0, self._receive, number)
            return
        self.open[number] = received + 1
        self.in_hand.add(number)
        self._world.later(VISIBILITY_SECONDS, self._reappear, number, received + 1)
        self._world.wake()
        worker.spawn(self._consume(worker, number))

    def _next_worker(self, start: int) -> Worker | None:
        workers = self._world.workers
        for step in range(WORKERS):
            worker = workers[(start + step) % WORKERS]
            if worker.is_up:
                return worker
        return None

    def _reappear(self, number: int, received: int) -> None:
        """The visibility limit is over: whoever has the message is slow or dead; it is given to another."""
        if self.open.get(number) == received:
            self.in_hand.discard(number)
            self._receive(number)

    async def _consume(self, worker: Worker, number: int) -> None:
        payload = self._payloads[number]
        began_at.set(self._world.loop.time())
        admission: Admission | None = None
        try:
            admission = await worker.face.admit(payload["surface"], payload)
        except Failed:
            pass  # final, and recorded as such
        except Exception as error:  # noqa: BLE001  a consumer does not acknowledge what raised
            self._world.note("nack", number, worker.actor.name, type(error).__name__)
            self._nack(number)
            return
        if admission is not None and admission.verdict is Verdict.BUSY:
            self._nack(number)
            return
        self.acknowledge(number, admission)

    def _nack(self, number: int) -> None:
        self.in_hand.discard(number)
        self._world.later(1.0 + self._world.rng.random() * 20, self._receive, number)

    def acknowledge(self, number: int, admission: Admission | None) -> None:
        """Removes a message for good."""
        world, payload = self._world, self._payloads[number]
        intent: Any = intent_of(payload)
        world.note("ack", number, "failed" if admission is None else admission.verdict.value)
        recorded = intent in world.network.reserved
        world.evidence.acks.append(
            Ack(world.loop.time(), number, intent, payload["amount"], admission, recorded)
        )
        self.open.pop(number, None)
        self.in_hand.discard(number)
