"""Keys that are recorded in one statement: new to one who asks, whatever breaks meanwhile (I1-I6)."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import psycopg
import pytest

from lab.crash_matrix.site import KILLED
from oncegate import Gate
from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.pending import Pending
from oncegate.errors import StoreUnavailable
from oncegate.gate.flows.record_only import OUTCOME, Record
from oncegate.gate.surface import record as only_record
from oncegate.model.states import Decision, State
from oncegate.store import LogKind, Reservation, Reserved, Session
from oncegate.stores.postgres import PostgresStore, statements
from oncegate.stores.postgres.placeholders import to_numbered
from oncegate.stores.postgres.reserve_statements import RECORD_ONE
from oncegate.stores.postgres.session import PostgresSession
from oncegate.stores.postgres.wire import Rows, WireCommand
from oncegate.testing import ArmedCrashPoints, ManualClock, run_forked
from oncegate.testing.forking import Forked
from oncegate.testing.postgres import PostgresServer
from oncegate.testing.proxy import Proxy
from oncegate.testing.waiting import wait_until
from tests.support.gates import running
from tests.support.postgres_site import BLOCKED, reservation

THREADS, KEYS, BATCH = 6, 240, 40
MEET_SECONDS = 120.0
# What the ledger has of each key: its state, its outcomes, its records, and its leases.
LEFT = """
SELECT one.state, (SELECT count(*) FROM oncegate_outcome WHERE entry = one.id),
       (SELECT count(*) FROM oncegate_payload WHERE entry = one.id),
       ARRAY(SELECT kind FROM oncegate_log WHERE entry = one.id ORDER BY position),
       (SELECT count(*) FROM oncegate_open WHERE entry = one.id)
FROM oncegate_entry AS one
"""
WHOLE = (State.COMMITTED.value, 1, 1, [LogKind.COMMITTED.value], 0)


@pytest.fixture
def store(ledger_url: str) -> PostgresStore:
    return PostgresStore(ledger_url, clock=ManualClock())


@pytest.fixture
def session(store: PostgresStore) -> Iterator[PostgresSession]:
    with contextlib.closing(store.connect()) as opened:
        yield opened


def rows(url: str, sql: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(sql.encode()).fetchall()


def left(url: str) -> list[tuple[Any, ...]]:
    """What the ledger has of every key."""
    return rows(url, LEFT)


def record(session: Session, *wanted: Reservation) -> list[Reserved]:
    with session.unit(single=True):
        return list(session.record(wanted, OUTCOME))


def record_all(
    store: PostgresStore, seed: int, single: bool, meet: Callable[[], object] = lambda: None
) -> dict[str, int]:
    """Records every key in batches of its own order; returns how often each key was new to it.

    All meet before their first batch and after it, so that none can have recorded everything by then.
    """
    choose, keys, won = random.Random(seed), list(range(KEYS)), Counter[str]()
    choose.shuffle(keys)
    with contextlib.closing(store.connect()) as session:
        for start in range(0, KEYS, BATCH):
            if start <= BATCH:
                meet()
            batch = keys[start : start + BATCH]
            batch += choose.choices(batch, k=5)  # the same key twice in one batch
            with session.unit(single=single):
                answers = session.record([reservation(key) for key in batch], OUTCOME)
            decisions = [answer.decision for answer in answers]
            assert set(decisions) <= {Decision.RUN, Decision.REPLAY}, decisions
            won.update(str(key) for key, one in zip(batch, decisions, strict=True) if one is Decision.RUN)
    return won


@pytest.mark.parametrize("single", [True, False], ids=["by itself", "in a transaction"])
def test_each_key_is_new_to_one_of_many_sessions(store: PostgresStore, single: bool) -> None:
    """Unsorted, overlapping batches: one RUN for each key, REPLAY to all others, and no deadlock."""
    meet = partial(threading.Barrier(THREADS).wait, MEET_SECONDS)
    with running(*(partial(record_all, store, seed, single, meet) for seed in range(THREADS))) as found:
        pass
    assert not [one for one in found if isinstance(one, BaseException)], found

    assert sum((Counter(one) for one in found), Counter[str]()) == Counter(map(str, range(KEYS)))
    assert sum(1 for one in found if one) > 1, "a run with one winner shows nothing"
    assert left(store._url) == [WHOLE] * KEYS


@pytest.mark.slow
def test_each_key_is_new_to_one_of_many_processes(store: PostgresStore) -> None:
    """The same in processes that share nothing but the server."""
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Forked(partial(record_all, store, seed, True))) for seed in range(3)]
        found = [Counter(worker.answer(MEET_SECONDS)) for worker in workers]

    assert sum(found, Counter[str]()) == Counter(map(str, range(KEYS)))
    assert left(store._url) == [WHOLE] * KEYS


@pytest.mark.parametrize("is_recorded", [True, False], ids=["recorded", "reserved"])
@pytest.mark.parametrize("is_undone", [False, True], ids=["committed", "undone"])
def test_whoever_meets_an_uncommitted_key_waits_and_is_told_the_truth(
    store: PostgresStore, session: PostgresSession, is_recorded: bool, is_undone: bool
) -> None:
    """What a statement lost to is not in its snapshot: the next one reads it, or the key was free."""
    with contextlib.closing(store.connect()) as ours, contextlib.ExitStack() as stack:
        # Given a transaction that has the key and is not committed
        unit = stack.enter_context(contextlib.ExitStack())
        unit.enter_context(contextlib.suppress(ZeroDivisionError))
        unit.enter_context(session.unit())
        if is_recorded:
            session.record([reservation(1)], OUTCOME)
        else:
            session.reserve([reservation(1)])
        # When it is recorded beside a key of its own, waits, and the other comes to its end
        with running(partial(record, ours, reservation(0), reservation(1))) as answers:
            wait_until(lambda: rows(store._url, BLOCKED) == [(1,)], what="a blocked session")
            if is_undone:
                unit.push(_raise_zero_division)
            unit.close()
    # Then it is a replay, busy, or new
    found = [one.decision for one in answers[0]]
    known = Decision.REPLAY if is_recorded else Decision.BUSY
    assert found == [Decision.RUN, Decision.RUN if is_undone else known]
    assert left(store._url).count(WHOLE) == (2 if is_undone or is_recorded else 1)


def _raise_zero_division(*_: object) -> None:
    raise ZeroDivisionError


def test_content_of_another_process_conflicts(store: PostgresStore, session: PostgresSession) -> None:
    """Whoever comes second has the other content, and the first one's stays (I7)."""
    with contextlib.closing(store.connect()) as other:
        record(other, reservation(1, body=b"first"))
        (answer,) = record(session, reservation(1, body=b"second", fingerprint=b"g" * 16))

    assert (answer.decision, answer.outcome) == (Decision.CONFLICT, None)
    assert rows(store._url, "SELECT body FROM oncegate_payload") == [(b"first",)]


def test_key_that_was_removed_between_losing_to_it_and_reading_it_is_recorded(
    session: PostgresSession, ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is new after all, and settled like any new one: RUN must never mean that it is in flight."""
    record(session, reservation(1))
    ask = session._query

    def forgotten_first(sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        if sql == statements.KNOWN:
            for table in ("entry", "payload", "outcome", "log"):
                with psycopg.connect(ledger_url) as other:
                    other.execute(f"DELETE FROM oncegate_{table}".encode())
        return ask(sql, parameters)

    monkeypatch.setattr(session, "_query", forgotten_first)
    (answer,) = record(session, reservation(1))

    assert answer.decision is Decision.RUN
    assert left(ledger_url) == [WHOLE]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of our own, before which a proxy can stand."""
    with PostgresServer(in_memory=True) as started:
        yield started


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[Proxy]:
    with Proxy(server.folder) as started:
        yield started


def recorded_together(commits: GroupCommit, wanted: list[Reservation]) -> list[Pending]:
    """Runs reservations as one batch."""
    tickets = [Pending(Record(one)) for one in wanted]
    commits._units.run(tickets, wait=True)
    return tickets


@pytest.mark.slow
@pytest.mark.parametrize("keys", [(1, 1, 1), (1, 2, 1)], ids=["one key", "two keys"])
def test_lost_reply_is_read_back(server: PostgresServer, proxy: Proxy, keys: tuple[int, ...]) -> None:
    """The statement was committed and nobody said so: of equals, the first was new."""
    direct = server.new_database()
    with contextlib.closing(GroupCommit(PostgresStore(proxy.url(direct), clock=ManualClock()))) as commits:
        assert commits.submit(Record(reservation(0))).decision is Decision.RUN
        recorded_together(commits, [reservation(8), reservation(9)])  # the names and statements are known
        proxy.lose_reply(b"SELECT %d\0" % len(set(keys)))
        tickets = recorded_together(commits, [reservation(key) for key in keys])
        again = commits.submit(Record(reservation(1, received_at_ms=1)))

    assert proxy.happened["lost reply"] == 1
    is_first = [key not in keys[:place] for place, key in enumerate(keys)]
    found = [(ticket.result().decision, ticket.result().outcome) for ticket in tickets]
    new, repeated = (Decision.RUN, None), (Decision.REPLAY, OUTCOME)
    assert found == [new if first else repeated for first in is_first]
    assert again.decision is Decision.REPLAY
    assert left(direct) == [WHOLE] * (3 + len(set(keys)))


def test_lost_request_records_nothing_and_says_so(server: PostgresServer, proxy: Proxy) -> None:
    """Nobody is told that an event is on record that is not; the next try records it (I2)."""
    direct = server.new_database()
    with contextlib.closing(GroupCommit(PostgresStore(proxy.url(direct), clock=ManualClock()))) as commits:
        commits.submit(Record(reservation(0)))
        proxy.lose_request(b"to be lost")
        with pytest.raises(StoreUnavailable, match="nothing was changed"):
            commits.submit(Record(reservation(1, body=b"to be lost")))
        assert left(direct) == [WHOLE]
        assert commits.submit(Record(reservation(1))).decision is Decision.RUN
    assert left(direct) == [WHOLE] * 2


def plain_gate(url: str, crashpoints: ArmedCrashPoints | None = None) -> Gate:
    gate = Gate(url, crashpoints=crashpoints)
    gate.handler("plain", key="{id}")(only_record)
    return gate


def admitted(url: str, crashpoints: ArmedCrashPoints | None = None) -> str:
    """Admits one event and tells its verdict."""
    with plain_gate(url, crashpoints) as gate:
        return asyncio.run(gate.admit("plain", {"id": "a"})).verdict.value


@pytest.mark.parametrize("point", ["reserve.before", "commit.before", "commit.after", "settle.after"])
def test_crash_leaves_all_of_it_or_nothing(ledger_url: str, point: str) -> None:
    """Killed at any point on its way, an event is whole or not there; nothing is ever found in flight."""
    code, _ = run_forked(lambda: admitted(ledger_url, ArmedCrashPoints(point)))

    assert code == KILLED
    there = left(ledger_url)
    assert there in ([], [WHOLE])
    assert admitted(ledger_url) == ("replay" if there else "run")
    assert left(ledger_url) == [WHOLE]


@pytest.mark.slow
def test_event_is_one_statement_that_commits_by_itself(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No lease is written and removed again, and nothing comes before or after."""
    sent: list[list[str]] = []
    with plain_gate(ledger_url) as gate:
        asyncio.run(gate.admit("plain", {"id": "first"}))
        exchange = PostgresSession._exchange

        def noted(session: PostgresSession, commands: list[WireCommand]) -> list[Rows]:
            sent.append([command.sql for command in commands])
            return exchange(session, commands)

        monkeypatch.setattr(PostgresSession, "_exchange", noted)
        asyncio.run(gate.admit("plain", {"id": "a"}))
    assert [sqls for sqls in sent if any("oncegate_entry" in sql for sql in sqls)] == [
        [to_numbered(RECORD_ONE)]
    ]
