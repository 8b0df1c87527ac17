"""The log on PostgreSQL is read in an order that never changes and misses no late commit (I12)."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterator

import psycopg
import pytest

from oncegate.store import LogRecord
from oncegate.stores.postgres import PostgresStore
from oncegate.testing.postgres import GivenServer, PostgresServer
from oncegate.testing.waiting import DEADLINE_SECONDS, wait_until
from tests.support.postgres_site import finish, whole_log

WRITERS, TURNS, LONG = 6, 40, 5
NAIVE = "SELECT position, entry FROM oncegate_log WHERE position > %s ORDER BY position LIMIT 7"


class Undo(Exception):
    """Rolls a writer's transaction back."""


@pytest.fixture
def store(ledger_url: str) -> PostgresStore:
    return PostgresStore(ledger_url)


class Followers:
    """Two readers of the same log while it is written: ours, and one that only compares numbers."""

    def __init__(self, store: PostgresStore, url: str) -> None:
        self.seen: list[LogRecord] = []
        self.naive: list[int] = []
        self.naive_last = 0
        self._store = store
        self._url = url
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._follow, self._compare)
        ]

    def __enter__(self) -> Followers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(DEADLINE_SECONDS)
            assert not thread.is_alive()

    def _follow(self) -> None:
        with contextlib.closing(self._store.connect()) as session:
            while True:
                last_look = self._stop.is_set()
                with session.unit():
                    more = session.read_log(self.seen[-1].position if self.seen else 0, 7)
                self.seen += more
                if last_look and not more:
                    return

    def _compare(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            while True:
                last_look = self._stop.is_set()
                more = connection.execute(NAIVE, (self.naive_last,)).fetchall()
                self.naive += [entry for _, entry in more]
                self.naive_last = more[-1][0] if more else self.naive_last
                if last_look and not more:
                    return


def write(store: PostgresStore, number: int, committed: list[int]) -> None:
    """One of many writers: some transactions are rolled back, some wait a moment before they commit."""
    choose = random.Random(number)
    with contextlib.closing(store.connect()) as session:
        for turn in range(TURNS):
            fate, entries = choose.random(), []
            with contextlib.suppress(Undo), session.unit():
                entries = [finish(session, number * 1000 + turn * 3 + place) for place in range(3)]
                if fate < 0.2:
                    session.execute("SELECT pg_sleep(0.003)", ())
                elif fate < 0.4:
                    entries = []
                    raise Undo
            committed += entries


@contextlib.contextmanager
def long_writer(store: PostgresStore, key: int, may_commit: Callable[[], object]) -> Iterator[list[int]]:
    """A writer whose transaction stays open until others have written, and been read, past its record."""
    entries: list[int] = []
    written = threading.Event()

    def work() -> None:
        with contextlib.closing(store.connect()) as session:
            with session.unit():
                entry = finish(session, key)
                written.set()
                wait_until(may_commit, what="a reader that has gone past")
            entries.append(entry)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert written.wait(DEADLINE_SECONDS)
    yield entries
    thread.join(DEADLINE_SECONDS)
    assert not thread.is_alive()


@pytest.mark.slow
def test_follower_sees_every_committed_record_once_where_a_naive_one_does_not(
    store: PostgresStore, postgres: PostgresServer | GivenServer
) -> None:
    """Many writers, long transactions and rollbacks: `position >` skips late commits, ours does not."""
    store.connect().close()
    committed: list[int] = []
    with Followers(store, store._url) as readers, contextlib.ExitStack() as stack:
        # Given transactions that wrote their records early and commit late
        late = [
            stack.enter_context(
                long_writer(store, 900_000 + number, lambda: len(readers.naive) > 3 * WRITERS)
            )
            for number in range(LONG)
        ]
        # When many others write, wait and roll back meanwhile
        threads = [
            threading.Thread(target=write, args=(store, number + 1, committed), daemon=True)
            for number in range(WRITERS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * DEADLINE_SECONDS)
            assert not thread.is_alive()
        stack.close()
        committed += [entry for entries in late for entry in entries]
    # Then the follower has every committed record once, in the order in which anybody finds it later
    with contextlib.closing(store.connect()) as session, session.unit():
        again = whole_log(session)
    assert len(late) == LONG
    assert sorted(record.entry_id for record in readers.seen) == sorted(committed)
    assert readers.seen == again
    assert [record.position for record in again] == sorted({record.position for record in again})
    # And the naive reader of the same run does not
    assert sorted(readers.naive) != sorted(committed)
    assert len(set(committed) - set(readers.naive)) >= LONG


def test_follower_waits_for_a_transaction_that_may_still_commit(store: PostgresStore) -> None:
    """A record behind an open transaction is not shown before that one has ended, either way."""
    with contextlib.ExitStack() as stack:
        early, late, reader = (stack.enter_context(contextlib.closing(store.connect())) for _ in range(3))
        for undone in (True, False):
            # Given an open transaction with a record, and a later one that is committed
            before = _entries(reader)
            with contextlib.suppress(Undo), early.unit():
                first = finish(early, 10 + undone)
                with late.unit():
                    second = finish(late, 20 + undone)
                # When the log is read, then neither is there
                assert _entries(reader) == before
                if undone:
                    raise Undo
            # And afterwards all that was committed is, the earlier transaction first
            assert _entries(reader) == [*before, *([] if undone else [first]), second]


def _entries(session: object) -> list[int]:
    with session.unit():  # type: ignore[attr-defined]
        return [record.entry_id for record in whole_log(session, step=1)]  # type: ignore[arg-type]


def test_positions_grow_within_one_transaction(store: PostgresStore) -> None:
    """The records of one batch come in the order of the batch, also when read one at a time."""
    with contextlib.closing(store.connect()) as session:
        with session.unit():
            entries = [finish(session, key) for key in range(50)]
        assert _entries(session) == entries
