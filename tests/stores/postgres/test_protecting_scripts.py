"""Lines of the statements that also go over users' own connections, which no other test missed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from oncegate.errors import UsageError
from oncegate.model.states import Decision, State
from oncegate.store import Settlement
from oncegate.stores.postgres import PostgresStore, join_statements, statement_generators, statements
from oncegate.stores.postgres.arrays import bytea_array
from oncegate.stores.postgres.session import PostgresSession
from oncegate.stores.shared.unused_names import NAMES_CACHED_MAX
from oncegate.testing import ManualClock
from tests.support.postgres_site import reservation

KEY = 7
NOW_MS = 1_780_000_000_000


@pytest.fixture
def facts() -> statement_generators.Facts:
    """Of a ledger that was looked at."""
    known = statement_generators.Facts(None)
    item = reservation(KEY)
    known.keep("ledger-1", {name: number for number, name in enumerate({item.surface, "", item.actor})})
    return known


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def session(ledger_url: str, clock: ManualClock) -> Iterator[PostgresSession]:
    with contextlib.closing(PostgresStore(ledger_url, clock=clock).connect()) as opened:
        yield opened


def test_a_key_that_was_forgotten_before_it_could_be_read_is_reserved_anew(
    facts: statement_generators.Facts,
) -> None:
    """A worker removes it between losing to it and reading it."""
    script = statement_generators.reserve(facts, reservation(KEY))
    assert next(script)[0] == join_statements.RESERVE
    assert script.send([(True, None, None)])[0] == join_statements.KNOWN

    assert script.send([])[0] == join_statements.RESERVE


def test_a_key_that_somebody_moved_on_is_judged_anew(facts: statement_generators.Facts) -> None:
    """Between reading it and taking it over, another one has taken it."""
    item = reservation(KEY)
    script = statement_generators.reserve(facts, item)
    next(script)
    script.send([(True, None, None)])
    lapsed = (
        item.key,
        1,
        State.IN_FLIGHT.value,
        item.fingerprint,
        1,
        1,
        0,
        None,
        0,
        NOW_MS,
        None,
        10,
        None,
        0,
        0,
        None,
    )
    assert script.send([lapsed])[0] == statements.TAKE_OVER

    assert script.send([])[0] == join_statements.RESERVE


def test_what_the_users_server_says_of_a_statement_is_not_taken_for_another_ledger(
    facts: statement_generators.Facts,
) -> None:
    """Only a ledger that is not there means that; whatever else went wrong is told as it is."""
    script = statement_generators.reserve(facts, reservation(KEY))
    next(script)

    with pytest.raises(psycopg.errors.DeadlockDetected):
        script.throw(psycopg.errors.DeadlockDetected())


def test_a_reservation_on_another_ledger_than_the_gates_is_refused(
    facts: statement_generators.Facts,
) -> None:
    script = statement_generators.reserve(facts, reservation(KEY))
    next(script)

    with pytest.raises(UsageError):
        script.send([(False, None, None)])


def test_steps_stay_where_an_end_does_not_remove_them(facts: statement_generators.Facts) -> None:
    """What was done is not done again by the next attempt."""
    end = Settlement(1, 1, 7, b"key", State.RETRYABLE, NOW_MS, reservation(KEY).actor, clear_steps=False)
    script = statement_generators.settle(facts, end)
    next(script)

    with pytest.raises(StopIteration) as ended:
        script.send([(True, True, "7")])
    assert ended.value.value == "7"


def test_what_is_remembered_of_names_has_a_limit(facts: statement_generators.Facts) -> None:
    """I18: a sender that invents a tenant for each event fills no memory; what fits is kept."""
    before = dict(facts.numbers)
    facts.keep("ledger-1", {"one more": 99})
    assert facts.numbers == {**before, "one more": 99}
    names = {str(number): number for number in range(NAMES_CACHED_MAX)}
    facts.keep("ledger-1", names)

    assert facts.numbers == names


def test_an_entry_that_somebody_took_over_is_not_given_up(
    session: PostgresSession, clock: ManualClock
) -> None:
    """I4: judged as tried too often, by what was read before another one with more patience took it."""
    with session.unit():
        session.reserve([reservation(KEY)])
    clock.advance(60)
    impatient = reservation(KEY, attempts_max=1)
    sql, values = _giving_up(session, impatient)
    with session.unit():
        (taken,) = session.reserve([reservation(KEY, attempts_max=9)])
    assert taken.decision is Decision.RECOVER

    with session.unit():
        assert session._query(sql, values) == []
        found = session.detail(taken.entry_id)
    assert found is not None
    assert (found.entry.state, found.entry.fence) == (State.IN_FLIGHT, taken.fence)


def _giving_up(session: PostgresSession, item: Any) -> tuple[str, Any]:
    """The statement that gives an entry up, by what is known of it now."""
    with session.unit():
        (row,) = session._query(statements.KNOWN, (session._ticks(), bytea_array([item.key])))
        actor = session._names.learn({item.actor})[item.actor]
    sql, values = next(statement_generators.judge_known(item, row, (actor, None), session._ticks))
    assert sql == statements.GIVE_UP
    return sql, values
