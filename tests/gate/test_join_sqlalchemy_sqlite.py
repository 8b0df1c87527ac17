"""Joining SQLAlchemy's and Django's on an embedded ledger: the sqlite3 connection behind them."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from oncegate import ClaimLost, UsageError, Verdict
from tests.gate.join_kinds import django_on_sqlite
from tests.support.gates import Ledger, Style

EVENT = {"id": "N-1", "equipment": "MSKU1234565"}
BOOKED = [("MSKU1234565", "s-1")]
BOOK = sqlalchemy.text("INSERT INTO bookings (equipment, slot) VALUES (:equipment, 's-1')")

Opener = Callable[..., contextlib.AbstractContextManager[Any]]


class Undo(Exception):
    """Makes a user's block roll back."""


def engine_on(path: Path | str, **options: Any) -> sqlalchemy.Engine:
    return sqlalchemy.create_engine(f"sqlite:///{path}", poolclass=NullPool, **options)


@contextlib.contextmanager
def session_on(path: Path, begin: bool = True) -> Iterator[Session]:
    with contextlib.ExitStack() as stack:
        session = stack.enter_context(contextlib.closing(Session(engine_on(path))))
        if begin:
            stack.enter_context(session.begin())
        yield session


@contextlib.contextmanager
def connection_on(path: Path, begin: bool = True) -> Iterator[sqlalchemy.Connection]:
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(engine_on(path).connect())
        if begin:
            stack.enter_context(connection.begin())
        yield connection


@contextlib.contextmanager
def scoped_on(path: Path, begin: bool = True) -> Iterator[Any]:
    scoped = scoped_session(sessionmaker(engine_on(path)))
    try:
        with scoped.begin() if begin else contextlib.nullcontext():
            yield scoped
    finally:
        scoped.remove()


@pytest.fixture(params=[session_on, connection_on, scoped_on], ids=["session", "connection", "scoped"])
def opened(request: pytest.FixtureRequest) -> Opener:
    """Every way to hold a transaction."""
    chosen: Opener = request.param
    return chosen


@pytest.mark.parametrize("writes_first", [True, False])
def test_the_users_commit_commits_the_outcome(
    booked_ledger: Ledger, style: Style, opened: Opener, writes_first: bool
) -> None:
    """sqlite3 begins with the first write, whoever makes it; nothing shows before the commit."""
    gate, before = booked_ledger.gate(), []

    def body(event, once):
        with opened(booked_ledger.path) as tx:
            if writes_first:
                tx.execute(BOOK, {"equipment": event["equipment"]})
            once.commit(tx=tx, resource="s-1")
            if not writes_first:
                tx.execute(BOOK, {"equipment": event["equipment"]})
            before.append((booked_ledger.bookings(), booked_ledger.state()))
        return "booked"

    style.register(gate, "bookings", body)
    answer = style.admit(gate, "bookings", EVENT)
    assert (answer.verdict, answer.value, answer.resource) == (Verdict.RUN, "booked", "s-1")
    assert before == [([], "in_flight")]
    assert (booked_ledger.bookings(), booked_ledger.state()) == (BOOKED, "committed")


def test_the_users_rollback_takes_the_outcome_with_it(
    booked_ledger: Ledger, style: Style, opened: Opener
) -> None:
    gate = booked_ledger.gate()

    def body(event, once):
        with opened(booked_ledger.path) as tx:
            tx.execute(BOOK, {"equipment": event["equipment"]})
            once.commit(tx=tx)
            raise Undo

    style.register(gate, "bookings", body)
    with pytest.raises(Undo):
        style.admit(gate, "bookings", EVENT)
    assert (booked_ledger.bookings(), booked_ledger.state()) == ([], "retryable")


def test_without_a_transaction_there_is_nothing_to_join(
    booked_ledger: Ledger, style: Style, opened: Opener
) -> None:
    gate = booked_ledger.gate()

    def body(event, once):
        with opened(booked_ledger.path, begin=False) as tx:
            once.commit(tx=tx)

    style.register(gate, "bookings", body)
    with pytest.raises(UsageError, match=r"no transaction open; use it inside `with"):
        style.admit(gate, "bookings", EVENT)


def test_another_file_is_refused(
    booked_ledger: Ledger, style: Style, opened: Opener, tmp_path: Path
) -> None:
    gate = booked_ledger.gate()

    def body(event, once):
        with opened(tmp_path / "other.db") as tx:
            once.commit(tx=tx)

    style.register(gate, "bookings", body)
    with pytest.raises(UsageError, match="another database"):
        style.admit(gate, "bookings", EVENT)


def test_a_lost_claim_raises_inside_the_users_transaction(
    booked_ledger: Ledger, style: Style, opened: Opener
) -> None:
    gate, other = booked_ledger.gate(), booked_ledger.gate()
    Style("plain").register(other, "bookings", lambda event, once: "by the other")

    def body(event, once):
        booked_ledger.lapse()
        assert other.admit_sync("bookings", EVENT).value == "by the other"
        with opened(booked_ledger.path) as tx:
            tx.execute(BOOK, {"equipment": event["equipment"]})
            once.commit(tx=tx)

    style.register(gate, "bookings", body)
    with pytest.raises(ClaimLost):
        style.admit(gate, "bookings", EVENT)
    assert booked_ledger.bookings() == []


def test_admitting_in_the_callers_transaction(booked_ledger: Ledger, opened: Opener) -> None:
    """E4: reservation, mutation and outcome are one commit, the caller's."""
    style = Style("plain")
    for expected in (Verdict.RUN, Verdict.REPLAY):
        gate = booked_ledger.gate()
        with opened(booked_ledger.path) as tx:

            def body(event, once, tx=tx):
                tx.execute(BOOK, {"equipment": event["equipment"]})
                return "booked"

            style.register(gate, "bookings", body, same_database=True)
            answer = style.admit(gate, "bookings", EVENT, tx=tx)
            assert (answer.verdict, answer.value) == (expected, "booked")
    assert (booked_ledger.bookings(), booked_ledger.state()) == (BOOKED, "committed")


def test_an_engine_that_commits_every_statement_is_refused(booked_ledger: Ledger) -> None:
    """SQLAlchemy calls it a transaction, the database does not."""
    gate = booked_ledger.gate()
    engine = engine_on(booked_ledger.path, isolation_level="AUTOCOMMIT")

    def body(event, once):
        with engine.begin() as tx:
            once.commit(tx=tx)

    Style("plain").register(gate, "bookings", body)
    with pytest.raises(UsageError, match="no transaction open"):
        gate.admit_sync("bookings", EVENT)


@pytest.mark.parametrize("undo", [False, True], ids=["committed", "rolled back"])
def test_djangos_transaction_is_joined(booked_ledger: Ledger, undo: bool) -> None:
    """`transaction.atomic()` on the ledger's own file."""
    gate, connection = booked_ledger.gate(), django_on_sqlite(booked_ledger.path)
    transaction: Any = importlib.import_module("django.db.transaction")

    def body(event, once):
        with transaction.atomic(using=connection.alias):
            with connection.cursor() as cursor:
                cursor.execute("INSERT INTO bookings VALUES (%s, 's-1')", [event["equipment"]])
            once.commit(tx=connection)
            if undo:
                raise Undo

    Style("plain").register(gate, "bookings", body)
    with pytest.raises(Undo) if undo else contextlib.nullcontext():
        gate.admit_sync("bookings", EVENT)
    connection.close()
    expected = ([], "retryable") if undo else (BOOKED, "committed")
    assert (booked_ledger.bookings(), booked_ledger.state()) == expected
