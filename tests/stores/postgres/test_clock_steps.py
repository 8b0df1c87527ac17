"""I15 on PostgreSQL: the server's own clock steps, freezes and drifts; leases do not follow it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from oncegate import Gate, Verdict
from oncegate.errors import NotApplied
from oncegate.store import Reservation
from oncegate.stores.postgres.statements import TICKS
from oncegate.testing.postgres import GivenServer, PostgresServer

HOUR = 3_600_000
STEPS_MS = [1_000, -1_000, 300_000, -300_000, 2 * HOUR, -2 * HOUR, 8760 * HOUR, -8760 * HOUR]
SET_CLOCK = """
CREATE OR REPLACE FUNCTION oncegate_clock() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT wall FROM test_clock $$
"""


class Server:
    """A ledger on a server whose clock is set by hand, and gates with clocks of their own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.gates: list[Gate] = []
        self.gate().engine.store.connect().close()
        self.connection = psycopg.connect(url, autocommit=True)
        self.connection.execute("CREATE TABLE test_clock (wall bigint)")
        self.connection.execute("INSERT INTO test_clock SELECT oncegate_clock()")
        self.connection.execute(SET_CLOCK.encode())

    def gate(self) -> Gate:
        gate = Gate(self.url)
        self.gates.append(gate)
        return gate

    def step(self, by_ms: int) -> None:
        """Sets the server's clock."""
        self.connection.execute("UPDATE test_clock SET wall = wall + %s", (by_ms,))

    def pass_time(self, seconds: int, every: int = 5) -> None:
        """Lets time pass with a process there to keep it, as workers are."""
        for _ in range(seconds // every):
            self.step(every * 1000)
            self.now()

    def now(self) -> int:
        """The ledger's own time, as a worker that looks keeps and sees it."""
        with self.gates[0].engine.store.look() as session:
            return session.now_ticks()

    def close(self) -> None:
        for gate in self.gates:
            gate.close()
        self.connection.close()


@pytest.fixture
def server(postgres: PostgresServer | GivenServer) -> Iterator[Server]:
    fresh = Server(postgres.new_database())
    yield fresh
    fresh.close()


@pytest.fixture(params=STEPS_MS, ids=lambda ms: f"{ms / 1000:+.0f} s")
def step_ms(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def test_ledger_time_follows_no_step(server: Server, step_ms: int) -> None:
    """Back by less than the second since it was last kept, ahead by 20 s at most; then on as usual."""
    before = server.now()
    server.step(step_ms)
    stepped = server.now()
    assert -1_000 <= stepped - before <= 20_000
    server.pass_time(60)
    assert server.now() - stepped == pytest.approx(60_000, abs=1_000)


def test_statements_and_the_ledgers_own_function_tell_one_time(server: Server, step_ms: int) -> None:
    """Whatever the server's clock does, what is written out in statements is what `oncegate_now()` says."""
    server.now()
    server.step(step_ms)

    ((told, written),) = server.connection.execute(f"SELECT oncegate_now(), {TICKS}".encode()).fetchall()

    assert told == written


@pytest.mark.slow
def test_a_clock_that_stands_still_or_drifts_is_followed(server: Server) -> None:
    """Frozen, nothing lapses; fast or slow, leases are a little shorter or longer."""
    before = server.now()
    assert [server.now() for _ in range(3)] == [before] * 3
    for _ in range(100):
        server.step(1_010)
        server.now()
    assert server.now() - before == 101_000


class Slot:
    """A downstream that can be asked, whose first request is still under way."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.sold: list[str] = []
        self.meanwhile: Callable[[], Any] = lambda: None

    def gate(self) -> Gate:
        gate = self.server.gate()
        ect = gate.downstream("ect", probe=lambda key: list(self.sold))

        def claim(idempotency_key: str) -> dict[str, str]:
            self.meanwhile()
            self.sold.append("slot")
            return {"id": "slot"}

        @gate.handler("bookings", key="{id}")
        def book(event, once):
            return once.effect(ect, claim)["id"]

        return gate


@pytest.mark.slow
def test_a_step_while_a_call_is_under_way_does_not_lead_to_a_second(server: Server, step_ms: int) -> None:
    """I1: at worst somebody asks, and "not found" is not believed while a request may be under way."""
    slot = Slot(server)
    seen: list[Any] = []

    def other_worker() -> None:
        slot.meanwhile = lambda: None
        server.step(step_ms)
        try:
            seen.append(slot.gate().admit_sync("bookings", {"id": 1}).verdict)
        except NotApplied:
            seen.append("not yet")

    slot.meanwhile = other_worker
    gate = slot.gate()
    try:
        gate.admit_sync("bookings", {"id": 1})
    except Exception as error:  # noqa: BLE001  it may have lost its claim to the one that asks
        seen.append(type(error).__name__)
    assert seen[0] in (Verdict.BUSY, "not yet")
    assert slot.sold == ["slot"]
    # And in the end there is one slot and one outcome
    server.pass_time(90)
    assert slot.gate().admit_sync("bookings", {"id": 1}).value == "slot"
    assert slot.sold == ["slot"]


def test_a_dead_workers_lease_lapses_all_the_same_after_a_step_back(server: Server) -> None:
    """The clock was two hours ahead and is set right: nobody waits two hours for it."""
    gate = server.gate()
    session = gate.engine.store.connect()
    with session.unit():
        session.reserve([Reservation(b"k" * 24, "", "bookings", "k", b"f" * 16, b"{}", 1, 20_000, 8, 1)])
    session.close()
    server.step(-2 * HOUR)
    server.pass_time(30)
    with gate.engine.store.look() as reader:
        assert [item.entry.label for item in reader.stranded(10)] == ["k"]
