"""What a Redis ledger keeps when servers and workers die, and what it may lose; as the docs say."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import redis

from oncegate import Gate
from oncegate.crashpoints import CrashPoints
from oncegate.errors import OncegateError, StoreUnknown
from oncegate.gate.admission import Verdict
from oncegate.gate.once import Once
from oncegate.model.states import State
from oncegate.store import Durability
from oncegate.stores.redis import RedisStore, failures
from oncegate.testing import ArmedCrashPoints, Forked, SharedClock
from oncegate.testing.proxy import TcpProxy
from oncegate.testing.waiting import wait_until
from tests.support.postgres_site import reservation, settlement
from tests.support.servers_valkey import ValkeyServer, running

_NUMBERS = count()
SHORT: dict[str, Any] = {"retention": "72h", "retention_floor": "72h"}
KILLED = -9
# The crash points that a handler without business writes passes.
POINTS = (
    "commit.before", "commit.after", "reserve.before", "reserve.after", "start.after", "effect.before",
    "effect.after", "step.after", "settle.before", "settle.after",
)  # fmt: skip


def write_until_it_dies(server: ValkeyServer, kill_after: int) -> list[int]:
    """Reserves and settles keys until the server is killed; returns the acknowledged ones."""
    store = RedisStore(server.url())
    session, told = store.connect(), []
    is_far = threading.Event()

    def kill() -> None:
        is_far.wait(60)
        server.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        for number in range(1_000_000):
            (claim,) = session.reserve([reservation(number)])
            assert session.settle([settlement(claim, outcome=b"1")]) == [True]
            told.append(number)
            if len(told) == kill_after:
                is_far.set()
    except OncegateError:
        killer.join()
    return told


def test_nothing_acknowledged_is_lost_when_the_server_is_killed(tmp_path: Path) -> None:
    """I3: with `appendfsync always` every settlement that was acknowledged is there after kill -9."""
    with running(tmp_path / "data", appendfsync="always") as server:
        told = write_until_it_dies(server, 100)
        server.start()
        store = RedisStore(server.url())
        found = store.connect().read([reservation(number).key for number in told])

    assert len(told) >= 100
    assert {entry and entry.state for entry in found} == {State.COMMITTED}
    assert store.capabilities.durability is Durability.POWER_LOSS
    assert not store.capabilities.forgets_on_failover


def test_gate_goes_on_after_the_server_was_killed(tmp_path: Path) -> None:
    """The same gate replays what it did before; nothing runs again."""
    calls: Counter[str] = Counter()
    with running(tmp_path / "data", appendfsync="always") as server, Gate(server.url()) as gate:
        gate.handler("orders", key="{id}", **SHORT)(lambda event: calls.update([event["id"]]))
        for number in range(20):
            gate.admit_sync("orders", {"id": str(number)})
        server.kill()
        server.start()
        verdicts = {gate.admit_sync("orders", {"id": str(number)}).verdict for number in range(20)}

    assert verdicts == {Verdict.REPLAY}
    assert set(calls.values()) == {1}


def replicated(primary: ValkeyServer) -> Callable[[], bool]:
    def is_online() -> bool:
        known = primary.client().info("replication")
        is_there = known["connected_slaves"] == 1 and known["slave0"]["state"] == "online"
        client = primary.client()
        client.incr("written")
        return bool(is_there and client.wait(1, 1000) == 1)

    return is_online


@pytest.mark.slow
def test_failover_without_waiting_may_lose_acknowledged_records(tmp_path: Path) -> None:
    """The documented loss: what the primary acknowledged after its replica's link was cut is not there."""
    with (
        running(tmp_path / "one", appendfsync="always") as primary,
        TcpProxy(primary.port) as link,
        running(tmp_path / "two", replicaof=f"127.0.0.1 {link.port}") as replica,
    ):
        wait_until(replicated(primary), what="the replica")
        store = RedisStore(primary.url())
        session = store.connect()
        assert store.capabilities.forgets_on_failover
        (kept,) = session.reserve([reservation(1)])
        wait_until(lambda: replica.client().exists(b"oncegate:{01}:" + kept.key), what="the replica")
        link.refuse()
        (lost,) = session.reserve([reservation(2)])
        primary.kill()
        replica.client().replicaof("NO", "ONE")
        session.close()

        found = RedisStore(replica.url()).connect().read([kept.key, lost.key])

    assert [entry is not None for entry in found] == [True, False]


def test_write_that_no_replica_has_is_not_acknowledged_with_wait(tmp_path: Path, monkeypatch) -> None:
    """I3: with `wait=1` a reservation that stays on the primary is in doubt, and no handler runs on it."""
    ran: list[object] = []
    with (
        running(tmp_path / "one") as primary,
        running(tmp_path / "two", replicaof=f"127.0.0.1 {primary.port}") as replica,
        Gate(primary.url(wait=1)) as gate,
    ):
        wait_until(replicated(primary), what="the replica")
        gate.handler("orders", key="{id}", **SHORT)(ran.append)
        gate.admit_sync("orders", {"id": "1"})
        replica.pause(on=True)
        monkeypatch.setattr("oncegate.stores.redis.wire.WAIT_MS", 50)

        with pytest.raises(StoreUnknown, match="0 of 1 replicas have it"):
            gate.admit_sync("orders", {"id": "2"})
        assert len(ran) == 1
        monkeypatch.undo()
        replica.pause(on=False)
        again = gate.admit_sync("orders", {"id": "3"})

    assert again.verdict is Verdict.RUN


def test_settled_event_that_a_failover_lost_is_written_down_and_not_run_again(tmp_path: Path) -> None:
    """I23: the process remembers what it did, and tells the new primary before it acts there."""
    calls: list[object] = []
    with running(tmp_path / "one") as server, Gate(server.url()) as gate:
        gate.handler("orders", key="{id}", **SHORT)(calls.append)
        gate.admit_sync("orders", {"id": "1"})
        server.client().flushall()  # an older state took over
        server.client().client_kill_filter(_type="normal", skipme=True)

        gate.admit_sync("orders", {"id": "2"})  # connects again, and compares first
        with Gate(server.url()) as other:
            other.handler("orders", key="{id}", **SHORT)(calls.append)
            again = other.admit_sync("orders", {"id": "1"})

    assert again.verdict is Verdict.HOLD
    assert (again.reason or "").startswith("the ledger went back")
    assert len(calls) == 2


class Worker:
    """One worker process: a downstream that honours the key, and one that cannot be called again."""

    def __init__(self, server: ValkeyServer, prefix: str, clock: SharedClock) -> None:
        self._server, self._prefix, self._clock = server, prefix, clock

    def admit(self, points: CrashPoints | None = None) -> Any:
        store = RedisStore(self._server.url(prefix=self._prefix), clock=self._clock)
        with Gate(store=store, clock=self._clock, crashpoints=points) as gate:
            bank = gate.downstream("bank", honours_key="1d")
            fax = gate.downstream("fax")

            @gate.handler("orders", key="{id}", **SHORT)
            def run(event: Any, once: Once) -> str:
                once.effect(bank, self._charge)
                return once.effect(fax, self._announce)

            try:
                return gate.admit_sync("orders", {"id": "o-1"})
            except OncegateError as error:
                return error

    def _charge(self, idempotency_key: str) -> str:
        """A downstream that honours the key: the same key is one effect."""
        self._server.client().sadd(f"effects-{self._prefix}", idempotency_key)
        return "paid"

    def _announce(self) -> str:
        return str(self._server.client().incr(f"faxes-{self._prefix}"))

    def effects(self) -> tuple[int, int]:
        """What the downstreams have seen."""
        client = self._server.client()
        return client.scard(f"effects-{self._prefix}"), int(client.get(f"faxes-{self._prefix}") or 0)


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_worker_killed_at_a_crash_point_leaves_one_effect(valkey: ValkeyServer, point: str) -> None:
    """I1, I2, I6: redelivered until it has an end, the event is charged once and faxed at most once."""
    worker = Worker(valkey, f"crash{next(_NUMBERS)}", SharedClock())
    struck = Forked(lambda: worker.admit(ArmedCrashPoints(point))).wait()

    answers = []
    for _ in range(6):
        worker._clock.advance(120)
        answers.append(worker.admit())
    charged, faxed = worker.effects()

    assert struck == KILLED
    assert (charged, faxed <= 1) == (1, True)
    last = answers[-1]
    assert isinstance(last, OncegateError) or last.verdict in (Verdict.REPLAY, Verdict.HOLD), last
    if point in ("reserve.before", "reserve.after", "commit.before"):
        assert last.verdict is Verdict.REPLAY
        assert faxed == 1


def test_stalled_worker_that_wakes_up_changes_nothing(valkey: ValkeyServer) -> None:
    """I4: its lease is over, another one has settled the key: its settlement is refused."""
    url = valkey.url(prefix=f"zombie{next(_NUMBERS)}")
    clock = SharedClock()
    sleeper, other = RedisStore(url, clock=clock).connect(), RedisStore(url, clock=clock).connect()
    (old,) = sleeper.reserve([reservation(1)])
    clock.advance(31)
    (new,) = other.reserve([reservation(1)])
    assert other.settle([settlement(new, outcome=b"new")]) == [True]

    assert sleeper.settle([settlement(old, outcome=b"old")]) == [False]
    (found,) = other.details([new.key])
    assert found is not None
    assert found.outcome == b"new"
    for session in (sleeper, other):
        session.close()


def test_server_that_is_loading_is_told_as_such() -> None:
    """Its answer is certain: nothing was done."""
    error = failures.unreachable(redis.exceptions.BusyLoadingError("loading"), "redis://h")
    assert "is loading its data; try again" in str(error)
