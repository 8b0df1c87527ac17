"""Which statements begin or end a transaction, whatever stands before them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncegate.errors import UsageError
from oncegate.model.sql_guard import check_statement

BLANK = st.lists(
    st.sampled_from([" ", "\n", "\t", ";", "-- a note\n", "/* one */", "/**/", "/* it's -- */"]), max_size=5
).map("".join)
WORDS = [
    "COMMIT",
    "commit and chain",
    "END",
    "Rollback",
    "ROLLBACK WORK",
    "ROLLBACK AND CHAIN",
    "ABORT",
    "BEGIN",
    "BEGIN IMMEDIATE",
    "START  TRANSACTION",
    "PREPARE TRANSACTION 'x'",
]
OTHERS = [
    "INSERT INTO commits VALUES (1)",
    "ROLLBACK TO here",
    "rollback transaction to savepoint here",
    "SAVEPOINT here",
    "RELEASE here",
    "ENDS",
    "SELECT 'COMMIT'",
    "PREPARE plan AS SELECT 1",
    "",
]


@given(before=BLANK, words=st.sampled_from(WORDS), after=BLANK)
def test_what_begins_or_ends_a_transaction_is_refused(before: str, words: str, after: str) -> None:
    with pytest.raises(UsageError, match="leave COMMIT and ROLLBACK to the gate"):
        check_statement(before + words + after)


@given(before=BLANK, words=st.sampled_from(OTHERS))
def test_everything_else_is_the_users_own(before: str, words: str) -> None:
    check_statement(before + words)


@pytest.mark.parametrize("sql", ["/* /* */ */ COMMIT", "/* /* */ COMMIT", "/* a */ /* /**/ */ END"])
def test_comments_inside_comments_hide_nothing(sql: str) -> None:
    """One of the two databases would run each of these."""
    with pytest.raises(UsageError):
        check_statement(sql)


@pytest.mark.parametrize("sql", ["/* COMMIT", "-- COMMIT", "/* /* */ not closed"])
def test_what_has_no_word_at_all_is_left_to_the_store(sql: str) -> None:
    check_statement(sql)


@pytest.mark.parametrize("sql", [None, 7, b"SELECT 1"])
def test_what_is_no_text_is_refused(sql: Any) -> None:
    with pytest.raises(UsageError, match="a statement is text"):
        check_statement(sql)
