"""An error that the server answers is certain, whatever its code; a lost connection leaves doubt (I25)."""

from __future__ import annotations

import psycopg
import pytest

from oncegate.errors import StoreBusy, StoreRejected, StoreUnavailable, StoreUnknown
from oncegate.stores.postgres.failures import translate, users_failure

CODES = ("08P01", "08006", "53100", "53300", "54001", "55006", "55P03", "57014", "57P01", "57P03", "XX000")


def error_of(url: str, sql: str) -> psycopg.Error:
    with psycopg.connect(url, autocommit=True) as connection, pytest.raises(psycopg.Error) as caught:
        connection.execute(sql.encode())
    return caught.value


def raising(code: str) -> str:
    return f"DO $$ BEGIN RAISE EXCEPTION 'said' USING ERRCODE = '{code}'; END $$"


@pytest.mark.parametrize("code", CODES)
def test_error_that_the_server_answers_is_certain(ledger_url: str, code: str) -> None:
    error = error_of(ledger_url, raising(code))

    failure = translate(error, committing=True)

    assert isinstance(failure, StoreUnavailable)
    assert "cannot be reached" not in str(failure)


@pytest.mark.parametrize("code", CODES)
def test_error_of_a_users_statement_is_theirs_alone(ledger_url: str, code: str) -> None:
    assert isinstance(users_failure(error_of(ledger_url, raising(code)), patient=True), StoreRejected)


def test_lock_that_was_not_waited_for_is_tried_again(ledger_url: str) -> None:
    assert isinstance(users_failure(error_of(ledger_url, raising("55P03")), patient=False), StoreBusy)


def test_last_word_of_a_server_leaves_doubt(ledger_url: str) -> None:
    """57P01 comes as an answer too, but the server ends with it."""
    error = error_of(ledger_url, "SELECT pg_terminate_backend(pg_backend_pid())")

    assert isinstance(translate(error, committing=True), StoreUnknown)
    assert isinstance(translate(error, committing=False), StoreUnavailable)


def test_lost_connection_leaves_doubt() -> None:
    error = psycopg.OperationalError("the connection ended before the server's answer")

    assert isinstance(translate(error, committing=True), StoreUnknown)
