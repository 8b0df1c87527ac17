"""Plays a cell of the crash matrix with the ordered-work engine: real processes, struck at one point.

The receiver writes each arrival to a file before it answers. Three keys: everything of `a` is taken, the
first attempt at each event of `b` fails, and every second event of `c` is a dead letter. Judged is what the
receiver first saw of each key: every seq, in order (I10), and what the ledger says of each event.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.crash_matrix.cells import STRIKES_MAX, Cell, Finding, Manner, Phase, Times
from lab.crash_matrix.gate_cells import WAIT_SECONDS, Injected, Losing, Raising
from lab.crash_matrix.losses import Loss, Losses
from oncegate.commit.group_commit import GroupCommit
from oncegate.crashpoints import CrashPoints
from oncegate.errors import StoreError
from oncegate.lanes import Dead, Delivered, Destination, Engine, RetryLater
from oncegate.model.backoff import Backoff
from oncegate.store import Delivery, LaneState, Outgoing, Policy, Store
from oncegate.testing import ArmedCrashPoints, Forked, SharedClock
from oncegate.testing.forking import stop_this_process

ENDPOINT = "endpoint"
KEYS, EVENTS = ("a", "b", "c"), 8
KILLED = -9
LEASE_SECONDS = 61.0
ROUNDS_MAX = 300
FIRST_CRASH = ("lane.deliver.after", 2)


class Receiver:
    """Writes what arrives to a file that outlives every process."""

    def __init__(self, path: Path, losses: Losses) -> None:
        self._path = path
        self._losses = losses
        path.touch()

    async def deliver(self, delivery: Delivery) -> Any:
        """Notes an arrival, then answers; the answer may get lost."""
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(file, f"{delivery.key} {delivery.seq} {delivery.event_id}\n".encode())
        finally:
            os.close(file)
        await asyncio.sleep(0)
        if self._losses.take(Loss.ANSWER):
            raise ConnectionError("the answer was lost on its way")
        if delivery.key == "b" and delivery.attempt == 1:
            return RetryLater("500")
        return Dead("400") if is_dead(delivery.key, delivery.seq) else Delivered("200")

    def check(self) -> None:
        """Everything, in order at first sight; the same id whenever it came again."""
        firsts: dict[str, list[int]] = {key: [] for key in KEYS}
        for line in self._path.read_text().splitlines():
            key, seq, event = line.split()
            assert event == f"{key}-{seq}"
            if int(seq) not in firsts[key]:
                firsts[key].append(int(seq))
        assert firsts == {key: list(range(1, EVENTS + 1)) for key in KEYS}, firsts


def is_dead(key: str, seq: int) -> bool:
    """Whether the receiver never takes this event."""
    return key == "c" and seq % 2 == 0


@dataclass(slots=True)
class LaneCells:
    """Plays cells, each on a ledger of its own that `make_store` opens."""

    make_ledger: Callable[[], Callable[[SharedClock], Store]]
    folder: Path
    _count: int = field(default=0)

    def play(self, cell: Cell) -> Finding:
        """Plays a cell; raises AssertionError if a promise broke."""
        found = Finding()
        for loss in _losses_of(cell):
            self._count += 1
            place = self.folder / f"arrivals-{os.getpid()}-{self._count}"
            found.add(Scene(cell, loss, self.make_ledger(), place).play())
        return found


def _event(key: str, seq: int) -> Outgoing:
    ident = f"{key}-{seq}"
    content = ident.encode()
    return Outgoing(
        destination=ENDPOINT, tenant="", key=key, event_id=ident, type="order.updated",
        payload=content, fingerprint=content, created_at_ms=1_780_000_000_000,
    )  # fmt: skip


def _losses_of(cell: Cell) -> tuple[Loss | None, ...]:
    if cell.manner is not Manner.UNKNOWN:
        return (None,)
    return (Loss.ANSWER,) if cell.point == "lane.deliver.before" else (Loss.DONE, Loss.UNDONE)


class Scene:
    """A ledger with three lanes, a clock that all share, a receiver, and engines that are struck."""

    def __init__(
        self, cell: Cell, loss: Loss | None, make_store: Callable[[SharedClock], Store], place: Path
    ) -> None:
        self.cell, self.loss = cell, loss
        self.clock, self.losses = SharedClock(), Losses()
        self.receiver = Receiver(place, self.losses)
        self._make_store = make_store
        self.found = Finding(tries=1)
        self._fill()

    def _fill(self) -> None:
        with contextlib.closing(self._make_store(self.clock).connect()) as session, session.unit():
            session.enqueue([_event(key, seq) for seq in range(1, EVENTS + 1) for key in KEYS])

    def play(self) -> Finding:
        """Strikes, lets all settle, checks."""
        if self.cell.phase is Phase.RECOVERY:
            with self._engine(ArmedCrashPoints(FIRST_CRASH[0], occurrence=FIRST_CRASH[1])) as first:
                assert first.wait(WAIT_SECONDS) == KILLED
            self.clock.advance(LEASE_SECONDS)
        if self.cell.manner is Manner.STALL:
            self._stall()
        else:
            self._strike()
        assert self.found.strikes, (str(self.cell), "nothing was struck")
        self._finish()
        return self.found

    # --- engines ---

    def _engine(self, points: CrashPoints) -> Forked:
        """A process that works until nothing is left."""

        def work() -> dict[str, Any]:
            logging.getLogger("oncegate.lanes").disabled = True  # it tells of every error that is injected
            return asyncio.run(self._work(points))

        return Forked(work)

    async def _work(self, points: CrashPoints) -> dict[str, Any]:
        store = self.losses.wrap(self._make_store(self.clock))
        commits = GroupCommit(store, clock=self.clock, crashpoints=points, inline=False)
        destination = Destination(
            ENDPOINT, self.receiver.deliver, Backoff(attempts_max=20), Policy.ADVANCE, concurrency=2
        )
        engine = Engine(commits, [destination], clock=self.clock, crashpoints=points, jitter=lambda: 0.5)
        told: Counter[str] = Counter()
        for _ in range(ROUNDS_MAX):
            try:
                done = await engine.run_once()
            except (StoreError, Injected) as error:
                told[type(error).__name__] += 1
                if told.total() > STRIKES_MAX + 1:  # the store is held by somebody who stands still
                    break
                self.clock.advance(LEASE_SECONDS)
                continue
            if done.next_due_in_ms is None:
                break
            self.clock.advance(done.next_due_in_ms / 1000)
        commits.close()
        passed = getattr(points, "reached", {}).get(self.cell.point, 0)
        return {"told": dict(told), "struck": min(passed, len(self._turns()))}

    def _points(self) -> CrashPoints:
        if self.loss is not None:
            return Losing(self.cell.point, self.loss, self.losses, len(self._turns()))
        if self.cell.manner is Manner.EXCEPTION:
            return Raising(self.cell.point, len(self._turns()))
        if self.cell.manner is Manner.STALL:
            return ArmedCrashPoints(self.cell.point, stop_this_process)
        return ArmedCrashPoints(self.cell.point)

    def _turns(self) -> range:
        return range(STRIKES_MAX if self.cell.times is Times.REPEATEDLY else 1)

    # --- the four manners ---

    def _strike(self) -> None:
        """Engines are killed one after the other; one that lives on is struck as often itself."""
        for _ in self._turns():
            with self._engine(self._points()) as engine:
                answer, code = engine.answer(WAIT_SECONDS), engine.wait(WAIT_SECONDS)
            self.clock.advance(LEASE_SECONDS)
            if code != KILLED:
                assert code == 0, (str(self.cell), code)
                self.found.strikes += answer["struck"]
                self.found.told["went on"] += answer["struck"]
                self.found.told.update(answer["told"])
                return
            self.found.strikes += 1
            self.found.told["killed"] += 1

    def _stall(self) -> None:
        with contextlib.ExitStack() as stack:
            stopped = []
            for _ in self._turns():
                engine = stack.enter_context(self._engine(self._points()))
                engine.wait_stopped(WAIT_SECONDS)
                if not engine.is_stopped:
                    break
                stopped.append(engine)
                self.clock.advance(LEASE_SECONDS)
            self.found.strikes += len(stopped)
            with self._engine(CrashPoints()) as other:
                assert other.wait(WAIT_SECONDS) == 0
            for engine in stopped:
                engine.resume()
                assert engine.wait(WAIT_SECONDS) == 0, (str(self.cell), "a stopped engine failed")
                self.found.told["went on"] += 1

    # --- the end ---

    def _finish(self) -> None:
        """Lets leases lapse and one more engine do the rest; then looks at everything."""
        self.clock.advance(LEASE_SECONDS)
        with self._engine(CrashPoints()) as last:
            assert last.wait(WAIT_SECONDS) == 0
        self.receiver.check()
        with self._make_store(self.clock).look() as reader:
            (view,) = reader.destinations()
            assert (view.waiting, view.leased, view.blocked, view.events) == (0, 0, 0, 0), str(self.cell)
            for key in KEYS:
                lane = reader.find_lane(ENDPOINT, "", key)
                assert lane is not None
                assert (lane.state, lane.head_seq) == (LaneState.IDLE, EVENTS + 1)
                for event in reader.deliveries(lane.lane_id, 1, 100):
                    assert event.is_dead == is_dead(key, event.seq), (str(self.cell), event)
                    assert event.is_dead or event.acknowledged_at_ms is not None
                    self.found.ends["dead letter" if event.is_dead else "acknowledged"] += 1
