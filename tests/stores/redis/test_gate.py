"""A gate on a Redis ledger: one effect an event, whatever the network loses; what is missing says so."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from oncegate import Gate, open_store
from oncegate.errors import ConfigError, OncegateError, StoreUnavailable, StoreUnknown
from oncegate.gate.admission import Verdict
from oncegate.gate.once import AsyncOnce, Once
from oncegate.stores.redis.functions import Call
from oncegate.testing.proxy import TcpProxy
from tests.support.servers_valkey import ValkeyServer, running

_NUMBERS = count()
SHORT: dict[str, Any] = {"retention": "72h", "retention_floor": "72h"}
THREADS, EVENTS, ARRIVALS = 16, 40, 6


class Process:
    """One process with a gate, and what its downstream has seen."""

    def __init__(self, url: str | None = None, **options: Any) -> None:
        self.gate = Gate(url)
        self.bank = self.gate.downstream("bank", honours_key="1d")
        self.fax = self.gate.downstream("fax")
        self.calls: Counter[str] = Counter()
        self.gate.handler("orders", key="{id}", **SHORT, **options)(self.run)

    def run(self, event: Any, once: Once) -> str:
        once.effect(self.fax, self.announce, event["id"])
        return once.effect(self.bank, self.charge, event["id"])

    def announce(self, order: str) -> None:
        """A call that cannot be repeated: its start is recorded first."""

    def charge(self, order: str, idempotency_key: str = "") -> str:
        self.calls[order] += 1
        return f"paid {order}"

    def admit(self, order: str = "o-1", **more: Any) -> Any:
        return self.gate.admit_sync("orders", {"id": order, **more})


@pytest.fixture
def url(valkey: ValkeyServer) -> str:
    return valkey.url(prefix=f"gate{next(_NUMBERS)}")


def test_gate_opens_the_ledger_that_the_environment_names(url: str, monkeypatch) -> None:
    """ONCEGATE_URL is enough; another process replays what the first one did."""
    monkeypatch.setenv("ONCEGATE_URL", url)
    first, second = Process(), Process()

    answers = [first.admit(), first.admit(), second.admit()]
    for process in (first, second):
        process.gate.close()

    assert [answer.verdict for answer in answers] == [Verdict.RUN, Verdict.REPLAY, Verdict.REPLAY]
    assert {answer.value for answer in answers} == {"paid o-1"}
    assert (first.calls, second.calls) == ({"o-1": 1}, {})


def test_other_content_under_a_known_key_conflicts(url: str) -> None:
    """I7: in the process that ran it and in another one; nothing of the outcome is shown."""
    first, second = Process(url), Process(url)
    first.admit(amount=1)

    answers = [process.admit(amount=2) for process in (first, second)]

    assert [(answer.verdict, answer.value) for answer in answers] == [(Verdict.CONFLICT, None)] * 2
    for process in (first, second):
        process.gate.close()


def test_storm_of_arrivals_has_one_effect_an_event(url: str) -> None:
    """Four processes' gates, sixteen threads, each event six times at once: one call each."""
    gates = [Process(url, on_busy="wait") for _ in range(4)]
    start = threading.Barrier(THREADS)

    def send(worker: int) -> list[str]:
        start.wait(60)
        mine = gates[worker % len(gates)]
        orders = [f"o-{n % EVENTS}" for n in range(worker, EVENTS * ARRIVALS, THREADS)]
        return [mine.admit(order).value for order in orders]

    with ThreadPoolExecutor(THREADS) as threads:
        values = [value for part in threads.map(send, range(THREADS)) for value in part]
    called = sum((process.calls for process in gates), Counter())
    for process in gates:
        process.gate.close()

    assert called == {f"o-{n}": 1 for n in range(EVENTS)}
    assert Counter(values) == {f"paid o-{n}": ARRIVALS for n in range(EVENTS)}


def test_tasks_share_pipelines(url: str, valkey: ValkeyServer) -> None:
    """A hundred events of one loop take far fewer exchanges than events; each runs once."""
    ran: Counter[str] = Counter()
    with Gate(url) as gate:
        bank = gate.downstream("bank", honours_key="1d")

        async def charge(order: str, idempotency_key: str = "") -> str:
            ran[order] += 1
            return "paid"

        @gate.handler("orders", key="{id}", **SHORT)
        async def run(event: Any, once: AsyncOnce) -> str:
            return await once.effect(bank, charge, event["id"])

        async def admit_all() -> list[Any]:
            return await asyncio.gather(*(gate.admit("orders", {"id": f"o-{n}"}) for n in range(100)))

        asyncio.run(admit_all())
        before = valkey.client().info("stats")["total_reads_processed"]
        asyncio.run(admit_all())
        reads = valkey.client().info("stats")["total_reads_processed"] - before

    assert set(ran.values()) == {1}
    assert len(ran) == 100
    assert reads < 50


def test_loop_goes_on_while_the_server_is_silent(tmp_path: Path) -> None:
    """A server that stands still holds up its own events and nothing else of the program."""
    with running(tmp_path / "data") as server, Gate(server.url()) as gate:

        @gate.handler("orders", key="{id}", **SHORT)
        async def run(event: Any) -> str:
            return "done"

        async def admit() -> Any:
            await gate.admit("orders", {"id": "first"})
            server.pause(on=True)
            waiting = asyncio.create_task(gate.admit("orders", {"id": "second"}))
            for _ in range(20):
                await asyncio.sleep(0.001)
            assert not waiting.done()
            server.pause(on=False)
            return await waiting

        answer = asyncio.run(admit())

    assert (answer.verdict, answer.value) == (Verdict.RUN, "done")


@pytest.mark.parametrize("call", [Call.RESERVE, Call.PROGRESS, Call.SETTLE], ids=lambda call: call.word)
def test_lost_reply_is_read_back_by_the_token(valkey: ValkeyServer, url: str, call: Call) -> None:
    """I5: the server did it, the answer never came: the event goes on and has one effect."""
    with TcpProxy(valkey.port) as proxy:
        process = Process(proxy.url(url))
        process.admit("first")  # the connection and the functions are there
        lost: list[bytes] = []

        def decide(link: Any, data: bytes) -> bool:
            if not lost and call.function.encode() in data:
                lost.append(data)
                link.is_silent = True  # first: the server may answer before the client is let go
                link.server.sendall(data)
                link.abandon()
                return True
            return False

        proxy._on_request = decide
        answer = process.admit("second")
        repeat = process.admit("second")
        process.gate.close()

    assert lost
    assert (answer.value, repeat.verdict) == ("paid second", Verdict.REPLAY)
    assert process.calls == {"first": 1, "second": 1}


def test_lost_request_runs_nothing_and_the_event_can_be_sent_again(valkey: ValkeyServer, url: str) -> None:
    """I19: a reservation that did not reach the server is refused; sent again, it runs once."""
    with TcpProxy(valkey.port) as proxy:
        process = Process(proxy.url(url))
        process.admit("first")
        proxy.lose_request(Call.RESERVE.function.encode())

        with pytest.raises(StoreUnavailable):
            process.admit("second")
        assert process.calls == {"first": 1}
        assert process.admit("second").verdict is Verdict.RUN
        process.gate.close()

    assert proxy.happened["lost request"] == 1


def test_server_that_is_gone_runs_nothing(valkey: ValkeyServer, url: str) -> None:
    """I19: one clear line, no effect; when the server is back the same gate goes on."""
    with TcpProxy(valkey.port) as proxy:
        process = Process(proxy.url(url))
        process.admit("first")
        proxy.refuse()

        with pytest.raises((StoreUnavailable, StoreUnknown)) as told:
            process.admit("second")
        assert process.calls == {"first": 1}
        proxy.allow()
        assert process.admit("second").verdict is Verdict.RUN
        process.gate.close()

    assert "\n" not in str(told.value)


def test_connection_that_the_server_closed_is_replaced_before_it_is_used(
    valkey: ValkeyServer, url: str
) -> None:
    """An idle connection that was cut costs no event."""
    process = Process(url)
    process.admit("first")
    client = valkey.client()
    client.client_kill_filter(_type="normal", skipme=True)

    assert process.admit("second").verdict is Verdict.RUN
    process.gate.close()


def test_long_retention_is_refused_unless_it_is_forced(url: str) -> None:
    """The default of 90 days needs another ledger, or a word in the address."""
    with Gate(url) as gate, pytest.raises(ConfigError, match="retention 90d is too long for this ledger"):
        gate.handler("orders", key="{id}")(lambda event: None)
    with Gate(f"{url}&long_retention=1") as forced:
        forced.handler("orders", key="{id}")(lambda event: None)


def test_start_says_what_the_ledger_can_lose(url: str, caplog) -> None:
    """One line at the first connection of a store."""
    store = open_store(url)
    with caplog.at_level(logging.INFO, "oncegate.stores.redis"):
        for _ in range(2):
            store.connect().close()

    (line,) = [record.getMessage() for record in caplog.records]
    assert "claims and open entries, for short windows (3d at most); no audit trail" in line
    assert "survives a crash of the process, not of the machine (appendfsync everysec); no replica" in line


def test_feature_that_needs_more_says_so(url: str) -> None:
    """In one line, with the ledgers that have it."""
    with Gate(url) as gate, pytest.raises(ConfigError, match="need SQLite or PostgreSQL") as told:
        gate.dashboard(login=True)

    assert "redis: claims, open entries only" in str(told.value)


def test_errors_are_our_own(url: str) -> None:
    """Whatever the driver raises, users catch OncegateError."""
    process = Process("redis://127.0.0.1:1/0")
    with pytest.raises(OncegateError, match="cannot be reached"):
        process.admit()
    process.gate.close()
