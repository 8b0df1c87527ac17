"""Delivery over real HTTP while senders die, sleep and meet, and the receiver flaps (I10, I11, B3-B6)."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import pytest

from oncegate import Gate
from oncegate.crashpoints import LANE_CRASH_POINTS
from oncegate.errors import StoreBusy
from oncegate.receiver import Receiver
from oncegate.stores.postgres import PostgresStore
from oncegate.stores.sqlite import SqliteStore, files, session
from oncegate.testing import ArmedCrashPoints
from oncegate.testing.forking import stop_this_process
from oncegate.testing.postgres import PostgresServer
from oncegate.testing.waiting import DEADLINE_SECONDS, wait_until
from tests.sender.chaos_site import (
    EVERY_MOOD,
    KEYS,
    SECRET,
    FlappingReceiver,
    Headers,
    HttpScene,
    Journal,
    check_journal,
)

pytestmark = pytest.mark.slow

KILLED = -9
# No dead letters here: that point has a test with the engine.
POINTS = [point for point in LANE_CRASH_POINTS if point != "lane.dead.after"] + [
    "commit.before",
    "commit.after",
]


@pytest.fixture(params=["sqlite", "postgres"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HttpScene]:
    """A scene on either ledger, its receiver at work."""
    if request.param == "sqlite":
        made = HttpScene(lambda clock: SqliteStore(tmp_path / "ledger.db", clock=clock), tmp_path)
    else:
        url = request.getfixturevalue("ledger_url")
        made = HttpScene(lambda clock: PostgresStore(url, clock=clock), tmp_path)
    made.open(3)
    with made.receiver.process():
        yield made
    made.receiver.close()


def test_senders_killed_at_every_point(scene: HttpScene) -> None:
    """One after the other is killed, each at another point; nothing is lost, reordered or left out."""
    killed = set()
    for point in POINTS:
        with scene.sender(ArmedCrashPoints(point)) as victim:
            if victim.wait(2 * DEADLINE_SECONDS) == KILLED:
                killed.add(point)
        scene.clock.advance(61)
        scene.emit(1)

    assert killed == set(POINTS)
    scene.finish()


def test_receiver_in_every_mood(scene: HttpScene, tmp_path: Path) -> None:
    """Timeouts, resets, half an answer, a side that is closed, bytes that drip, two answers, 500, 503, with
    the event taken or not: given each of them in turn, three times at least, all arrives and in order."""
    journal = Journal(tmp_path / "every-mood")
    theirs = FlappingReceiver(journal, 1, in_turn=EVERY_MOOD)
    before, scene.receiver, scene.journal = scene.receiver, theirs, journal
    with closing(theirs), theirs.process():
        scene.move_endpoint()
        scene.emit(1)
        scene.finish()
    scene.receiver = before
    arrivals = [line for line in journal.lines() if line[0] == "arrived"]
    assert len(arrivals) >= 3 * len(EVERY_MOOD)


@pytest.mark.parametrize("point", ["lane.deliver.before", "lane.deliver.after", "lane.finish.after"])
def test_sender_stopped_past_its_lease_changes_nothing_when_it_wakes(scene: HttpScene, point: str) -> None:
    """Another one does its work; what the sleeper still sends is a repeat with the same id."""
    with scene.sender(ArmedCrashPoints(point, scene.stop_between_commits, occurrence=2)) as sleeper:
        sleeper.wait_stopped()
        assert sleeper.is_stopped
        scene.clock.advance(61)
        with scene.sender() as other:
            assert other.wait(2 * DEADLINE_SECONDS) == 0
        scene.check()
        sleeper.resume()
        assert sleeper.wait(2 * DEADLINE_SECONDS) == 0

    scene.check()


def test_sender_stopped_within_a_commit_makes_others_wait_and_doubles_nothing(
    scene: HttpScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On SQLite it holds the only lock, and whoever writes is told so; once it wakes all is as it was."""
    with scene.sender(ArmedCrashPoints("commit.before", stop_this_process, occurrence=3)) as sleeper:
        sleeper.wait_stopped()
        assert sleeper.is_stopped
        if scene.store().capabilities.one_writer:
            with monkeypatch.context() as patience:
                for module in (files, session):
                    patience.setattr(module, "BUSY_WAIT_MS", 50)
                with pytest.raises(StoreBusy):
                    scene.emit(1)
        with scene.sender() as other:
            wait_until(partial(scene.are_at_work, other), what="the other sender at work")
            sleeper.resume()
            assert sleeper.wait(2 * DEADLINE_SECONDS) == 0
            assert other.wait(2 * DEADLINE_SECONDS) == 0

    scene.finish()


def test_two_senders_at_once_while_the_wall_clock_steps(scene: HttpScene) -> None:
    """Both deliver; neither passes the other, however wrong the wall clock is."""
    for seconds in (-86_400, 172_800):
        with scene.sender() as one, scene.sender() as two:
            scene.clock.step_wall(seconds)
            assert one.wait(2 * DEADLINE_SECONDS) == 0
            assert two.wait(2 * DEADLINE_SECONDS) == 0
        scene.check()
        scene.emit(2)
    scene.finish()


def test_own_receiver_applies_each_event_once_and_in_order(scene: HttpScene, tmp_path: Path) -> None:
    """`oncegate.receiver` behind a connection that fails as it likes: applied once, whatever came twice."""
    applied, arrived = Journal(tmp_path / "applied"), Journal(tmp_path / "arrived")
    made: list[Receiver] = []

    def receiver() -> Receiver:  # opened in the process that serves
        if not made:
            store = SqliteStore(tmp_path / "theirs.db", clock=scene.clock)
            made.append(Receiver(Gate(store=store, clock=scene.clock), "orders", secrets=[SECRET]))

            @made[0].handler()
            async def apply(event: dict[str, object]) -> None:
                applied.add("taken", event["key"], event["seq"], event["id"])

        return made[0]

    async def take(headers: Headers, body: bytes) -> int:
        return (await receiver().receive(headers, body)).status

    theirs = FlappingReceiver(arrived, 7, take)
    commits_to = scene.receiver
    scene.receiver, scene.journal = theirs, arrived
    with closing(theirs), theirs.process():
        scene.move_endpoint()
        with scene.sender(ArmedCrashPoints("lane.deliver.after", occurrence=3)) as victim:
            assert victim.wait(2 * DEADLINE_SECONDS) == KILLED
        scene.finish()
    scene.receiver = commits_to

    assert sorted(applied.lines()) == sorted(
        ["taken", key, str(seq), f"{key}-{seq}"] for key in KEYS for seq in range(1, scene.events + 1)
    )
    check_journal(applied, scene.events)


def on_a_server_that_ends(
    tmp_path: Path, rounds: int, seed: int, how: signal.Signals = signal.SIGQUIT
) -> None:
    with PostgresServer(in_memory=True) as server:
        url = server.new_database()
        scene = HttpScene(lambda clock: PostgresStore(url, clock=clock), tmp_path, seed)
        scene.open(4)
        with closing(scene.receiver), scene.receiver.process():
            for _ in range(rounds):
                enough = len(scene.journal.lines()) + 8
                with scene.sender() as one, scene.sender() as two:
                    wait_until(partial(scene.are_at_work, one, two), what="both senders at work")
                    wait_until(partial(scene.has_seen, enough), what="some deliveries")
                    server.stop(how)
                    server.start()
                    assert one.wait(2 * DEADLINE_SECONDS) == 0
                    assert two.wait(2 * DEADLINE_SECONDS) == 0
                scene.clock.advance(61)
                scene.emit(4)
            scene.finish()


def test_postgres_crashing_while_two_senders_deliver(tmp_path: Path) -> None:
    """Acknowledgements whose commit is in doubt are read back; nothing is skipped, nothing passes."""
    on_a_server_that_ends(tmp_path, rounds=1, seed=3)


def test_postgres_being_restarted_while_two_senders_deliver(tmp_path: Path) -> None:
    """An orderly restart ends every session with a word; both senders go on with the server."""
    on_a_server_that_ends(tmp_path, rounds=1, seed=4, how=signal.SIGINT)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(6))
def test_soak_everything_at_once(scene: HttpScene, seed: int) -> None:
    """Senders killed somewhere or asleep past their lease, side by side; wall clocks that step."""
    choose, killed = random.Random(seed), 0
    for _ in range(12):
        points = [ArmedCrashPoints(choose.choice(POINTS), occurrence=choose.randint(1, 9)) for _ in "12"]
        sleepy = ArmedCrashPoints(
            choose.choice(POINTS[:3]), scene.stop_between_commits, occurrence=choose.randint(1, 5)
        )
        with (
            scene.sender(points[0]) as one,
            scene.sender(points[1]) as two,
            scene.sender(sleepy) as third,
        ):
            scene.clock.step_wall(choose.choice((-7_200, 3_600)))
            third.wait_stopped(120)
            scene.clock.advance(61)
            with suppress(TimeoutError):
                one.wait(5)
            if third.is_stopped:
                third.resume()
            killed += sum(sender.wait(120) == KILLED for sender in (one, two))
            assert third.wait(120) == 0
        scene.emit(3)
    assert killed >= 6
    scene.finish()


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_soak_postgres_crashing_again_and_again(tmp_path: Path) -> None:
    on_a_server_that_ends(tmp_path, rounds=10, seed=5)
