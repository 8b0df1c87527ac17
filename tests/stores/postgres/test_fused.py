"""A reservation that ends in its own transaction: all is kept, and no entry has no lease (E4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from oncegate.errors import UsageError
from oncegate.model.states import Decision, State
from oncegate.store import Settlement
from oncegate.stores.postgres import PostgresStore
from oncegate.stores.postgres.session import PostgresSession
from tests.support.postgres_site import reservation, settlement

KEY = 7
OUTCOME = b'{"slot":"A-1"}'


@pytest.fixture
def session(ledger_url: str) -> Iterator[PostgresSession]:
    opened = PostgresStore(ledger_url).connect()
    yield opened
    opened.close()


def kept(url: str, table: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(f"SELECT * FROM oncegate_{table}".encode()).fetchall()


def undone(session: PostgresSession, *, fence_off_by: int | None = None) -> None:
    """Reserves and leaves the unit with an error, after an end under another fence if one is given."""
    with session.unit():
        (reserved,) = session.reserve([reservation(KEY, ends_here=True)])
        if fence_off_by is not None:
            end = settlement(replace(reserved, fence=reserved.fence + fence_off_by), outcome=OUTCOME)
            assert session.settle([end], last=True) == [False]
        raise ZeroDivisionError


def ended_by_hand(session: PostgresSession, *statements: str) -> None:
    with session.unit():
        session.reserve([reservation(KEY, ends_here=True)])
        for statement in statements:
            session.execute(statement, ())


@pytest.mark.parametrize("writes", [(), (("SELECT 1", ()),)], ids=["alone", "with a business write"])
def test_a_good_end_keeps_all_that_two_transactions_would(
    session: PostgresSession, ledger_url: str, writes: Any
) -> None:
    # When a key is reserved and settled in one transaction
    with session.unit():
        (reserved,) = session.reserve([reservation(KEY, ends_here=True, body=b"event")])
        end = settlement(reserved, outcome=OUTCOME, writes=writes)
        assert session.settle([end], last=True) == [True]
    # Then entry, payload, outcome and one record are there, and no lease
    with session.unit():
        detail = session.detail(reserved.entry_id)
    assert detail is not None
    assert (detail.entry.state, detail.outcome) == (State.COMMITTED, OUTCOME)
    assert detail.body == b"event"
    assert [record.kind.name for record in detail.records] == ["COMMITTED"]
    assert kept(ledger_url, "open") == []
    # And a second arrival is a replay
    with session.unit():
        (again,) = session.reserve([reservation(KEY, ends_here=True)])
    assert again.decision is Decision.REPLAY


@pytest.mark.parametrize("state", [State.HELD, State.RETRYABLE, State.FAILED])
def test_another_end_keeps_what_it_needs(session: PostgresSession, ledger_url: str, state: State) -> None:
    with session.unit():
        (reserved,) = session.reserve([reservation(KEY, ends_here=True)])
        end = Settlement(*reserved.claim, state, 1, "gate", reason="so")
        assert session.settle([end]) == [True]
    assert [row[1] for row in kept(ledger_url, "open")] == ([] if state is State.FAILED else [state.value])
    assert len(kept(ledger_url, "payload")) == 1


def test_a_commit_without_an_end_leaves_a_lease(session: PostgresSession, ledger_url: str) -> None:
    with session.unit():
        (reserved,) = session.reserve([reservation(KEY, ends_here=True, token=99)])
    assert [row[:2] for row in kept(ledger_url, "open")] == [(reserved.entry_id, 1)]
    assert [row[-1] for row in kept(ledger_url, "entry")] == [99]
    assert len(kept(ledger_url, "payload")) == 1


@pytest.mark.parametrize(("ending", "left"), [("COMMIT", 1), ("ROLLBACK", 0)])
def test_a_handler_that_ends_the_transaction_itself_leaves_no_entry_without_a_lease(
    session: PostgresSession, ledger_url: str, ending: str, left: int
) -> None:
    with pytest.raises(UsageError, match="leave COMMIT and ROLLBACK to the gate"):
        ended_by_hand(session, ending)
    assert [len(kept(ledger_url, table)) for table in ("entry", "open", "payload")] == [left] * 3


def test_an_entry_that_has_ended_when_the_transaction_is_ended_by_hand_gets_no_lease(
    session: PostgresSession, ledger_url: str
) -> None:
    """Or it would be open for ever: whoever looks for what is open would find it again and again."""
    with pytest.raises(UsageError):
        ended_by_hand(session, "UPDATE oncegate_entry SET state = 5", "COMMIT")
    assert [len(kept(ledger_url, table)) for table in ("entry", "open", "payload")] == [1, 0, 0]


def test_an_undone_transaction_leaves_nothing_to_the_next(
    session: PostgresSession, ledger_url: str
) -> None:
    with pytest.raises(ZeroDivisionError):
        undone(session)
    with session.unit():
        session.reserve([reservation(KEY + 1)])
    assert len(kept(ledger_url, "entry")) == 1
    assert len(kept(ledger_url, "open")) == 1


def test_a_lost_fence_undoes_everything(session: PostgresSession, ledger_url: str) -> None:
    with pytest.raises(ZeroDivisionError):
        undone(session, fence_off_by=1)
    assert kept(ledger_url, "entry") == kept(ledger_url, "outcome") == []
