"""The feed on PostgreSQL misses no late commit, waits for nobody, keeps each key's order (C5, I12)."""

from __future__ import annotations

import contextlib
import random
import threading

import psycopg
import pytest

from oncegate.store.feed import EventToPublish, FeedEvent, FeedWanted, Published
from oncegate.stores.postgres import PostgresStore
from oncegate.stores.postgres.session import PostgresSession
from oncegate.testing.waiting import DEADLINE_SECONDS

WRITERS, TURNS = 5, 30
NAIVE = "SELECT id, event_id FROM oncegate_feed WHERE id > %s ORDER BY id LIMIT 7"


class Undo(Exception):
    """Rolls a writer's transaction back."""


@pytest.fixture
def store(ledger_url: str) -> PostgresStore:
    return PostgresStore(ledger_url)


def event(event_id: str, key: str = "k") -> EventToPublish:
    return EventToPublish("acme", event_id, key, b"{}", event_id.encode(), 0)


def read(session: PostgresSession, after: int, limit: int = 7) -> list[FeedEvent]:
    with session.unit():
        return list(session.read_feed(FeedWanted("acme", "r", after, limit)).events)


def test_an_open_transaction_holds_nobody_back_and_is_not_skipped(store: PostgresStore) -> None:
    """What commits later comes later, however early it was written."""
    with contextlib.ExitStack() as stack:
        slow, quick, reader = (stack.enter_context(contextlib.closing(store.connect())) for _ in range(3))
        with slow.unit():
            slow.publish([event("slow", "a")])
            with quick.unit():
                quick.publish([event("quick", "b")])
            before = read(reader, 0)
        after = read(reader, before[-1].position)

    assert [one.event_id for one in before] == ["quick"]
    assert [one.event_id for one in after] == ["slow"]


def test_a_transaction_that_began_early_does_not_turn_a_key_around(store: PostgresStore) -> None:
    """Seq and position agree although the transaction with the lower number publishes second."""
    with contextlib.ExitStack() as stack:
        early, late, reader = (stack.enter_context(contextlib.closing(store.connect())) for _ in range(3))
        with early.unit():
            early.publish([event("first of another key", "other")])
            with late.unit():
                late.publish([event("one")])
            early.publish([event("two")])
        seen = read(reader, 0)

    assert [one.seq for one in seen if one.key == "k"] == [1, 2]


class Followers:
    """Readers while the feed is written: two of ours, which number at once, and one that compares ids."""

    def __init__(self, store: PostgresStore, url: str) -> None:
        self.seen: list[list[FeedEvent]] = [[], []]
        self.naive: list[str] = []
        self._store, self._url, self._stop = store, url, threading.Event()
        works = [lambda: self._follow(self.seen[0]), lambda: self._follow(self.seen[1]), self._compare]
        self._threads = [threading.Thread(target=work, daemon=True) for work in works]

    def __enter__(self) -> Followers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(DEADLINE_SECONDS)
            assert not thread.is_alive()

    def _follow(self, seen: list[FeedEvent]) -> None:
        with contextlib.closing(self._store.connect()) as session:
            while True:
                last_look = self._stop.is_set()
                more = read(session, seen[-1].position if seen else 0)
                seen += more
                if last_look and not more:
                    return

    def _compare(self) -> None:
        last = 0
        with psycopg.connect(self._url, autocommit=True) as connection:
            while True:
                last_look = self._stop.is_set()
                more = connection.execute(NAIVE, (last,)).fetchall()
                self.naive += [event_id for _, event_id in more]
                last = more[-1][0] if more else last
                if last_look and not more:
                    return


def write(store: PostgresStore, number: int, committed: list[str]) -> None:
    """One of many writers: some transactions are undone, some wait a moment before they commit."""
    choose = random.Random(number)
    with contextlib.closing(store.connect()) as session:
        for turn in range(TURNS):
            ids, fate = [f"{number}-{turn}-{place}" for place in range(2)], choose.random()
            with contextlib.suppress(Undo), session.unit():
                session.publish([event(one, choose.choice("abcdef")) for one in ids])
                if fate < 0.3:
                    session.execute("SELECT pg_sleep(0.004)", ())
                elif fate < 0.5:
                    raise Undo
                committed += ids


@pytest.mark.slow
def test_readers_see_every_committed_event_once_where_a_naive_one_does_not(
    store: PostgresStore, ledger_url: str
) -> None:
    """Concurrent writers, roll-backs, pauses before commits; both our readers see the same order."""
    committed: list[list[str]] = [[] for _ in range(WRITERS)]
    with Followers(store, ledger_url) as followers:
        threads = [
            threading.Thread(target=write, args=(store, number, committed[number]))
            for number in range(WRITERS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * DEADLINE_SECONDS)

    wanted = sorted(one for ids in committed for one in ids)
    first, second = followers.seen
    assert sorted(one.event_id for one in first) == wanted
    assert first == second
    assert [one.position for one in first] == list(range(1, len(wanted) + 1))
    for key in "abcdef":
        counted = [one.seq for one in first if one.key == key]
        assert counted == list(range(1, len(counted) + 1))
    assert len(followers.naive) < len(wanted), "the naive reader was lucky: this run shows nothing"


def publish_into(session: PostgresSession, name: str, answers: list[Published]) -> None:
    with session.unit():
        answers += session.publish([event(name, "k2")])


def test_one_id_published_by_two_at_once_is_one_event(store: PostgresStore) -> None:
    """The second waits for the first, and finds it; if the first is undone, the second's counts."""
    for undone in (False, True):
        name = f"same-{undone}"
        with contextlib.ExitStack() as stack:
            one, two, reader = (stack.enter_context(contextlib.closing(store.connect())) for _ in range(3))
            answers: list[Published] = []
            thread = threading.Thread(target=publish_into, args=(two, name, answers))
            with contextlib.suppress(Undo), one.unit():
                one.publish([event(name, "k1")])
                thread.start()
                if undone:
                    raise Undo
            thread.join(DEADLINE_SECONDS)
            seen = [found.event_id for found in read(reader, 0, 100)]

        assert seen.count(name) == 1
        assert answers[0].publishing.value == ("new" if undone else "known")
