"""The server crashes, connections break, replies are lost: nothing is lost, nothing done twice (I1-I6)."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from functools import partial

import psycopg
import pytest

from oncegate import Gate
from oncegate.clock import SystemClock
from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.operations import Reserve, Settle
from oncegate.errors import StoreError, StoreUnavailable, StoreUnknown
from oncegate.model.states import Decision, State
from oncegate.store import Session
from oncegate.stores.postgres import PostgresStore
from oncegate.stores.postgres.limits import LimitedConnection
from oncegate.testing.postgres import PostgresServer
from oncegate.testing.proxy import Proxy
from oncegate.testing.waiting import wait_until
from tests.support.gates import running
from tests.support.ledgers import new_ledger
from tests.support.postgres_site import (
    BOOK,
    SURFACE,
    PostgresSite,
    during,
    events_of,
    reservation,
    settlement,
)

COUNT = 240
SILENCE_MS = 1_500  # more than a statement takes on a slow machine
SOON_MS = 25_000  # less than the wait for an answer, which is what must not be waited for
OTHERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'oncegate'
"""
WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND application_name = 'oncegate'
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of our own, which may be crashed."""
    with PostgresServer(in_memory=True) as started:
        yield started


@pytest.fixture
def site(server: PostgresServer) -> Iterator[PostgresSite]:
    made = PostgresSite(new_ledger(server))
    yield made
    made.close()


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[Proxy]:
    with Proxy(server.folder) as started:
        yield started


@pytest.fixture
def behind(server: PostgresServer, proxy: Proxy) -> Iterator[PostgresSite]:
    """A site whose gate reaches the server through the proxy."""
    direct = new_ledger(server)
    made = PostgresSite(direct, proxy.url(direct))
    yield made
    made.close()


@pytest.mark.slow
def test_server_crash_in_the_middle_of_a_load(server: PostgresServer, site: PostgresSite) -> None:
    """Twice under load the server dies without a shutdown; the same gate goes on with it afterwards."""
    gate, events = site.gate(), events_of(COUNT)
    answered: set[str] = set()
    for share in (COUNT // 4, COUNT // 2):
        left = [event for event in events if event["id"] not in answered]
        answered |= during(
            partial(site.deliver, gate, left),
            server.crash_and_restart,
            partial(site.has_sold, share),
        )

    site.recover(gate, events, answered)

    site.check(events)
    assert site.told["StoreUnavailable"] + site.told["StoreUnknown"], "a run without a fault shows nothing"


@pytest.mark.slow
def test_connections_ended_by_the_server_under_load(site: PostgresSite) -> None:
    """The server ends every connection of ours again and again while events come in."""
    gate, events = site.gate(), events_of(COUNT)
    ended: list[tuple[object, ...]] = []
    stop = threading.Event()

    def end_connections() -> None:
        while not stop.is_set() and len(ended) < 40:
            ended.extend(site.rows(OTHERS))

    with running(end_connections):
        try:
            answered = site.deliver(gate, events)
        finally:
            stop.set()
    site.recover(gate, events, answered)

    assert ended
    site.check(events)


@pytest.mark.slow
def test_connections_cut_in_between_under_load(behind: PostgresSite, proxy: Proxy) -> None:
    """The network cuts, abandons and resets connections at moments of a fixed seed."""
    gate, events, choose = behind.gate(), events_of(COUNT), random.Random(7)
    stop = threading.Event()

    def disturb() -> None:
        for share in range(10, COUNT, 20):
            wait_until(lambda share=share: stop.is_set() or behind.terminal.total >= share)  # type: ignore[misc]
            match choose.randrange(4):
                case 0:
                    proxy.cut()
                case 1:
                    proxy.abandon()
                case 2:
                    proxy.reset_after(choose.randrange(1, 3000))
                case _:
                    proxy.lose_reply(b"COMMIT\0")

    with running(disturb):
        try:
            answered = behind.deliver(gate, events)
        finally:
            stop.set()
    behind.recover(gate, events, answered)

    behind.check(events)
    assert len(proxy.happened) >= 3, proxy.happened


@pytest.mark.parametrize("silently", [False, True], ids=["cut", "silent"])
def test_lost_reply_to_the_commit_of_an_outcome_is_read_back(
    behind: PostgresSite, proxy: Proxy, silently: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit happened and nobody said so: the caller is told the truth, and nothing runs again (I5)."""
    # Given a network that loses the reply to the commit, and perhaps says nothing at all any more
    gate, (first, event) = behind.gate(), events_of(2)
    gate.admit_sync(SURFACE, first)
    if silently:
        monkeypatch.setattr(LimitedConnection, "answer_wait_ms", SILENCE_MS)
    proxy.lose_reply(b"COMMIT\0", silently=silently)
    # When an event is admitted
    told = gate.admit_sync(SURFACE, event)
    # Then it is committed, once, and its caller knows
    assert proxy.happened["lost reply"] == 1
    assert told.verdict.value == "run"
    assert behind.terminal.calls.total() == 2
    behind.check([first, event])


@pytest.mark.parametrize("silently", [False, True], ids=["cut", "silent"])
def test_lost_reply_to_a_reservation_is_read_back(
    behind: PostgresSite, proxy: Proxy, silently: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key was reserved and nobody said so: it is found by its token, and run once."""
    gate, (first, event) = behind.gate(), events_of(2)
    gate.admit_sync(SURFACE, first)
    if silently:
        monkeypatch.setattr(LimitedConnection, "answer_wait_ms", SILENCE_MS)
    proxy.lose_reply(b"SELECT 1\0", silently=silently, skip=1)  # the reservation, after names are learned

    told = gate.admit_sync(SURFACE, event)

    assert proxy.happened["lost reply"] == 1
    assert told.verdict.value == "run"
    behind.check([first, event])


def test_lost_request_changes_nothing_and_is_said_so(behind: PostgresSite, proxy: Proxy) -> None:
    """The connection breaks before the server hears of the outcome: not done, and the next one does it."""
    gate, (first, event) = behind.gate(), events_of(2)
    gate.admit_sync(SURFACE, first)
    proxy.lose_request(b"slot of E-1")

    with pytest.raises(StoreUnavailable):
        gate.admit_sync(SURFACE, event)
    assert behind.rows("SELECT ref FROM booking") == [("E-0",)]

    behind.recover(gate, [first, event], {first["id"]})
    behind.check([first, event])


def test_commit_that_is_still_under_way_never_comes_after_it_was_read_back(
    behind: PostgresSite, proxy: Proxy
) -> None:
    """The client is cut off while the server waits for a lock: what is told to be undone stays undone."""
    # Given a settlement whose business write waits for somebody's lock
    commits = GroupCommit(PostgresStore(behind.url, clock=behind.clock))
    behind.rows("INSERT INTO booking VALUES ('shared', 'free')")
    claim = commits.submit(Reserve(reservation(1)))
    writes = (("UPDATE booking SET slot = ? WHERE ref = ?", ("taken", "shared")),)
    settle = Settle(settlement(claim, writes=writes))
    with psycopg.connect(behind.direct) as holder:
        holder.execute("SELECT 1 FROM booking WHERE ref = 'shared' FOR UPDATE")
        with running(lambda: commits.submit(settle)) as told:
            wait_until(lambda: behind.rows(WAITING) == [(1,)], what="the waiting settlement")
            # When the client loses its connection and the server does not notice
            assert proxy.abandon()
        holder.rollback()
    # Then it is told that nothing was done, nobody is left who could do it, and it can be done again
    assert type(told[0]) is StoreUnavailable
    assert behind.rows("SELECT slot FROM booking") == [("free",)]
    assert commits.submit(settle)
    assert behind.rows("SELECT slot FROM booking") == [("taken",)]
    commits.close()


def test_server_that_is_gone_is_told_at_once_and_nothing_runs(behind: PostgresSite, proxy: Proxy) -> None:
    """Gone at the start and later: a typed error within a deadline, no effect, then it goes on (I19)."""
    clock, events = SystemClock(), events_of(3)
    proxy.refuse()
    gate = behind.gate()
    for event in events[:2]:
        # Given a server that cannot be reached, when an event comes
        started = clock.ticks_ms()
        with pytest.raises(StoreUnavailable):
            gate.admit_sync(SURFACE, event)
        # Then it is refused soon and nothing was run
        assert clock.ticks_ms() - started < SOON_MS
        assert behind.terminal.total == 0
    # And when the server is back the same gate works, also after it went away again
    proxy.allow()
    assert gate.admit_sync(SURFACE, events[0]).verdict.value == "run"
    proxy.refuse()
    with pytest.raises(StoreUnavailable):
        gate.admit_sync(SURFACE, events[1])
    proxy.allow()
    assert behind.deliver(gate, events) == {event["id"] for event in events}
    behind.check(events)


@pytest.mark.slow
def test_restart_of_an_idle_server_is_not_noticed(server: PostgresServer, site: PostgresSite) -> None:
    """Connections that died while nothing was under way are replaced before anything is sent."""
    gate, events = site.gate(), events_of(40)
    site.deliver(gate, events[:20])
    server.crash_and_restart()

    assert site.deliver(gate, events) == {event["id"] for event in events}

    assert set(site.told) == {"run", "replay"}
    site.check(events)


def test_server_that_says_nothing_is_given_up(behind: PostgresSite, proxy: Proxy) -> None:
    """A server that accepts connections and answers nothing is an error, not a hang."""
    store = PostgresStore(f"{behind.url}&connect_timeout=2")
    proxy.delay_seconds = 600.0
    clock = SystemClock()
    started = clock.ticks_ms()
    with pytest.raises(StoreUnavailable):
        store.connect()
    assert clock.ticks_ms() - started < SOON_MS


def test_statement_that_takes_too_long_is_given_up_by_the_server(site: PostgresSite) -> None:
    """A lock that is not released in time is a typed error, and nothing was changed."""
    store = PostgresStore(f"{site.direct}&options=-c%20statement_timeout%3D200ms", clock=site.clock)
    commits = GroupCommit(store)
    claim = commits.submit(Reserve(reservation(1)))
    with psycopg.connect(site.direct) as holder:
        holder.execute("SELECT 1 FROM oncegate_entry FOR UPDATE")
        with pytest.raises(StoreUnavailable, match="took too long"):
            commits.submit(Settle(settlement(claim)))
    assert commits.submit(Settle(settlement(claim)))
    commits.close()


def test_deferred_constraint_refuses_the_handlers_own_transaction(site: PostgresSite) -> None:
    """A constraint that is checked at the commit is the handler's own fault, and its claim is kept."""
    site.rows(
        "CREATE TABLE part (id int PRIMARY KEY, whole int REFERENCES part DEFERRABLE INITIALLY DEFERRED)"
    )
    with contextlib.closing(PostgresStore(site.direct, clock=site.clock).connect()) as session:
        told = _refused_at_commit(session)
        assert type(told).__name__ == "StoreRejected"
        with session.unit():
            assert session.execute("SELECT count(*) FROM part", ()) == [(0,)]


def _refused_at_commit(session: Session) -> StoreError | None:
    try:
        with session.unit():
            session.execute("INSERT INTO part VALUES (1, 99)", ())
    except StoreError as error:
        return error
    return None


@pytest.mark.slow
def test_unknown_stays_unknown_while_the_server_is_gone(behind: PostgresSite, proxy: Proxy) -> None:
    """Reply lost and no way to read back: the caller is told that nobody knows; later everybody does."""
    commits = GroupCommit(PostgresStore(behind.url, clock=behind.clock))
    claim = commits.submit(Reserve(reservation(1)))
    proxy.lose_reply(b"COMMIT\0")
    proxy.refuse_new()
    writes = ((BOOK, ("E-0", "s")),)
    with pytest.raises(StoreUnknown):
        commits.submit(Settle(settlement(claim, writes=writes)))
    assert behind.rows("SELECT ref FROM booking") == [("E-0",)]
    proxy.allow()
    again = commits.submit(Reserve(reservation(1)))
    assert (again.decision, again.state) == (Decision.REPLAY, State.COMMITTED)
    commits.close()


@pytest.mark.soak
def test_many_gates_share_a_server_that_crashes(server: PostgresServer, site: PostgresSite) -> None:
    """Four gates are handed the same events in other orders while the server crashes."""
    events = events_of(100)
    gates: list[Gate] = [site.gate() for _ in range(4)]

    def work() -> set[str]:
        with running(
            *(
                partial(site.deliver, gate, random.Random(seed).sample(events, len(events)), 4)
                for seed, gate in enumerate(gates)
            )
        ) as answers:
            pass
        return set().union(*answers)

    answered = during(work, server.crash_and_restart, lambda: site.terminal.total >= 30)
    site.recover(gates[0], events, answered)

    site.check(events)
