"""Statements sent in one go: what fails is told, what follows is right, and nothing is left unread."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from oncegate.stores.postgres.limits import LimitedConnection
from oncegate.stores.postgres.wire import BEGIN, COMMIT, PREPARED_MAX, ROLLBACK, Wire, WireCommand


@pytest.fixture
def connection(ledger_url: str) -> Iterator[LimitedConnection]:
    with LimitedConnection.connect(ledger_url, autocommit=True) as opened:
        yield opened


@pytest.fixture
def wire(connection: LimitedConnection) -> Wire:
    wire = Wire(connection)
    wire.send([WireCommand("CREATE TEMP TABLE item (id int PRIMARY KEY)")])
    return wire


def insert(number: object) -> WireCommand:
    return WireCommand("INSERT INTO item VALUES ($1::int)", (number,))


def ids(wire: Wire) -> list[int]:
    return [number for (number,) in wire.send([WireCommand("SELECT id FROM item ORDER BY id")])[0]]


def test_each_statement_has_its_own_rows(wire: Wire) -> None:
    one, none, two = wire.send(
        [WireCommand("SELECT $1::int", (1,)), insert(5), WireCommand("SELECT id, NULL FROM item")]
    )
    assert (one, none, two) == ([(1,)], [], [(5, None)])


def test_transaction_in_one_go_is_all_or_nothing(wire: Wire, connection: LimitedConnection) -> None:
    """A statement that fails keeps the COMMIT behind it from happening."""
    wire.send([BEGIN, insert(1), COMMIT])
    with pytest.raises(psycopg.errors.UniqueViolation):
        wire.send([BEGIN, insert(2), insert(1), COMMIT])
    assert connection.info.transaction_status is TransactionStatus.INERROR
    wire.send([ROLLBACK])
    assert ids(wire) == [1]


def test_statement_prepared_beside_one_that_failed_can_be_sent_again(wire: Wire) -> None:
    """Whether it was prepared is not known after an error; it is prepared anew."""
    for _ in range(2):
        with pytest.raises(psycopg.errors.DivisionByZero):
            wire.send([WireCommand("SELECT 1 / $1::int", (0,)), WireCommand("SELECT $1::text", ("a",))])
    assert wire.send([WireCommand("SELECT 4 / $1::int", (2,)), WireCommand("SELECT $1::text", ("a",))]) == [
        [(2,)],
        [("a",)],
    ]


def test_parameter_that_cannot_be_sent_leaves_the_wire_in_step(wire: Wire) -> None:
    with pytest.raises(psycopg.ProgrammingError):
        wire.send([insert(1), insert(object())])
    assert ids(wire) == [1]


def test_copy_is_refused_and_does_not_hang(wire: Wire, connection: LimitedConnection) -> None:
    with pytest.raises(psycopg.Error):
        wire.send([WireCommand("COPY item FROM STDIN")])
    assert connection.closed


def test_more_statements_than_are_kept_prepared(wire: Wire) -> None:
    for number in range(PREPARED_MAX + 5):
        assert wire.send([WireCommand(f"SELECT {number}")]) == [[(number,)]]
    assert ids(wire) == []


def test_lost_connection_is_told(wire: Wire, connection: LimitedConnection, ledger_url: str) -> None:
    with psycopg.connect(ledger_url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 2000)", (connection.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        wire.send([insert(1)])
