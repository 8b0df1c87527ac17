"""The engine: order, the real schedule of failures, and the traps others fell into (B3-B5, trap 7)."""

from __future__ import annotations

import asyncio
from contextlib import closing
from time import perf_counter
from typing import Any

import pytest

from oncegate.commit.lane_operations import RetryHead, Steer
from oncegate.errors import ConfigError
from oncegate.lanes import Dead, Delivered, Destination, Disable, Engine, RetryLater, Throttle, Unreached
from oncegate.model.backoff import Backoff
from oncegate.model.circuit import Circuit, CircuitState
from oncegate.store import Delivery, DestinationState, HeadOrder, LaneState, Policy, ReplayWanted, Steering
from tests.lanes.engine_site import Site
from tests.lanes.lane_site import ENDPOINT, outgoing
from tests.support.gates import until


def run(work: Any) -> Any:
    return asyncio.run(work)


async def play(site: Site, engine: Engine, rounds: int = 50) -> None:
    """Lets time pass from one due moment to the next until nothing is due any more."""
    for _ in range(rounds):
        done = await engine.run_once()
        if done.next_due_in_ms is None:
            return
        site.clock.advance(done.next_due_in_ms / 1000)
    raise AssertionError("there is no end to it")


async def rest_until(site: Site, engine: Engine, ticks: int) -> None:
    """Lets time pass from one due moment to the next until the given one."""
    while site.clock.ticks_ms() < ticks:
        due = (await engine.run_once()).next_due_in_ms or 1_000
        site.clock.advance(max(due, 1) / 1000)


def test_each_key_is_delivered_in_order(site: Site) -> None:
    """Many keys at once, each in its own order, all of it in one pass."""
    for number in range(1, 6):
        for key in ("a", "b", "c"):
            site.fill(1, key, number)

    done = run(site.engine().run_once())

    assert (done.delivered, done.failed, done.next_due_in_ms) == (15, 0, None)
    assert all(site.seqs(key) == [1, 2, 3, 4, 5] for key in ("a", "b", "c"))
    assert {delivery.attempt for delivery in site.arrived} == {1}


def test_failing_event_follows_the_real_schedule(site: Site) -> None:
    """1, 2, 4, … seconds, to the cap; then it is a dead letter and the lane is blocked."""
    site.fill(2)
    site.answer = lambda delivery: RetryLater("500")
    engine = site.engine(backoff=Backoff(attempts_max=6))

    run(play(site, engine))

    waits = [(b - a) / 1000 for a, b in zip(site.times, site.times[1:], strict=False)]
    assert waits == pytest.approx([1, 2, 4, 8, 16], abs=0.01)
    assert [delivery.attempt for delivery in site.arrived] == [1, 2, 3, 4, 5, 6]
    assert site.seqs() == [1] * 6
    assert (site.lane().state, site.lane().error) == (LaneState.BLOCKED, "500")


def test_jitter_makes_each_wait_a_little_longer(site: Site) -> None:
    """Those that failed together do not come back together, and none comes early."""
    site.fill(1)
    answers = iter([RetryLater("500"), RetryLater("500"), Delivered()])
    site.answer = lambda delivery: next(answers)

    run(play(site, site.engine(jitter=0.5)))

    assert [b - a for a, b in zip(site.times, site.times[1:], strict=False)] == [1050, 2100]


def test_recovered_head_is_followed_at_once(site: Site) -> None:
    """What waited behind a failing head has used no attempt and waits for no backoff of its own."""
    site.fill(4)
    fails = iter([RetryLater("500")] * 4)
    site.answer = lambda delivery: next(fails, Delivered())

    run(play(site, site.engine()))

    assert site.seqs() == [1, 1, 1, 1, 1, 2, 3, 4]
    assert [d.attempt for d in site.arrived] == [1, 2, 3, 4, 5, 1, 1, 1]
    assert site.times[-1] == site.times[4], "no time passed between the recovered head and the last event"


def test_destinations_wish_is_obeyed_within_limits(site: Site) -> None:
    """Retry-After is waited for when it is longer than the backoff, up to a day; nonsense is no wait."""
    site.fill(1)
    wishes = iter([RetryLater("503", 90.0), RetryLater("503", 1e12), RetryLater("503", float("nan"))])
    site.answer = lambda delivery: next(wishes, Delivered())

    run(play(site, site.engine()))

    waits = [(b - a) / 1000 for a, b in zip(site.times, site.times[1:], strict=False)]
    assert waits == pytest.approx([90, 24 * 3600, 4], abs=0.01)


def test_advancing_destination_goes_on_after_a_dead_letter(site: Site) -> None:
    """B5: the next event goes once the previous is acknowledged or dead-lettered."""
    site.fill(3)
    site.answer = lambda delivery: Dead("400") if delivery.seq == 2 else Delivered()

    run(site.engine(policy=Policy.ADVANCE).run_once())

    assert site.seqs() == [1, 2, 3]
    assert site.lane().state is LaneState.IDLE


def test_retried_head_lets_its_lane_go_on(site: Site) -> None:
    """An operator's retry after the destination was mended delivers the rest, in order."""
    site.fill(3)
    site.answer = lambda delivery: Dead("400")
    engine = site.engine()
    run(engine.run_once())
    site.answer = lambda delivery: Delivered()

    site.commits.submit(RetryHead(HeadOrder(site.lane().lane_id, 1, "olga", "mended", 1)))
    run(engine.run_once())

    assert site.seqs() == [1, 1, 2, 3]


def test_events_of_a_disabled_destination_are_kept(site: Site) -> None:
    """410 disables it: nothing more goes, nothing is lost, no attempt is used; resumed, all of it goes."""
    site.fill(2)
    site.answer = lambda delivery: Disable("410 gone")
    engine = site.engine()
    run(engine.run_once())
    site.fill(1, first=3)
    run(engine.run_once())
    assert site.seqs() == [1]
    with site.store.look() as reader:
        (view,) = reader.destinations()
    assert (view.state, view.reason, view.events) == (DestinationState.DISABLED, "410 gone", 3)
    site.answer = lambda delivery: Delivered()

    site.commits.submit(Steer(Steering(ENDPOINT, DestinationState.ACTIVE, "olga", "back", 1)))
    run(engine.run_once())

    assert [(d.seq, d.attempt) for d in site.arrived[1:]] == [(1, 1), (2, 1), (3, 1)]


def test_throttled_destination_is_left_alone_by_all_lanes(site: Site) -> None:
    """429 with Retry-After: no lane of the destination is tried before, and no attempt is used up."""
    site.fill(1, "a")
    site.fill(1, "b")
    answers = iter([Throttle("429", 7.0), Throttle("429", 7.0)])
    site.answer = lambda delivery: next(answers, Delivered())

    run(play(site, site.engine()))

    assert [time - site.times[0] for time in site.times] == [0, 0, 7_000, 7_000]
    assert [delivery.attempt for delivery in site.arrived] == [1] * 4


def test_exception_of_a_destination_is_a_failed_attempt(site: Site) -> None:
    """Whatever it raises, the lane goes on with a later try."""
    site.fill(1)
    answers = iter([None])

    def answer(delivery: Delivery) -> Any:
        if next(answers, True) is None:
            raise ValueError("boom")
        return Delivered()

    site.answer = answer
    run(play(site, site.engine()))

    assert [delivery.attempt for delivery in site.arrived] == [1, 2]


@pytest.mark.parametrize(
    "text", ["\udc80 from a file name", "\0", "\ud83d" * 600], ids=["file", "zero", "long"]
)
def test_what_an_attempt_came_to_is_recorded_whatever_its_words_are(site: Site, text: str) -> None:
    """Words that no ledger can hold must not keep it, and others of the same commit, from being told."""
    site.fill(2)
    site.fill(1, "other")
    answers = {1: RetryLater(text), 2: Delivered(text), 3: Dead(text)}
    tries = iter((1, 2, 3))
    site.answer = lambda d: RetryLater("500") if d.key == "other" else answers[next(tries)]

    run(play(site, site.engine(backoff=Backoff(attempts_max=2))))

    assert site.seqs() == [1, 1, 2]
    assert site.lane().state is LaneState.BLOCKED
    assert len([one for one in site.arrived if one.key == "other"]) == 2


def test_replay_has_a_nonce_of_its_own(site: Site) -> None:
    """The same ids go once more, in order, before what is new; only the nonce is new (B6)."""
    site.fill(3)
    engine = site.engine()
    run(engine.run_once())
    wanted = ReplayWanted(ENDPOINT, 99, "olga", "lost", 1, lane_id=site.lane().lane_id, seq_from=2)
    with site.commits.transaction() as session:
        session.replay(wanted)
    site.fill(1, first=4)

    run(engine.run_once())

    again = site.arrived[3:]
    assert [(d.seq, d.nonce) for d in again] == [(2, 99), (3, 99), (4, None)]
    assert [d.event_id for d in again] == ["k-2", "k-3", "k-4"]


def test_no_more_in_flight_than_the_destination_takes(site: Site) -> None:
    """Concurrency is a limit for each destination, and one lane never has two in flight."""
    for number in range(10):
        site.fill(2, f"k{number}")
    now: set[str] = set()
    most = 0

    async def answer(delivery: Delivery) -> Delivered:
        nonlocal most
        assert delivery.key not in now
        now.add(delivery.key)
        most = max(most, len(now))
        for _ in range(5):
            await asyncio.sleep(0)
        now.remove(delivery.key)
        return Delivered()

    site.answer = answer
    done = run(site.engine(concurrency=3).run_once())

    assert (done.delivered, most) == (20, 3)


def test_rate_is_kept(site: Site) -> None:
    """Two a second: nothing is leased, and no lane goes on, beyond that."""
    site.fill(4, "a")
    site.fill(2, "b")

    run(play(site, site.engine(per_second=2.0)))

    assert len(site.times) == 6
    for first, third in zip(site.times, site.times[2:], strict=False):
        assert third - first >= 499
    assert (site.seqs("a"), site.seqs("b")) == ([1, 2, 3, 4], [1, 2])


def test_however_deep_a_backlog_is_one_event_of_a_key_is_in_flight(site: Site) -> None:
    """Trap 7: no batch and no parallel mode above some depth. Given more of a key than one lease or one row
    takes, and room for all; then at most one of a key is under way, and each key is in order."""
    deep, keys = {"a": 520, "b": 120}, ("a", "b")
    with site.commits.transaction() as session:
        session.enqueue([outgoing(f"{key}-{number}", key) for key in keys for number in range(deep[key])])
    in_flight, most = dict.fromkeys(keys, 0), dict.fromkeys(keys, 0)

    async def answer(delivery: Delivery) -> Delivered:
        in_flight[delivery.key] += 1
        most[delivery.key] = max(most[delivery.key], in_flight[delivery.key])
        await asyncio.sleep(0)
        in_flight[delivery.key] -= 1
        return Delivered()

    site.answer = answer
    run(site.engine(concurrency=256).run_once())

    assert most == {"a": 1, "b": 1}
    assert all(site.seqs(key) == list(range(1, deep[key] + 1)) for key in keys)


def test_long_lane_lets_others_have_their_turn(site: Site) -> None:
    """With room for one only, a lane with hundreds of events does not keep another waiting to its end."""
    site.fill(150, "long")
    site.fill(1, "short")

    def answer(delivery: Delivery) -> Delivered:
        site.clock.advance(0.001)
        return Delivered()

    site.answer = answer
    run(site.engine(concurrency=1).run_once())

    place = [delivery.key for delivery in site.arrived].index("short")
    assert place <= 101
    assert site.seqs("long") == list(range(1, 151))


def test_long_delivery_keeps_its_lease(site: Site) -> None:
    """Extended while it runs; nobody else is given the head, and its record counts."""
    site.fill(1)
    engine = site.engine()
    other = site.engine()

    async def scenario() -> None:
        finish = asyncio.Event()

        async def answer(delivery: Delivery) -> Delivered:
            await finish.wait()
            return Delivered()

        site.answer = answer
        work = asyncio.create_task(engine.run_once())
        await until(lambda: site.arrived)
        for _ in range(5):
            site.clock.advance(40)
            assert await engine.extend_due() == 1
            assert (await other.run_once()).delivered == 0
        finish.set()
        assert (await work).delivered == 1

    run(scenario())
    assert site.seqs() == [1]


def test_stopping_gives_back_what_is_in_flight(site: Site) -> None:
    """After the grace, unfinished heads are ready for others at once, without an attempt used up."""
    site.fill(2)

    async def answer(delivery: Delivery) -> Delivered:
        await asyncio.Event().wait()
        return Delivered()

    async def scenario() -> None:
        site.answer = answer
        engine = site.engine()
        await engine.start()
        await until(lambda: site.arrived)
        await engine.stop(grace_seconds=0)
        assert engine.in_flight == 0

    run(scenario())
    assert (site.lane().state, site.lane().attempts) == (LaneState.WAITING, 0)
    site.answer = lambda delivery: Delivered()
    run(site.engine().run_once())
    assert site.seqs() == [1, 1, 2]


def test_running_engine_delivers_what_is_enqueued(site: Site) -> None:
    """Enqueued in this process it goes at once; enqueued elsewhere it is found."""

    async def scenario() -> None:
        async with site.engine() as engine:
            for number in range(1, 4):
                await engine.enqueue(outgoing(f"here-{number}", "here"))
            await asyncio.to_thread(site.fill, 3, "there")
            await until(lambda: len(site.arrived) == 6)

    run(scenario())
    assert (site.seqs("here"), site.seqs("there")) == ([1, 2, 3], [1, 2, 3])


@pytest.mark.slow
def test_blocked_keys_cost_the_ready_one_nothing(site: Site, twin: Site) -> None:
    """I11: beside ten thousand blocked keys, the ready one is delivered as fast as alone."""
    block(site, 10_000)
    beside, alone = Stopwatch(site), Stopwatch(twin)
    # Measured by turns, and as often as it takes: the machine may be busy with something else for a while
    for number in range(400):
        beside.measure()
        alone.measure()
        if number >= 20 and beside.best_s < alone.best_s * 2 + 0.001:
            break

    assert beside.best_s < alone.best_s * 2 + 0.001
    assert site.seqs("ready") == list(range(1, beside.number + 1))


class Stopwatch:
    """How long a ready key's delivery takes at best."""

    def __init__(self, site: Site) -> None:
        self._site, self._engine = site, site.engine()
        self.number, self.best_s = 0, 60.0
        for _ in range(2):
            self.measure()

    def measure(self) -> None:
        """Delivers one event of the ready key."""
        self.number += 1
        self._site.fill(1, "ready", self.number)
        began = perf_counter()
        run(self._engine.run_once())
        self.best_s = min(self.best_s, perf_counter() - began)


def vacuum(site: Site, table: str) -> None:
    """Clears away what PostgreSQL keeps of rows that are gone."""
    session: Any = site.store.connect()
    with closing(session):
        session._connection.execute(f"VACUUM (ANALYZE) {table}")


def block(site: Site, count: int) -> None:
    """Lanes that are blocked, each with an event behind the head; made past the engine, for speed."""
    with site.commits.transaction() as session:
        session.enqueue([outgoing(f"b{n}-{m}", f"b{n}") for n in range(count) for m in (1, 2)])
        table = "oncegate_lane" if site.store.capabilities.one_writer else "oncegate_head"
        session.execute(f"UPDATE {table} SET state = 4, due_at = NULL WHERE state = 2", ())
    if not site.store.capabilities.one_writer:
        vacuum(
            site, table
        )  # no lane becomes blocked like this: what the update left behind is not the point
    with site.store.look() as reader:
        (view,) = reader.destinations()
    assert (view.blocked, view.events) == (count, 2 * count)


def test_circuit_opens_only_when_many_lanes_fail() -> None:
    """One poisoned key never opens it; five in a row do, for longer each time; a success closes it."""
    circuit = Circuit()
    for _ in range(100):
        circuit.fail(1, 0)
    assert circuit.state(0) is CircuitState.CLOSED
    for lane in range(5):
        circuit.fail(lane, 0)
    assert circuit.state(0) is CircuitState.OPEN
    assert (circuit.room(10, 0, 0), circuit.opens_in_ms(0)) == (0, 1_000)
    assert circuit.state(1_000) is CircuitState.HALF_OPEN
    assert (circuit.room(10, 0, 1_000), circuit.room(10, 1, 1_000)) == (1, 0)
    circuit.fail(9, 1_000)
    assert circuit.opens_in_ms(1_000) == 2_000
    circuit.succeed()
    assert (circuit.state(1_001), circuit.room(10, 3, 1_001)) == (CircuitState.CLOSED, 10)


def test_circuit_of_a_dead_destination_is_visible_and_heals(site: Site) -> None:
    """While it rests nothing is tried; once something succeeds all lanes go on."""
    for number in range(6):
        site.fill(1, f"k{number}")
    site.answer = lambda delivery: RetryLater("500")
    engine = site.engine()
    run(engine.run_once())
    assert engine.circuits() == {ENDPOINT: CircuitState.OPEN}
    site.answer = lambda delivery: Delivered()

    run(play(site, engine))

    assert engine.circuits() == {ENDPOINT: CircuitState.CLOSED}
    assert all(site.seqs(f"k{number}") == [1, 1] for number in range(6))


@pytest.mark.slow
def test_an_hour_of_errors_needs_no_operator(site: Site) -> None:
    """Default schedule, many keys: one is tried at a time, and all arrive when it is over."""
    back_at = site.clock.ticks_ms() + 3_600_000
    for number in range(20):
        site.fill(2, f"k{number}")
    is_back = lambda: site.clock.ticks_ms() >= back_at  # noqa: E731  one question, asked twice
    site.answer = lambda delivery: Delivered() if is_back() else RetryLater("500")
    engine = site.engine(backoff=Backoff())

    run(play(site, engine, rounds=2_000))

    assert is_back()
    assert site.clock.ticks_ms() - back_at < 10 * 60_000
    for number in range(20):
        assert site.lane(f"k{number}").state is LaneState.IDLE
        assert site.seqs(f"k{number}")[-2:] == [1, 2]
    assert len([at for at in site.times if at < back_at]) < 400


@pytest.mark.slow
def test_destination_that_is_not_reached_rests_from_the_first_attempt_and_uses_none_up(site: Site) -> None:
    """A week without a connection: one try at a time, at most two a minute, and no dead letter."""
    back_at = site.clock.ticks_ms() + 7 * 86_400_000
    for number in range(3):
        site.fill(1, f"k{number}")
    site.answer = lambda delivery: Unreached("no connection")
    engine = site.engine(backoff=Backoff(attempts_max=1), concurrency=1)
    run(engine.run_once())
    assert engine.circuits() == {ENDPOINT: CircuitState.OPEN}
    assert len(site.arrived) == 1
    run(rest_until(site, engine, site.clock.ticks_ms() + 3_600_000))
    assert len(site.arrived) <= 130
    assert {site.lane(f"k{number}").attempts for number in range(3)} == {0}

    site.clock.advance((back_at - site.clock.ticks_ms()) / 1000)
    site.answer = lambda delivery: Delivered()
    run(play(site, engine))

    assert {site.lane(f"k{number}").state for number in range(3)} == {LaneState.IDLE}


def test_wrong_settings_are_refused(site: Site) -> None:
    """Limits that make no sense, and names that come twice."""
    for settings in ({"concurrency": 0}, {"concurrency": 10**6}):
        with pytest.raises(ConfigError):
            Destination(ENDPOINT, site.deliver, **settings)  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        site.engine(per_second=0.0)
    with pytest.raises(ConfigError, match="twice"):
        site.engine().add(Destination(ENDPOINT, site.deliver))
