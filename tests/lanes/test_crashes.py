"""Engines are killed and stopped at every point, on both ledgers; the receiver sees all, in order (I10).

The receiver writes each arrival to a file before it answers. Judged is what it first saw of each key: every
seq, in order, whatever happened to the engines; what came again had the same id.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oncegate.commit.group_commit import GroupCommit
from oncegate.crashpoints import LANE_CRASH_POINTS, CrashPoints
from oncegate.lanes import Dead, Delivered, Destination, Engine, RetryLater
from oncegate.model.backoff import Backoff
from oncegate.store import Delivery, LaneState, Policy, Store
from oncegate.stores.postgres import PostgresStore
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing import ArmedCrashPoints, Forked, SharedClock
from tests.lanes.lane_site import ENDPOINT, outgoing, stop_between_commits

KEYS, EVENTS = ("a", "b", "c"), 4
KILLED = -9
POINTS = [*LANE_CRASH_POINTS, "commit.before", "commit.after"]


class Receiver:
    """Writes what arrives to a file that outlives every process; fails where the test wants it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    async def deliver(self, delivery: Delivery) -> Any:
        line = f"{delivery.key} {delivery.seq} {delivery.event_id} {delivery.attempt}\n"
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(file, line.encode())
            os.fsync(file)
        finally:
            os.close(file)
        await asyncio.sleep(0)
        if delivery.key == "b" and delivery.seq == 2 and delivery.attempt == 1:
            return RetryLater("500")
        if delivery.key == "c" and delivery.seq == 3:
            return Dead("400")
        return Delivered("200")

    def seen(self) -> list[tuple[str, int, str]]:
        """Every arrival, in order: key, seq, event id."""
        lines = [line.split() for line in self._path.read_text().splitlines()]
        return [(key, int(seq), event) for key, seq, event, _ in lines]

    def check(self, events: int = EVENTS) -> None:
        """Everything, in order at first sight; the same id whenever it came again."""
        ids: dict[tuple[str, int], str] = {}
        firsts: dict[str, list[int]] = {key: [] for key in KEYS}
        for key, seq, event in self.seen():
            assert ids.setdefault((key, seq), event) == event == f"{key}-{seq}"
            if seq not in firsts[key]:
                firsts[key].append(seq)
        assert firsts == {key: list(range(1, events + 1)) for key in KEYS}, self.seen()


class Scene:
    """A ledger, a clock that all processes share, a receiver, and engines in processes of their own."""

    def __init__(self, make_store: Callable[[SharedClock], Store], folder: Path) -> None:
        self.clock = SharedClock()
        self.receiver = Receiver(folder / "seen")
        self._make_store = make_store
        self.fill(1, EVENTS)

    def store(self) -> Store:
        return self._make_store(self.clock)

    def fill(self, first: int, last: int) -> None:
        session = self.store().connect()
        with session.unit():
            session.enqueue(
                [outgoing(f"{key}-{seq}", key) for seq in range(first, last + 1) for key in KEYS]
            )
        session.close()

    def engine(self, points: CrashPoints | None = None) -> Forked:
        """A process that works until nothing is left."""
        return Forked(lambda: asyncio.run(self._work(points or CrashPoints())))

    def stop_between_commits(self, name: str) -> None:
        """Stops the engine that comes here, at a moment when it holds no lock of the ledger."""
        stop_between_commits(self._commits, name)

    async def _work(self, points: CrashPoints) -> int:
        store = self.store()
        self._commits = commits = GroupCommit(store, clock=self.clock, crashpoints=points, inline=False)
        destination = Destination(
            ENDPOINT, self.receiver.deliver, Backoff(attempts_max=20), Policy.ADVANCE, concurrency=2
        )
        engine = Engine(commits, [destination], clock=self.clock, crashpoints=points, jitter=lambda: 0.5)
        delivered = 0
        for _ in range(200):
            done = await engine.run_once()
            delivered += done.delivered
            if done.next_due_in_ms is None:
                commits.close()
                return delivered
            self.clock.advance(done.next_due_in_ms / 1000)
        raise AssertionError("there is no end to it")

    def finish(self) -> None:
        """Lets leases lapse and one more engine do the rest; then looks at everything."""
        self.clock.advance(61)
        with self.engine() as last:
            assert last.wait() == 0
        self.check()

    def check(self, events: int = EVENTS) -> None:
        self.receiver.check(events)
        with self.store().look() as reader:
            (view,) = reader.destinations()
            assert (view.waiting, view.leased, view.blocked, view.events) == (0, 0, 0, 0)
            for key in KEYS:
                lane = reader.find_lane(ENDPOINT, "", key)
                assert lane is not None
                assert (lane.state, lane.head_seq) == (LaneState.IDLE, events + 1)
                done = reader.deliveries(lane.lane_id, 1, 100)
                assert all(d.is_dead == (key == "c" and d.seq == 3) for d in done)
                assert all(d.is_dead or d.acknowledged_at_ms is not None for d in done)


@pytest.fixture(params=["sqlite", "postgres"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Scene:
    """A scene on either ledger."""
    if request.param == "sqlite":
        return Scene(lambda clock: SqliteStore(tmp_path / "ledger.db", clock=clock), tmp_path)
    url = request.getfixturevalue("ledger_url")
    return Scene(lambda clock: PostgresStore(url, clock=clock), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_engine_killed_at_every_point(scene: Scene, point: str) -> None:
    """Killed there, early and late; the next one finishes what was left, in order."""
    fired = 0
    for occurrence in (1, 3):
        with scene.engine(ArmedCrashPoints(point, occurrence=occurrence)) as victim:
            code = victim.wait()
        assert code in (0, KILLED)
        fired += code == KILLED
        scene.clock.advance(61)

    assert fired, f"{point} was never reached"
    scene.finish()


@pytest.mark.parametrize("point", ["lane.lease.after", "lane.deliver.before", "lane.deliver.after"])
def test_engine_stopped_past_its_lease_changes_nothing_when_it_wakes(scene: Scene, point: str) -> None:
    """Another one does its work meanwhile; the sleeper sends nothing more when it wakes."""
    with scene.engine(
        ArmedCrashPoints(point, scene.stop_between_commits, occurrence=2 if "lease" not in point else 1)
    ) as sleeper:
        sleeper.wait_stopped()
        assert sleeper.is_stopped
        scene.clock.advance(61)
        with scene.engine() as other:
            assert other.wait() == 0
        scene.check()
        seen = scene.receiver.seen()
        sleeper.resume()
        assert sleeper.wait() == 0

    scene.check()
    assert scene.receiver.seen() == seen, "sent by one whose lease was over"


@pytest.mark.slow
def test_engines_side_by_side_dying_again_and_again(scene: Scene) -> None:
    """Two at a time, each killed somewhere, while more is enqueued: nothing is lost or reordered."""
    choose = random.Random(11)
    killed, last = 0, EVENTS
    for _ in range(4):
        points = [ArmedCrashPoints(choose.choice(POINTS), occurrence=choose.randint(1, 6)) for _ in "12"]
        with scene.engine(points[0]) as one, scene.engine(points[1]) as two:
            killed += sum(engine.wait() == KILLED for engine in (one, two))
        scene.fill(last + 1, last + 2)
        last += 2
        scene.clock.advance(61)

    assert killed >= 3
    scene.clock.advance(61)
    with scene.engine() as final:
        assert final.wait() == 0
    scene.check(last)
