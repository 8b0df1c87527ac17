"""One run of traffic: its faults strike; then nothing goes wrong any more and all must settle."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from lab.simulator.stage import Stage, wake
from lab.simulator.traffic.evidence import Reading, Told, TrafficEvidence
from lab.simulator.traffic.ledgers import held_entries
from lab.simulator.traffic.plan import WORKERS, Emit, Publish, TrafficSchedule
from lab.simulator.traffic.receiver import Receiver
from lab.simulator.traffic.worker import TRAVEL_SECONDS_MAX, TrafficWorker

AGAIN_SECONDS: Final = 45.0  # after which whoever got no answer asks again
_OPEN: Final = "SELECT count(*) FROM oncegate_lane WHERE state <> 1"
_FEED: Final = "SELECT count(*) FROM oncegate_feed"


class TrafficWorld(Stage):
    """Everything in one simulated run of lanes, feed and rulings."""

    workers: Sequence[TrafficWorker]
    turns_max = 40_000
    aftermath_seconds = 30.0

    def __init__(self, schedule: TrafficSchedule, database: sqlite3.Connection) -> None:
        super().__init__(schedule.seed, schedule.faults)
        self.schedule = schedule
        self.database = database
        self.evidence = TrafficEvidence(self.database, unsettled=self.unsettled)
        self._looked_at: tuple[int, ...] = ()
        self._open = dict(enumerate(schedule.work))
        refusals = {_name(n, i): i.refusals for n, i in self._open.items() if isinstance(i, Emit)}
        self.evidence.dead = {event for event, times in refusals.items() if times < 0}
        self.receiver = Receiver(self, refusals)
        self._entries = held_entries()
        self.workers = [TrafficWorker(self, number) for number in range(WORKERS)]

    def run(self) -> TrafficEvidence:
        """Plays the schedule to its end."""
        self.play()
        return self.evidence

    def _begin(self) -> Iterator[float]:
        for number, item in self._open.items():
            self.later(item.at, self._ask, number)
        return (item.at for item in self.schedule.work)

    def _heal(self) -> None:
        super()._heal()
        self.wake()

    # --- what is to be done, until somebody says that it is ---

    def _ask(self, number: int) -> None:
        """Asks a worker that is up, and again after a while if there was no answer."""
        item = self._open.get(number)
        if item is None:
            return
        self.later(AGAIN_SECONDS, self._ask, number)
        up = [worker for worker in self.workers if worker.is_up]
        if up:
            worker = up[self.rng.randrange(len(up))]
            worker.spawn(self._work(worker, number, item))

    async def _work(self, worker: TrafficWorker, number: int, item: Any) -> None:
        try:
            answer = await self._done(worker, number, item)
        except Exception as error:  # noqa: BLE001  whatever it is, nobody has been told that it is done
            self.note("no answer", number, type(error).__name__)
            return
        self.note("answer", number, answer)
        self._open.pop(number, None)
        self.wake()

    async def _done(self, worker: TrafficWorker, number: int, item: Any) -> str:
        name = _name(number, item)
        if isinstance(item, Emit):
            self.evidence.emitted[name] = item.key
            return await worker.emit(name, item)
        if isinstance(item, Publish):
            self.evidence.published[name] = item.key
            return await worker.publish(name, item)
        entry, fence = self._entries[item.entry]
        answer = await worker.rule(entry, fence, item)
        self.evidence.told.append(Told(entry, item.operator, item.approves, answer))
        return answer

    # --- whether there is anything left to do ---

    def lanes_are_empty(self) -> bool:
        """Whether no lane has anything to deliver."""
        ((count,),) = self.evidence.rows(_OPEN)
        return int(count) == 0

    def has_read_all(self, reading: Reading) -> bool:
        """Whether a consumer has everything that is in the feed."""
        ((count,),) = self.evidence.rows(_FEED)
        return len(set(reading.events)) >= int(count)

    def _all_is_read(self) -> bool:
        return self.has_read_all(self.evidence.by_cursor) and self.has_read_all(self.evidence.by_ack)

    def _is_settled(self) -> bool:
        """Asked at every turn; looks only where something has changed."""
        readings = len(self.evidence.by_cursor.events), len(self.evidence.by_ack.events)
        state = (len(self._open), self.database.total_changes, *readings)
        if state == self._looked_at:
            return False
        self._looked_at = state
        return not self._open and self.lanes_are_empty() and self._all_is_read()

    def _still_open(self) -> Iterator[str]:
        yield from (f"{_name(number, item)} was never answered" for number, item in self._open.items())
        if not self.lanes_are_empty():
            yield "lanes have not come to their end"
        if not self._all_is_read():
            yield "the feed was not read to its end"

    async def rest(self, seconds: float, has_nothing: Callable[[], bool]) -> None:
        """Waits until something is asked for, and where there is something to do, only for a while."""
        waiting = self.activity()
        if not has_nothing():
            self.loop.call_later(seconds, wake, waiting)
        await waiting

    def travel(self) -> float:
        """How long a message takes."""
        return 0.001 + self.rng.random() * TRAVEL_SECONDS_MAX


def _name(number: int, item: Any) -> str:
    return f"{type(item).__name__.lower()} {number}"
