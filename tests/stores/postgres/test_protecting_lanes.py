"""Lines of lanes and rulings on PostgreSQL that no other test missed when `make mutate` took them out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from oncegate.model.decisions import Verb
from oncegate.model.states import State
from oncegate.store import (
    GivenUp,
    Heads,
    HeadsWanted,
    LaneFilter,
    LaneState,
    LaneView,
    Policy,
    Ruling,
    Settlement,
)
from oncegate.stores.postgres import (
    PostgresStore,
    lane_statement_generators,
    lane_statements,
    statement_generators,
)
from oncegate.stores.postgres.session import PostgresSession
from oncegate.testing import ManualClock
from tests.lanes.lane_site import ENDPOINT, LEASE_MS, finish, lease, outgoing
from tests.support.postgres_site import reservation

HOLDER = 7
NOW_MS = 1_780_000_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(ledger_url: str, clock: ManualClock) -> PostgresStore:
    return PostgresStore(ledger_url, clock=clock)


@pytest.fixture
def session(store: PostgresStore) -> Iterator[PostgresSession]:
    with contextlib.closing(store.connect()) as opened:
        yield opened


def undo(session: PostgresSession, work: Callable[[], object]) -> None:
    """Works alone in a unit, which is then undone: what was committed on the way would stay."""
    with contextlib.suppress(ZeroDivisionError), session.unit(single=True):
        work()
        raise ZeroDivisionError


def lanes(session: PostgresSession, *keys: str, destination: str = ENDPOINT) -> list[LaneView | None]:
    with session.unit():
        return [session.find_lane(destination, "", key) for key in keys]


def heads(session: PostgresSession, *destinations: str) -> Heads:
    return session.lease_heads(HeadsWanted(tuple((name, 5) for name in destinations), LEASE_MS, HOLDER))


def test_a_batch_that_names_an_event_twice_is_placed_as_a_whole_or_not(session: PostgresSession) -> None:
    """The second time is looked up by a second statement: both are one transaction."""
    undo(session, lambda: session.enqueue([outgoing("a"), outgoing("b", "other"), outgoing("a")]))

    assert lanes(session, "k", "other") == [None, None]


def test_a_batch_under_two_limits_is_placed_as_a_whole_or_not(session: PostgresSession) -> None:
    batch = [outgoing("a", "few", backlog_max=5), outgoing("b", "many", backlog_max=50)]
    undo(session, lambda: session.enqueue(batch))

    assert lanes(session, "few", "many") == [None, None]


def test_heads_of_two_destinations_are_leased_together_or_not(session: PostgresSession) -> None:
    """Or those of the first would wait for a lease that nobody has."""
    with session.unit():
        session.enqueue([outgoing("a", destination="one"), outgoing("b", destination="two")])
    undo(session, lambda: heads(session, "one", "two"))

    with session.unit():
        assert session.leased_by((HOLDER,)) == []
    assert len(heads(session, "one", "two").deliveries) == 2


def test_a_lane_comes_to_rest_once_nobody_adds_to_it_after_all(
    session: PostgresSession, store: PostgresStore, clock: ManualClock
) -> None:
    """Given an end reached while somebody adds, and does not; then it is found empty once, not for ever."""
    with session.unit():
        session.enqueue([outgoing("a")])
    (first,) = lease(session)
    with (
        contextlib.closing(store.connect()) as adding,
        contextlib.suppress(ZeroDivisionError),
        adding.unit(),
    ):
        adding.enqueue([outgoing("b")])
        finish(session, first)
        raise ZeroDivisionError
    (left,) = lanes(session, "k")
    assert left is not None
    assert left.state is LaneState.WAITING, "it was not certain that nothing comes"

    clock.advance(60)
    assert lease(session) == []

    (rests,) = lanes(session, "k")
    assert rests is not None
    assert rests.state is LaneState.IDLE
    assert heads(session, ENDPOINT).next_due_ticks is None


def test_dead_letters_are_given_up_together_or_not(session: PostgresSession) -> None:
    """A letter on record, the note about it and the lane that moves on are one transaction."""
    with session.unit():
        session.enqueue([outgoing("a"), outgoing("b")])
    (first,) = lease(session)
    given_up = GivenUp(
        first.lane_id, 1, first.fence, first.holder, first.event_id, NOW_MS, "gone", Policy.BLOCK, "engine"
    )
    undo(session, lambda: session.dead_letter([given_up]))

    (lane,) = lanes(session, "k")
    assert lane is not None
    assert (lane.state, lane.head_seq) == (LaneState.LEASED, 1)
    with session.unit():
        assert session.dead_letters(LaneFilter(), (0, 0), 10) == []


def test_a_seq_that_is_given_back_leaves_what_waits_in_the_lane_waiting(session: PostgresSession) -> None:
    """Given an event that waits; when the one behind it turns out to be known, it goes out all the same."""
    with session.unit():
        session.enqueue([outgoing("a")])
    (lane,) = lanes(session, "k")
    assert lane is not None
    facts = statement_generators.Facts(None)
    facts.keep("ledger-1", {ENDPOINT: 1, "": 2, "order.updated": 3})
    script = lane_statement_generators.enqueue(facts, outgoing("b"))
    with session.unit():
        next(script)
        session.execute("UPDATE oncegate_lane SET last_seq = last_seq + 1, idle = 0", ())
        giving_back, values = script.send([(True, 1, lane.lane_id, 2, 0, False)])
        session._query(giving_back, tuple(values))

    assert giving_back == lane_statements.GIVE_BACK
    assert lanes(session, "k") == [lane]
    assert [delivery.seq for delivery in lease(session)] == [1]


def test_a_word_and_its_record_are_one_transaction_where_it_is_said_alone(session: PostgresSession) -> None:
    """I16, I20: the steps that a person knows of are written by a statement of their own."""
    with session.unit():
        (claim,) = session.reserve([reservation(1)])
    with session.unit():
        session.settle([Settlement(*claim.claim, State.HELD, NOW_MS, "gate", reason="ask")])
    ruling = Ruling(
        claim.entry_id, claim.fence, claim.key, Verb.APPROVE, "Ada", "because", "approved", NOW_MS
    )
    undo(session, lambda: session.rule([ruling]))

    with session.unit():
        found = session.detail(claim.entry_id)
    assert found is not None
    assert (found.entry.state, found.entry.fence) == (State.HELD, claim.fence)
