"""One telling of the story: the storm, the recovery, the replays two hours later, the count.

Who calls it: `run.py`, once for each side. Must never treat the two sides differently.
"""

from __future__ import annotations

from pathlib import Path

from oncegate.demo.storm import evidence
from oncegate.demo.storm.delivery_queue import DeliveryQueue
from oncegate.demo.storm.evidence import Count
from oncegate.demo.storm.later import TWO_HOURS
from oncegate.demo.storm.scene import Scene
from oncegate.demo.storm.sides import StormSide
from oncegate.demo.storm.story import Message
from oncegate.demo.storm.workers import StormTally, StormWorkers
from oncegate.demo.terminal_client import TerminalProcess


class Play:
    """A side, a terminal of its own, a queue of its own."""

    def __init__(self, scene: Scene, side: StormSide, record: Path) -> None:
        self._scene = scene
        self._side = side
        self._record = record
        self._queue = DeliveryQueue(scene.clock)
        self._tally = StormTally()

    def run(self) -> Count:
        """Tell the story to its end, and count what is left."""
        story, say = self._scene.story, self._scene.progress.say
        with TerminalProcess(self._record) as terminal:
            say(f"{self._side.name}: the storm begins, {self._scene.workers} workers")
            self._deliver(terminal.url, story.storm)
            self._side.recover(self._scene, terminal.url)
            say(f"{self._side.name}: two hours later, {len(story.late)} messages are sent again")
            later = ["--later-seconds", str(int(TWO_HOURS.total_seconds()))]
            self._deliver(terminal.url, story.late, *later)
        say(self._describe())
        return self._count()

    def _deliver(self, terminal_url: str, messages: tuple[Message, ...], *options: str) -> None:
        self._queue.put(messages)
        arguments = ["--terminal", terminal_url, *options, *self._side.worker_arguments]
        environment = self._side.worker_environment
        with StormWorkers(self._scene.workers, self._queue, arguments, environment, self._tally) as crew:
            crew.drain(self._scene.deadline, lambda: self._scene.progress.update(self._describe))

    def _describe(self) -> str:
        sold = self._record.read_bytes().count(b"\n")
        return (
            f"{self._side.name}: delivered {self._queue.delivered} of {self._scene.story.deliveries}, "
            f"slots sold {sold}, workers killed {self._tally.killed}"
        )

    def _count(self) -> Count:
        slots, bookings = evidence.sold_slots(self._record), self._side.bookings()
        containers = [str(event["equipment_number"]) for event in self._scene.story.events]
        double_slots = evidence.surplus(slots)
        return Count(
            deliveries=self._queue.delivered,
            slots=len(slots),
            bookings=len(bookings),
            ghost_slots=evidence.ghosts(slots, bookings),
            double_slots=double_slots,
            containers_without_booking=evidence.unbooked(containers, bookings),
            late_cancellations_eur=double_slots * evidence.LATE_CANCELLATION_EUR,
            killed=self._tally.killed,
            errors=self._tally.failed,
            recoveries=self._side.recoveries(),
        )
