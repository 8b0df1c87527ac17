"""Lost replies, undone commits and a server that dies, during deliveries: all of it, in order (I5, I10)."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.lane_operations import Enqueue, Finish, GiveUp, LeaseHeads, Resumed
from oncegate.errors import StoreUnavailable, StoreUnknown
from oncegate.lanes import Dead, Delivered, Destination, Engine, RetryLater, recording
from oncegate.model.backoff import Backoff
from oncegate.store import (
    Acknowledgement,
    Delivery,
    GivenUp,
    HeadsWanted,
    LaneState,
    Placing,
    Policy,
    Store,
)
from oncegate.stores.postgres import PostgresStore
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing import Fault, Faults, ManualClock, faulty
from oncegate.testing.postgres import PostgresServer
from oncegate.testing.proxy import Proxy
from oncegate.testing.waiting import DEADLINE_SECONDS
from tests.lanes.engine_site import Site
from tests.lanes.lane_site import ENDPOINT, outgoing


class FaultySite(Site):
    """A site whose commits fail as told."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.faults = Faults()
        super().__init__(faulty(store, self.faults), clock)

    def lease(self) -> Delivery:
        (delivery,) = self.commits.submit(LeaseHeads(HeadsWanted(((ENDPOINT, 1),), 60_000, 7))).deliveries
        return delivery


@pytest.fixture(params=["sqlite", "postgres"])
def doubtful(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FaultySite]:
    clock = ManualClock()
    store: Store = (
        SqliteStore(tmp_path / "ledger.db", clock=clock)
        if request.param == "sqlite"
        else PostgresStore(request.getfixturevalue("ledger_url"), clock=clock)
    )
    made = FaultySite(store, clock)
    yield made
    made.commits.close()


def ack(delivery: Delivery, **changes: Any) -> Finish:
    values = {"lease_ms": 60_000, "next_holder": 9} | changes
    return Finish(
        Acknowledgement(
            delivery.lane_id,
            delivery.seq,
            delivery.fence,
            delivery.holder,
            delivery.event_id,
            1,
            "200",
            **values,
        )
    )


def dead(delivery: Delivery, policy: Policy) -> GiveUp:
    lease = (delivery.lane_id, delivery.seq, delivery.fence, delivery.holder, delivery.event_id)
    return GiveUp(GivenUp(*lease, 1, "400", policy, "engine", 60_000, 9))


def test_lost_replies_are_read_back_operation_by_operation(doubtful: FaultySite) -> None:
    """Each happened, and each asker learns what it would have been told; nothing happens twice."""
    lost = doubtful.faults.plan
    lost.append(Fault.LOST_REPLY)
    assert doubtful.commits.submit(Enqueue(outgoing("k-1"))).placing is Placing.NEW
    doubtful.fill(3, first=2)
    lost.append(Fault.LOST_REPLY)
    first = doubtful.lease()

    lost.append(Fault.LOST_REPLY)
    finished = doubtful.commits.submit(ack(first))
    second = finished.successor
    assert second is not None
    lost.append(Fault.LOST_REPLY)
    given_up = doubtful.commits.submit(dead(second, Policy.ADVANCE))
    third = given_up.successor
    assert third is not None

    assert (finished.done, given_up.done) == (True, True)
    assert [(d.seq, d.fence) for d in (first, second, third)] == [(1, 1), (2, 2), (3, 3)]
    assert doubtful.lane().last_seq == 4


def test_record_whose_reply_and_reading_back_are_lost_is_found_later(doubtful: FaultySite) -> None:
    """Asked for again it is read back first: the answer is the first one's, with its successor."""
    doubtful.fill(2)
    first = doubtful.lease()
    doubtful.faults.plan.extend([Fault.LOST_REPLY, Fault.DOWN])
    with pytest.raises(StoreUnknown):
        doubtful.commits.submit(ack(first))

    again = doubtful.commits.submit(Resumed(ack(first)))

    assert again.done
    assert again.successor is not None
    assert (again.successor.seq, again.successor.fence) == (2, 2)


def test_record_of_an_old_fence_is_never_taken_for_done(doubtful: FaultySite) -> None:
    """Somebody else has the head since: asked for again it changes nothing and says so (I4)."""
    doubtful.fill(2)
    first = doubtful.lease()
    doubtful.clock.advance(61)
    assert doubtful.lease().fence == 2

    assert not doubtful.commits.submit(Resumed(ack(first))).done

    assert doubtful.lane().head_seq == 1


def test_undone_commits_are_told_as_not_done(tmp_path: Path) -> None:
    """On the embedded ledger, where a unit is undone as a whole: nothing has changed, by any of them."""
    site = FaultySite(SqliteStore(tmp_path / "ledger.db", clock=(clock := ManualClock())), clock)
    site.fill(2)
    first = site.lease()
    for operation in (ack(first), dead(first, Policy.BLOCK), Resumed(ack(first))):
        site.faults.plan.append(Fault.UNDONE)
        with pytest.raises(StoreUnavailable):
            site.commits.submit(operation)
    assert (site.lane().state, site.lane().head_seq) == (LaneState.LEASED, 1)
    assert site.commits.submit(ack(first)).done
    site.commits.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting between the tries of a record; there are as many of them."""
    monkeypatch.setattr(recording, "RECORD_WAITS_SECONDS", (0.0,) * 8)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("seed", range(6))
def test_engine_over_a_store_that_fails_again_and_again(tmp_path: Path, seed: int) -> None:
    """Replies lost, commits undone, the store away for a moment: each key in order, and nothing lost."""
    site = FaultySite(SqliteStore(tmp_path / "ledger.db", clock=(clock := ManualClock())), clock)
    for number in range(1, 7):
        for key in ("a", "b", "c"):
            site.fill(1, key, number)
    choose = random.Random(seed)
    faults = [Fault.NONE, Fault.NONE, Fault.LOST_REPLY, Fault.UNDONE, Fault.DOWN]

    def answer(delivery: Delivery) -> Any:
        site.faults.plan.extend(choose.choices(faults, k=3))
        if delivery.key == "b" and delivery.attempt == 1:
            return RetryLater("500")
        return Dead("400") if delivery.key == "c" and delivery.seq == 3 else Delivered("200")

    site.answer = answer
    asyncio.run(work_off(site, site.engine(policy=Policy.ADVANCE)))

    for key in ("a", "b", "c"):
        assert site.lane(key).state is LaneState.IDLE
        assert list(dict.fromkeys(site.seqs(key))) == [1, 2, 3, 4, 5, 6]
    site.commits.close()


async def work_off(site: FaultySite, engine: Engine) -> None:
    """Passes until nothing is due any more; a pass that finds the store away is made again."""
    for _ in range(300):
        try:
            done = await engine.run_once()
        except (StoreUnavailable, StoreUnknown):
            continue
        if done.next_due_in_ms is None and not site.faults.plan:
            return
        site.clock.advance((done.next_due_in_ms or 0) / 1000)
    raise AssertionError("there is no end to it")


# --- PostgreSQL itself -----------------------------------------------------------------------------


class Arrivals:
    """What came to a destination, by key."""

    def __init__(self, keys: int, events: int) -> None:
        self._events = events
        self.seqs: dict[str, list[int]] = {f"k{number}": [] for number in range(keys)}
        self.half, self.all = threading.Event(), threading.Event()

    async def deliver(self, delivery: Delivery) -> Any:
        seen = self.seqs[delivery.key]
        seen.append(delivery.seq)
        firsts = sum(len(set(seqs)) for seqs in self.seqs.values())
        if firsts * 2 >= self._events * len(self.seqs):
            self.half.set()
        if firsts == self._events * len(self.seqs):
            self.all.set()
        return Delivered("200")

    def check(self) -> int:
        """All of it, in order at first sight; tells how many came again."""
        for seqs in self.seqs.values():
            assert list(dict.fromkeys(seqs)) == list(range(1, self._events + 1)), seqs
            # What comes again is what was last sent, never an earlier one.
            assert seqs == sorted(seqs), seqs
        return sum(len(seqs) - self._events for seqs in self.seqs.values())


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of our own, which may be crashed."""
    with PostgresServer(in_memory=True) as started:
        yield started


KEYS, EVENTS = 20, 40


async def deliver_all(url: str, arrivals: Arrivals, disturb: Any) -> None:
    """An engine at work while something happens to its connections; it ends when all has arrived."""
    store = PostgresStore(url)
    commits = GroupCommit(store)
    session = store.connect()
    with session.unit():
        session.enqueue([outgoing(f"{k}-{n}", k) for n in range(1, EVENTS + 1) for k in arrivals.seqs])
    session.close()
    destination = Destination(ENDPOINT, arrivals.deliver, Backoff(), concurrency=8)
    async with asyncio.timeout(2 * DEADLINE_SECONDS), Engine(commits, [destination]):
        await asyncio.to_thread(disturb)
        assert await asyncio.to_thread(arrivals.all.wait, DEADLINE_SECONDS)
    with store.look() as reader:
        (view,) = reader.destinations()
    assert (view.events, view.leased, view.blocked) == (0, 0, 0)
    commits.close()


@pytest.mark.slow
def test_server_dies_during_deliveries(server: PostgresServer) -> None:
    """Killed without a shutdown in the middle: the same engine goes on, without waiting for a lease."""
    arrivals = Arrivals(KEYS, EVENTS)

    def disturb() -> None:
        assert arrivals.half.wait(DEADLINE_SECONDS)
        server.crash_and_restart()

    asyncio.run(deliver_all(server.new_database(), arrivals, disturb))

    arrivals.check()


@pytest.mark.slow
def test_replies_of_the_server_are_lost_during_deliveries(server: PostgresServer) -> None:
    """The network cuts and swallows replies: no event is lost, and none overtakes."""
    arrivals, direct = Arrivals(KEYS, EVENTS), server.new_database()
    with Proxy(server.folder) as proxy:

        def disturb() -> None:
            for _ in range(6):
                proxy.lose_reply(b"SELECT ", skip=3)
                proxy.cut()
            assert arrivals.half.wait(DEADLINE_SECONDS)
            proxy.cut()

        asyncio.run(deliver_all(proxy.url(direct), arrivals, disturb))

        assert proxy.happened["lost reply"] or proxy.happened["cut"], proxy.happened
    arrivals.check()
