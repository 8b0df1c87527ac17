"""Events in the user's own transaction: sent if it commits, never if it does not (B1, A5)."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from oncegate.errors import UsageError
from oncegate.store import Outgoing, Placed, Placing
from oncegate.stores.postgres import PostgresStore
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing import ManualClock, wait_until
from tests.gate.join_kinds import KINDS, Kind, django_on_sqlite
from tests.lanes.lane_site import ENDPOINT, finish, lease, outgoing
from tests.support.gates import running


class Undo(Exception):
    """Makes a user's block roll back."""


@pytest.fixture(params=KINDS, ids=[kind.name for kind in KINDS])
def kind(request: pytest.FixtureRequest) -> Kind:
    """Every kind of transaction on PostgreSQL."""
    chosen: Kind = request.param
    return chosen


async def enqueue(store: Any, kind: Kind, tx: Any, event: Outgoing) -> Placed:
    names = (event.destination, event.tenant, event.type)
    if not store.knows(names):
        store.learn(names)
    placed: Any = store.join(tx).enqueue_one(event)
    answer: Placed = await placed if kind.is_async else placed
    return answer


def test_event_goes_with_the_users_commit(ledger_url: str, kind: Kind) -> None:
    """Nothing shows before it; afterwards the lane has its events, in order; the id is known to all."""
    store = PostgresStore(ledger_url, clock=ManualClock())
    session = store.connect()
    seen: list[Any] = []

    async def scenario() -> list[Placed]:
        async with kind.transaction(ledger_url) as tx:
            placed = [await enqueue(store, kind, tx, outgoing(f"e{n}")) for n in (1, 2, 1)]
            seen.extend(lease(session))
        return placed

    placed = kind.run(scenario())

    lane = placed[0].lane_id
    assert placed == [
        Placed(Placing.NEW, lane, 1),
        Placed(Placing.NEW, lane, 2),
        Placed(Placing.KNOWN, lane, 1),
    ]
    assert seen == []
    assert [d.event_id for d in lease(session)] == ["e1"]
    session.close()


def test_full_lane_is_told_in_the_users_transaction(ledger_url: str, kind: Kind) -> None:
    """Nothing is stored, and the transaction goes on: its owner decides (I18)."""
    store = PostgresStore(ledger_url, clock=ManualClock())
    session = store.connect()

    async def scenario() -> list[Placed]:
        async with kind.transaction(ledger_url) as tx:
            return [await enqueue(store, kind, tx, outgoing(f"e{n}", backlog_max=1)) for n in (1, 2, 1)]

    placed = kind.run(scenario())

    assert [one.placing for one in placed] == [Placing.NEW, Placing.FULL, Placing.KNOWN]
    assert [d.event_id for d in lease(session)] == ["e1"]
    session.close()


def test_undone_transaction_sends_nothing_and_leaves_no_gap(ledger_url: str, kind: Kind) -> None:
    """Rolled back, neither the event nor its seq nor its id is there."""
    store = PostgresStore(ledger_url, clock=ManualClock())
    session = store.connect()

    async def scenario() -> None:
        with contextlib.suppress(Undo):
            async with kind.transaction(ledger_url) as tx:
                await enqueue(store, kind, tx, outgoing("e1"))
                raise Undo

    kind.run(scenario())

    assert lease(session) == []
    with session.unit():
        assert [p.seq for p in session.enqueue([outgoing("e1")])] == [1]
    session.close()


def test_event_in_another_database_is_refused(ledger_url: str, postgres: Any, kind: Kind) -> None:
    """Only one database can commit both."""
    other = postgres.new_database()
    PostgresStore(other).connect().close()
    store = PostgresStore(ledger_url, clock=ManualClock())

    async def scenario() -> None:
        async with kind.transaction(other) as tx:
            with pytest.raises(UsageError, match="another database"):
                await enqueue(store, kind, tx, outgoing("e1"))

    kind.run(scenario())


@pytest.fixture
def sqlite_store(tmp_path: Path) -> SqliteStore:
    return SqliteStore(tmp_path / "ledger.db", clock=ManualClock())


@contextlib.contextmanager
def _sqlite3(path: Path) -> Iterator[Any]:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        connection.execute("COMMIT")


@contextlib.contextmanager
def _django(path: Path) -> Iterator[Any]:
    from django.db import transaction

    connection = django_on_sqlite(path)
    with contextlib.closing(connection), transaction.atomic(using=connection.alias):
        yield connection


@pytest.mark.parametrize("opened", [_sqlite3, _django], ids=["sqlite3", "django"])
def test_event_goes_with_the_users_commit_on_sqlite(sqlite_store: SqliteStore, opened: Any) -> None:
    """The same on the embedded ledger; undone, it leaves nothing."""
    session = sqlite_store.connect()

    with contextlib.suppress(Undo), opened(sqlite_store.path) as tx:
        sqlite_store.join(tx).enqueue_one(outgoing("undone"))
        raise Undo
    assert lease(session) == []
    with opened(sqlite_store.path) as tx:
        placed = sqlite_store.join(tx).enqueue_one(outgoing("e1"))

    assert (placed.placing, placed.seq) == (Placing.NEW, 1)
    assert [d.event_id for d in lease(session)] == ["e1"]
    session.close()


def test_seqs_follow_the_order_of_commits(ledger_url: str) -> None:
    """A second transaction on the same new lane waits for the first; undone, the first's seq is free."""
    for ends, seq in (("COMMIT", 2), ("ROLLBACK", 1)):
        store = PostgresStore(ledger_url, clock=ManualClock())
        store.learn((ENDPOINT, "", "order.updated"))
        key = f"key-{ends}"
        with psycopg.connect(ledger_url) as first, psycopg.connect(ledger_url) as second:
            first.execute("SELECT 1")
            second.execute("SELECT 1")
            store.join(first).enqueue_one(outgoing(f"{ends}-1", key))
            with running(lambda: store.join(second).enqueue_one(outgoing(f"{ends}-2", key))) as answers:  # noqa: B023
                _wait_until_blocked(ledger_url)
                first.execute(ends.encode())
            assert (answers[0].placing, answers[0].seq) == (Placing.NEW, seq)
            second.commit()


def test_same_id_in_two_transactions_is_one_event(ledger_url: str) -> None:
    """The loser of the race is told the winner's place, and gives back the seq that it had taken."""
    store = PostgresStore(ledger_url, clock=ManualClock())
    store.learn((ENDPOINT, "", "order.updated"))
    with psycopg.connect(ledger_url) as first, psycopg.connect(ledger_url) as second:
        first.execute("SELECT 1")
        second.execute("SELECT 1")
        store.join(first).enqueue_one(outgoing("e", "a"))
        with running(lambda: store.join(second).enqueue_one(outgoing("e", "b"))) as answers:
            _wait_until_blocked(ledger_url)
            first.commit()
        after: Any = store.join(second).enqueue_one(outgoing("f", "b"))
        second.commit()

    assert (answers[0].placing, answers[0].seq) == (Placing.KNOWN, 1)
    assert (after.placing, after.seq) == (Placing.NEW, 1)
    session = store.connect()
    assert sorted((d.key, d.event_id) for d in lease(session)) == [("a", "e"), ("b", "f")]
    session.close()


def test_batches_with_the_same_ids_agree(ledger_url: str) -> None:
    """Many sessions publish overlapping batches in different orders: each event is there once."""
    store = PostgresStore(ledger_url, clock=ManualClock())
    events = [outgoing(f"e{n}", f"k{n % 7}") for n in range(60)]
    start = threading.Barrier(4)

    def publish(turn: int) -> int:
        session = store.connect()
        start.wait()
        new = 0
        for first in range(0, 60, 12):
            batch = [events[(first + n * (1, -1)[turn % 2]) % 60] for n in range(20)]
            with session.unit(single=True):
                new += sum(p.placing is Placing.NEW for p in session.enqueue(batch))
        session.close()
        return new

    with running(*(lambda turn=turn: publish(turn) for turn in range(4))) as answers:
        pass

    assert sum(answers) == 60, answers
    with store.look() as reader:
        for lane in range(7):
            view = reader.find_lane(ENDPOINT, "", f"k{lane}")
            assert view is not None
            seqs = [event.seq for event in reader.deliveries(view.lane_id, 1, 100)]
            assert seqs == list(range(1, view.last_seq + 1))


def test_open_transaction_keeps_no_worker_waiting(ledger_url: str) -> None:
    """While somebody adds to a lane, what is in it is delivered; then it is looked at again soon."""
    clock = ManualClock()
    store = PostgresStore(ledger_url, clock=clock)
    session = store.connect()
    with session.unit():
        session.enqueue([outgoing("e1")])
    store.learn((ENDPOINT, "", "order.updated"))
    with psycopg.connect(ledger_url) as user:
        user.execute("SELECT 1")
        store.join(user).enqueue_one(outgoing("e2"))
        (first,) = lease(session)
        assert finish(session, first, chain=True) is None
        clock.advance(0.1)
        assert lease(session) == []
        user.commit()

    clock.advance(0.1)
    (second,) = lease(session)
    assert second.event_id == "e2"
    assert finish(session, second) is None
    with store.look() as reader:
        assert reader.destinations()[0].waiting == 0
    session.close()


def test_event_committed_as_its_lane_runs_dry_is_not_forgotten(ledger_url: str) -> None:
    """Adding and finishing at the same time, again and again: everything is delivered, in order."""
    store = PostgresStore(ledger_url)
    total, keys = 300, 3
    delivered: dict[str, list[int]] = {f"k{n}": [] for n in range(keys)}

    def publish() -> None:
        session = store.connect()
        for n in range(total):
            with session.unit(single=True):
                session.enqueue([outgoing(f"e{n}", f"k{n % keys}")])
        session.close()

    def work() -> None:
        session = store.connect()
        wait_until(lambda: deliver(session) >= total)
        session.close()

    def deliver(session: Any) -> int:
        for delivery in lease(session):
            current: Any = delivery
            while current is not None:
                delivered[current.key].append(current.seq)
                current = finish(session, current, chain=True)
        return sum(map(len, delivered.values()))

    with running(publish, work, work) as answers:
        pass

    assert answers == [None] * 3
    assert all(seqs == list(range(1, total // keys + 1)) for seqs in delivered.values())


def _wait_until_blocked(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        sql = (
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        wait_until(lambda: (connection.execute(sql).fetchone() or (0,))[0], what="somebody waits")
