"""Joining the user's own sqlite3 connection: their commit is the commit of the outcome."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oncegate import ClaimLost, UsageError, Verdict
from tests.support.gates import BOOK, Ledger, Style, Terminal

EVENT = {"id": "N-1", "equipment": "MSKU1234565"}
BOOKED = [("MSKU1234565", "s-1")]

Open = Callable[..., sqlite3.Connection]


@pytest.fixture
def connect(booked_ledger: Ledger) -> Iterator[Open]:
    """Opens connections of the user's own, closed afterwards."""
    with contextlib.ExitStack() as opened:

        def open_connection(path: Path | str | None = None) -> sqlite3.Connection:
            connection = sqlite3.connect(path or booked_ledger.path, check_same_thread=False)
            return opened.enter_context(contextlib.closing(connection))

        yield open_connection


def test_the_users_commit_commits_the_outcome(booked_ledger: Ledger, style: Style, connect: Open) -> None:
    """A5: one transaction, on the user's own connection."""
    # Given a handler that books and settles on a connection of its own
    gate, before = booked_ledger.gate(), []

    def body(event, once):
        connection = connect()
        with connection:
            connection.execute(BOOK, (event["equipment"], "s-1"))
            once.commit(tx=connection, resource="s-1")
            before.append((booked_ledger.bookings(), booked_ledger.state()))
        return "booked"

    style.register(gate, "bookings", body)
    # When it is admitted
    answer = style.admit(gate, "bookings", EVENT)
    # Then both became visible with the user's commit, and the value was attached after it
    assert before == [([], "in_flight")]
    assert (booked_ledger.bookings(), booked_ledger.state()) == (BOOKED, "committed")
    assert (answer.verdict, answer.value, answer.resource) == (Verdict.RUN, "booked", "s-1")
    fresh = booked_ledger.gate()
    style.register(fresh, "bookings", body)
    replay = style.admit(fresh, "bookings", EVENT)
    assert (replay.verdict, replay.value, replay.resource) == (Verdict.REPLAY, "booked", "s-1")


@pytest.mark.parametrize("commits", [True, False], ids=["commits", "rolls back"])
def test_another_content_is_kept_in_the_callers_transaction(
    booked_ledger: Ledger, style: Style, connect: Open, commits: bool
) -> None:
    """Kept if they commit, and once; rolled back nothing is, and a repeat brings it again."""
    gate, caller = booked_ledger.gate(), connect()
    style.register(gate, "bookings", lambda event, once: "booked", same_database=True)

    def admit(event: dict[str, Any]) -> Verdict:
        caller.execute("BEGIN IMMEDIATE")
        verdict = style.admit(gate, "bookings", event, tx=caller).verdict
        caller.execute("COMMIT" if commits or event is EVENT else "ROLLBACK")
        return verdict

    admit(EVENT)
    assert [admit({**EVENT, "x": 1}) for _ in range(2)] == [Verdict.CONFLICT] * 2
    assert booked_ledger.states() == ["committed", "quarantined"][: 1 + commits]


def test_an_outcome_and_writes_given_to_the_join_are_in_the_users_transaction(
    booked_ledger: Ledger, style: Style, connect: Open
) -> None:
    """Everything that belongs to the outcome goes into the same commit."""
    gate = booked_ledger.gate()

    def body(event, once):
        connection = connect()
        connection.execute(BOOK, ("A", "by hand"))
        once.commit(tx=connection, outcome={"slot": "s-1"}, writes=[(BOOK, ("B", "as data"))])
        connection.commit()
        return "ignored"

    style.register(gate, "bookings", body)
    assert style.admit(gate, "bookings", EVENT).value == {"slot": "s-1"}
    assert booked_ledger.bookings() == [("A", "by hand"), ("B", "as data")]


def test_a_rolled_back_transaction_takes_the_outcome_with_it(
    booked_ledger: Ledger, style: Style, connect: Open
) -> None:
    """The user's rollback undoes the settlement too, and the gate says so instead of answering."""
    gate, rolls_back = booked_ledger.gate(), [True]

    def body(event, once):
        connection = connect()
        connection.execute(BOOK, (event["equipment"], "s-1"))
        once.commit(tx=connection)
        if rolls_back:
            rolls_back.pop()
            connection.rollback()
        else:
            connection.commit()
        return "booked"

    style.register(gate, "bookings", body)
    with pytest.raises(UsageError, match=r"before the transaction given to once\.commit"):
        style.admit(gate, "bookings", EVENT)
    assert (booked_ledger.bookings(), booked_ledger.state()) == ([], "retryable")
    # And the next attempt may do it
    assert style.admit(gate, "bookings", EVENT).value == "booked"
    assert booked_ledger.bookings() == BOOKED


def test_an_error_inside_the_users_transaction_is_recorded_as_a_failure(
    booked_ledger: Ledger, style: Style, connect: Open
) -> None:
    """`with connection:` rolls back on the way out; the gate then records the handler's error."""
    gate = booked_ledger.gate()

    def body(event, once):
        connection = connect()
        with connection:
            connection.execute(BOOK, (event["equipment"], "s-1"))
            once.commit(tx=connection)
            raise RuntimeError("no luck")

    style.register(gate, "bookings", body)
    with pytest.raises(RuntimeError):
        style.admit(gate, "bookings", EVENT)
    assert (booked_ledger.bookings(), booked_ledger.state()) == ([], "retryable")


def test_returning_with_the_transaction_still_open_is_a_usage_error(
    booked_ledger: Ledger, style: Style, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer would be given before anything is durable (I3); the handler is told what it forgot."""
    # The failure is recorded too, if the forgotten transaction lets it: that is waited for, here briefly
    for module in ("files", "session"):
        monkeypatch.setattr(f"oncegate.stores.sqlite.{module}.BUSY_WAIT_MS", 20)
    gate = booked_ledger.gate()

    def body(event, once):
        connection = connect()
        connection.execute(BOOK, (event["equipment"], "s-1"))
        once.commit(tx=connection)
        return "booked"

    style.register(gate, "bookings", body)
    with pytest.raises(UsageError, match="commit it inside the handler"):
        style.admit(gate, "bookings", EVENT)


def test_a_connection_without_a_transaction_is_refused(
    booked_ledger: Ledger, style: Style, connect: Open
) -> None:
    """Nothing to join: each statement would commit by itself."""
    gate = booked_ledger.gate()

    def body(event, once):
        once.commit(tx=connect())

    style.register(gate, "bookings", body)
    with pytest.raises(UsageError, match="no transaction open"):
        style.admit(gate, "bookings", EVENT)
    assert booked_ledger.state() == "retryable"


def test_a_connection_to_another_file_is_refused(
    booked_ledger: Ledger, style: Style, connect: Open, tmp_path: Path
) -> None:
    """Two files are two commits; nothing could make them one."""
    gate = booked_ledger.gate()

    def body(event, once):
        connection = connect(tmp_path / "other.db")
        connection.execute("BEGIN IMMEDIATE")
        once.commit(tx=connection)

    style.register(gate, "bookings", body)
    with pytest.raises(UsageError, match="another database"):
        style.admit(gate, "bookings", EVENT)


def joined_with(ledger: Ledger, style: Style, connect: Open, level: str, promised: str) -> str:
    """Joins a connection of that level on a ledger that promises another; returns the entry's state."""
    ledger.url += f"?synchronous={promised}"
    gate = ledger.gate()

    def body(event, once):
        connection = connect()
        connection.row_factory = sqlite3.Row
        connection.execute(f"PRAGMA synchronous = {level}")
        with connection:
            connection.execute(BOOK, (event["equipment"], "s-1"))
            once.commit(tx=connection, outcome="booked")

    style.register(gate, "bookings", body)
    style.admit(gate, "bookings", EVENT)
    return ledger.state()


@pytest.mark.parametrize(
    ("level", "promised"), [("OFF", "FULL"), ("NORMAL", "FULL"), ("NORMAL", "EXTRA"), ("OFF", "NORMAL")]
)
def test_a_connection_less_durable_than_the_ledger_is_refused(
    booked_ledger: Ledger, style: Style, connect: Open, level: str, promised: str
) -> None:
    """I3: its commit would be the outcome's, and could be lost after the answer was given."""
    with pytest.raises(UsageError, match=f"synchronous={level}.*PRAGMA synchronous = {promised}"):
        joined_with(booked_ledger, style, connect, level, promised)

    assert booked_ledger.bookings() == []
    assert booked_ledger.state() != "committed"


@pytest.mark.parametrize(
    ("level", "promised"), [("FULL", "FULL"), ("EXTRA", "FULL"), ("FULL", "EXTRA"), ("NORMAL", "NORMAL")]
)
def test_a_connection_as_durable_as_the_ledger_is_joined(
    booked_ledger: Ledger, style: Style, connect: Open, level: str, promised: str
) -> None:
    """With write-ahead logging a commit with FULL is as durable as one with EXTRA."""
    assert joined_with(booked_ledger, style, connect, level, promised) == "committed"


def test_a_connection_in_memory_is_refused(booked_ledger: Ledger, style: Style, connect: Open) -> None:
    """A database without a file cannot be the ledger's."""
    gate = booked_ledger.gate()

    def body(event, once):
        connection = connect(":memory:")
        connection.execute("BEGIN IMMEDIATE")
        once.commit(tx=connection)

    style.register(gate, "bookings", body)
    with pytest.raises(UsageError, match="another database"):
        style.admit(gate, "bookings", EVENT)


def test_the_same_file_under_another_name_is_the_same_database(
    booked_ledger: Ledger, style: Style, connect: Open, tmp_path: Path
) -> None:
    """A symbolic link leads to the same file."""
    link = tmp_path / "link.db"
    link.symlink_to(booked_ledger.path)
    gate = booked_ledger.gate()

    def body(event, once):
        connection = connect(link)
        with connection:
            connection.execute(BOOK, (event["equipment"], "s-1"))
            once.commit(tx=connection)

    style.register(gate, "bookings", body)
    assert style.admit(gate, "bookings", EVENT).verdict is Verdict.RUN


@pytest.mark.parametrize("tx", ["a text", 7, object()], ids=lambda tx: type(tx).__name__)
def test_something_that_is_no_connection_is_refused(booked_ledger: Ledger, style: Style, tx: Any) -> None:
    """The message names what was given and what is wanted."""
    gate = booked_ledger.gate()

    def body(event, once):
        once.commit(tx=tx)

    style.register(gate, "bookings", body)
    with pytest.raises(UsageError, match=r"give a sqlite3\.Connection"):
        style.admit(gate, "bookings", EVENT)


def test_a_lost_claim_refuses_the_join_and_the_users_write_rolls_back(
    booked_ledger: Ledger, style: Style, connect: Open
) -> None:
    """I4: the fence is checked inside the user's own transaction."""
    # Given a worker that stalls until another one has taken over and finished
    gate, other = booked_ledger.gate(), booked_ledger.gate()
    Style("plain").register(other, "bookings", lambda event, once: "by the other")

    def body(event, once):
        booked_ledger.lapse()
        assert other.admit_sync("bookings", EVENT).value == "by the other"
        connection = connect()
        with connection:
            connection.execute(BOOK, (event["equipment"], "late"))
            once.commit(tx=connection)

    style.register(gate, "bookings", body)
    # When it wakes up and commits
    with pytest.raises(ClaimLost, match="roll this transaction back"):
        style.admit(gate, "bookings", EVENT)
    # Then its business write is not there, and the other's outcome stands
    assert booked_ledger.bookings() == []
    assert style.admit(gate, "bookings", EVENT).value == "by the other"


def test_a_crash_before_the_users_commit_leaves_nothing(
    booked_ledger: Ledger, style: Style, connect: Open
) -> None:
    """The settlement is part of their transaction: closing the connection undoes both."""
    gate = booked_ledger.gate()

    def body(event, once):
        connection = connect()
        connection.execute(BOOK, (event["equipment"], "s-1"))
        once.commit(tx=connection)
        connection.close()
        raise RuntimeError("the connection was lost")

    style.register(gate, "bookings", body)
    with pytest.raises(RuntimeError):
        style.admit(gate, "bookings", EVENT)
    assert (booked_ledger.bookings(), booked_ledger.state()) == ([], "retryable")


@pytest.mark.parametrize("committed", [True, False], ids=["after the commit", "before the commit"])
def test_effects_and_steps_after_a_join_are_refused(
    booked_ledger: Ledger, style: Style, connect: Open, committed: bool
) -> None:
    """Once the claim is settled in the user's transaction, what follows could be lost for ever."""
    gate, terminal, refused = booked_ledger.gate(), Terminal(), []
    ect = gate.downstream("ect", honours_key="7d")

    def body(event, once):
        connection = connect()
        connection.execute(BOOK, (event["equipment"], "s-1"))
        once.commit(tx=connection)
        if committed:
            connection.commit()
        attempts = [
            lambda: once.effect(ect, style.function(terminal.claim), "X"),
            lambda: once.commit(writes=[(BOOK, ("C", "s-3"))]),
        ]
        for attempt in attempts:
            try:
                yield attempt()
            except UsageError as error:
                refused.append(error)
        connection.commit()
        return "booked"

    style.register(gate, "bookings", body)
    assert style.admit(gate, "bookings", EVENT).value == "booked"
    assert len(refused) == 2
    assert not terminal.keys


def test_a_block_around_a_join_says_where_to_write(
    booked_ledger: Ledger, style: Style, connect: Open
) -> None:
    """The transaction is the user's own; the gate has none to write through."""
    gate = booked_ledger.gate()

    def handle(event, once):
        with connect() as connection:
            connection.execute("BEGIN IMMEDIATE")
            with once.commit(tx=connection) as tx:
                tx.execute(BOOK, ("MSKU1234565", "s-1"))

    async def handle_async(event, once):
        with connect() as connection:
            connection.execute("BEGIN IMMEDIATE")
            async with once.commit(tx=connection) as tx:
                await tx.execute(BOOK, ("MSKU1234565", "s-1"))

    gate.handler("bookings", key="{id}")(handle_async if style.is_async else handle)
    with pytest.raises(UsageError, match="write through what you gave as tx="):
        style.admit(gate, "bookings", EVENT)
    assert booked_ledger.bookings() == []
