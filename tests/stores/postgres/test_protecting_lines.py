"""Lines of the PostgreSQL store that no other test missed when `make mutate` took them out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace
from psycopg.errors import DeadlockDetected

from oncegate.errors import StoreBusy, StoreRejected
from oncegate.model.states import Decision, State
from oncegate.store.feed import EventToPublish, FeedAck, FeedWanted
from oncegate.stores.postgres import PostgresStore, statements
from oncegate.stores.postgres.claims import CONTENDED_TRIES_MAX
from oncegate.stores.postgres.session import PostgresSession
from tests.support.postgres_site import finish, reservation, settlement

_TENANT_IS_FREE = "SELECT tenant FROM oncegate_feed_tenant FOR UPDATE NOWAIT"
_TURN_IS_FREE = "SELECT pg_try_advisory_xact_lock(x'6F6E636567617465'::bigint)"


@pytest.fixture
def session(ledger_url: str) -> Iterator[PostgresSession]:
    with contextlib.closing(PostgresStore(ledger_url).connect()) as opened:
        for name in ("e-1", "e-2"):  # the first is read already, the second has no position yet
            with opened.unit():
                opened.read_feed(FeedWanted("acme", "reader", 0, 10))
                opened.publish([EventToPublish("acme", name, "k", b"{}", name.encode(), 1)])
        yield opened


def feed_is_held(url: str) -> bool:
    """Whether somebody holds the end of the tenant's feed."""
    with psycopg.connect(url) as other:
        try:
            other.execute(_TENANT_IS_FREE).fetchall()
        except psycopg.errors.LockNotAvailable:
            return True
        return False


def turn_is_taken(url: str) -> bool:
    with psycopg.connect(url) as other:
        row = other.execute(_TURN_IS_FREE).fetchone()
        return row is not None and not row[0]


def test_whoever_numbers_events_holds_the_feed_until_that_is_committed(
    session: PostgresSession, ledger_url: str
) -> None:
    """Two readers that number at once would give one position to two events (I12)."""
    with session.unit(single=True):
        session.read_feed(FeedWanted("acme", "reader", 0, 10))
        held = feed_is_held(ledger_url)

    assert held
    with session.unit(single=True):
        session.read_feed(FeedWanted("acme", "reader", 0, 10))
        assert not feed_is_held(ledger_url), "there is nothing to number"


def test_whoever_forgets_events_holds_the_feeds_until_that_is_committed(
    session: PostgresSession, ledger_url: str
) -> None:
    with session.unit(single=True):
        session.forget_published(10, 10)
        held = feed_is_held(ledger_url)

    assert held
    assert not feed_is_held(ledger_url)


def test_acknowledgement_in_a_unit_that_is_undone_is_undone(session: PostgresSession) -> None:
    """Or a reader would be past what it has not done."""
    with contextlib.suppress(ZeroDivisionError), session.unit(single=True):
        session.ack_feed([FeedAck("acme", "reader", 1, 1)])
        raise ZeroDivisionError

    with session.unit():
        assert session.read_feed(FeedWanted("acme", "reader", None, 10)).after == 0


def test_whoever_tries_again_after_a_deadlock_is_alone_in_doing_so(
    session: PostgresSession, ledger_url: str
) -> None:
    """The first try waits for nobody; each further one has the turn until it has ended, and begins anew."""
    taken: list[bool] = []

    def work() -> str:
        taken.append(turn_is_taken(ledger_url))
        if len(taken) > 1:  # the first is no transaction yet
            session._query("INSERT INTO oncegate_meta (name, value) VALUES ('work', 'done')", ())
        if len(taken) < CONTENDED_TRIES_MAX:
            raise StoreBusy("deadlock") from DeadlockDetected()
        return "done"

    with session.unit(single=True):
        assert session._contended(1, work) == "done"

    assert taken == [False, *[True] * (CONTENDED_TRIES_MAX - 1)]
    assert not turn_is_taken(ledger_url)


def test_key_that_was_removed_between_losing_to_it_and_reading_it_is_new(
    session: PostgresSession, ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker forgets an old key while a late repeat of it arrives: it is judged as new, at once."""
    with session.unit():
        finish(session, 1)
    ask = session._query

    def forgotten_first(sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        if sql == statements.KNOWN:
            with psycopg.connect(ledger_url) as other:
                other.execute("DELETE FROM oncegate_entry")
        return ask(sql, parameters)

    monkeypatch.setattr(session, "_query", forgotten_first)
    with session.unit(single=True):
        (answer,) = session.reserve([reservation(1)])

    assert answer.decision is Decision.RUN


def test_publication_in_a_unit_that_is_undone_is_undone(session: PostgresSession) -> None:
    with contextlib.suppress(ZeroDivisionError), session.unit(single=True):
        session.publish([EventToPublish("acme", "e-3", "k", b"{}", b"print", 1)])
        raise ZeroDivisionError

    with session.unit():
        assert session.find_published("acme", "e-3") is None


def test_batch_whose_writes_are_in_the_way_is_tried_once(session: PostgresSession) -> None:
    """Its events are run apart, so that one pair of rows does not hold up all the others."""
    tries: list[None] = []

    def work() -> None:
        tries.append(None)
        raise StoreBusy("deadlock") from DeadlockDetected()

    with pytest.raises(StoreBusy), session.unit(single=True):
        session._contended(2, work)

    assert len(tries) == 1


def test_batch_whose_claims_are_settled_one_by_one_is_still_one_transaction(
    session: PostgresSession, ledger_url: str
) -> None:
    """I16: one lost its fence, so each is taken by itself; one's write fails, and none of them stands."""
    # Given three claims, and a table that takes each name once
    with psycopg.connect(ledger_url) as other:
        other.execute("CREATE TABLE seat (name text PRIMARY KEY)")
        other.execute("INSERT INTO seat VALUES ('taken')")
    with session.unit():
        first, lost, last = session.reserve([reservation(key) for key in (1, 2, 3)])
    write = "INSERT INTO seat VALUES (%s)"
    batch = [
        replace(settlement(first), writes=((write, ("free",)),)),
        replace(settlement(replace(lost, fence=lost.fence + 7)), writes=((write, ("nobody's",)),)),
        replace(settlement(last), writes=((write, ("taken",)),)),
    ]
    # When the last one's write is refused
    with pytest.raises(StoreRejected), session.unit(single=True):
        session.settle(batch)
    # Then the first is not settled either, and its write is gone
    with session.unit():
        assert [entry and entry.state for entry in session.read([reservation(1).key])] == [State.IN_FLIGHT]
        assert session.execute("SELECT name FROM seat", ()) == [("taken",)]
