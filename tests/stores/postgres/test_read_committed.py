"""Under READ COMMITTED, with many sessions at once: one winner a key, and no deadlock that anybody sees."""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.operations import Reserve, Settle
from oncegate.model.states import Decision
from oncegate.store import Renewal, Reserved, Session, StepRecord, StepRecords, StepState
from oncegate.stores.postgres import PostgresStore
from oncegate.stores.shared.unused_names import NAMES_CACHED_MAX
from oncegate.testing import ManualClock, run_forked
from oncegate.testing.forking import Forked
from oncegate.testing.waiting import wait_until
from tests.support.gates import running
from tests.support.postgres_site import reservation, settlement

THREADS, KEYS, BATCH = 8, 300, 40
MEET_SECONDS = 120.0
# The trap: what the conditional insert lost to is not in the snapshot of its own statement.
NAIVE = """
WITH fresh AS (
    INSERT INTO naive (key) VALUES (%s) ON CONFLICT (key) DO NOTHING RETURNING 'inserted' AS answer
)
SELECT answer FROM fresh UNION ALL SELECT 'exists' FROM naive WHERE key = %s
"""


@pytest.fixture
def store(ledger_url: str) -> PostgresStore:
    return PostgresStore(ledger_url, clock=ManualClock())


@pytest.fixture
def session(store: PostgresStore) -> Iterator[Session]:
    with contextlib.closing(store.connect()) as opened:
        yield opened


def in_threads(works: list[Callable[[], Any]]) -> list[Any]:
    with running(*works) as answers:
        pass
    errors = [answer for answer in answers if isinstance(answer, BaseException)]
    assert not errors, errors
    return answers


def wait_until_blocked(store: PostgresStore, count: int = 1) -> None:
    """Waits until so many sessions of this database wait for a lock."""
    sql = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND wait_event_type = 'Lock'"
    )
    with psycopg.connect(store._url, autocommit=True) as connection:
        wait_until(lambda: connection.execute(sql).fetchone() == (count,), what="a blocked session")


def compete(
    store: PostgresStore, seed: int, *, single: bool, meet: Callable[[], object] = lambda: None
) -> Counter[int]:
    """Reserves every key in batches of its own order; returns how often each key was won.

    All meet before their first batch and after it, so that none can have won everything by then.
    """
    choose, won = random.Random(seed), Counter[int]()
    keys = list(range(KEYS))
    with contextlib.closing(store.connect()) as session:
        choose.shuffle(keys)
        for start in range(0, KEYS, BATCH):
            if start <= BATCH:
                meet()
            batch = keys[start : start + BATCH]
            batch += choose.choices(batch, k=5)  # the same key twice in one batch
            with session.unit(single=single):
                answers = session.reserve([reservation(key) for key in batch])
            won.update(
                key for key, answer in zip(batch, answers, strict=True) if answer.decision is Decision.RUN
            )
    return won


def keys_won(store: PostgresStore, seed: int) -> list[int]:
    return list(compete(store, seed, single=True).elements())


@pytest.mark.parametrize("single", [True, False], ids=["by itself", "in a transaction"])
def test_each_key_is_won_once_by_many_sessions(store: PostgresStore, single: bool) -> None:
    """Unsorted, overlapping batches with keys twice in them: one RUN for each key, and no deadlock."""
    meet = partial(threading.Barrier(THREADS).wait, MEET_SECONDS)
    found = in_threads([partial(compete, store, seed, single=single, meet=meet) for seed in range(THREADS)])

    won = sum(found, Counter[int]())
    assert won == Counter(range(KEYS))
    assert sum(1 for winners in found if winners) > 1, "a run with one winner shows nothing"


@pytest.mark.slow
def test_each_key_is_won_once_by_many_processes(store: PostgresStore) -> None:
    """The same in processes that share nothing but the server."""
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Forked(partial(keys_won, store, seed))) for seed in range(4)]
        won = Counter(key for worker in workers for key in worker.answer())

    assert won == Counter(range(KEYS))


def test_two_that_know_each_others_key_do_not_pass_each_other(
    store: PostgresStore, session: Session
) -> None:
    """An event under its old key and under its new one, at the same instant: one runs, the other waits."""
    first, second = reservation(1), reservation(2)
    answers: list[Reserved] = []
    with contextlib.closing(store.connect()) as other:

        def reserve() -> None:
            with other.unit(single=True):
                answers.extend(other.reserve([replace(second, also=(first.key,))]))

        thread = threading.Thread(target=reserve)
        with session.unit():
            (won,) = session.reserve([replace(first, also=(second.key,))])
            thread.start()
            wait_until_blocked(store)
        thread.join(MEET_SECONDS)
    assert won.decision is Decision.RUN
    assert [(answer.decision, answer.judged) for answer in answers] == [(Decision.BUSY, first.key)]


def test_loser_to_an_uncommitted_key_is_told_of_it_where_one_statement_would_not(
    store: PostgresStore, session: Session
) -> None:
    """DO NOTHING and SELECT in one statement finds neither new nor known; ours is told that it is busy."""
    with psycopg.connect(store._url, autocommit=True) as other:
        other.execute("CREATE TABLE naive (key int PRIMARY KEY)")
        naive: list[Any] = []
        with (
            psycopg.connect(store._url, autocommit=True) as victim,
            contextlib.closing(store.connect()) as ours,
        ):

            def reserve() -> Reserved:
                with ours.unit(single=True):
                    return ours.reserve([reservation(1)])[0]

            # Given a transaction that has inserted the key in both ways and is not committed
            with other.transaction(), contextlib.ExitStack() as stack:
                other.execute("INSERT INTO naive (key) VALUES (1)")
                unit = stack.enter_context(contextlib.ExitStack())
                unit.enter_context(session.unit())
                session.reserve([reservation(1)])
                # When both others ask for it, wait, and it is committed
                answers = stack.enter_context(
                    running(lambda: naive.extend(victim.execute(NAIVE, (1, 1)).fetchall()), reserve)
                )
                wait_until_blocked(store, 2)
                unit.close()
                other.execute("COMMIT")
            # Then the one statement knows nothing, and ours knows
            assert naive == []
            assert isinstance(answers[1], Reserved)
            assert answers[1].decision is Decision.BUSY


def test_renewing_and_ending_the_same_claims_do_not_deadlock(store: PostgresStore) -> None:
    """One session renews claims in one order while another is in the middle of ending them in the other."""
    with contextlib.ExitStack() as stack:
        first, second = (stack.enter_context(contextlib.closing(store.connect())) for _ in range(2))
        holder = stack.enter_context(psycopg.connect(store._url))
        with first.unit(single=True):
            claims = first.reserve([reservation(key) for key in range(3)])

        def settle() -> list[bool]:
            with first.unit(single=True):
                return first.settle([settlement(c) for c in claims])

        def renew() -> list[bool]:
            with second.unit(single=True):
                return second.renew([Renewal(*c.claim, 30_000) for c in (claims[2], claims[0])])

        # Given somebody who keeps the end of all three from getting past the second
        holder.execute("SELECT 1 FROM oncegate_open WHERE entry = %s FOR UPDATE", (claims[1].entry_id,))
        with running(settle) as ended:
            wait_until_blocked(store)
            # When the third and the first are renewed meanwhile, and then everybody can go on
            with running(renew) as renewed:
                wait_until_blocked(store, 2)
                holder.rollback()
        # Then both were answered, and neither was ended by the server
        assert ended == [[True, True, True]]
        assert renewed == [[False, False]]


def test_business_writes_in_each_others_way_are_all_done(store: PostgresStore) -> None:
    """Two processes' batches take the same rows in opposite order: every event is settled."""
    with psycopg.connect(store._url, autocommit=True) as connection:
        connection.execute("CREATE TABLE stock (id int PRIMARY KEY, sold int NOT NULL DEFAULT 0)")
        connection.execute("INSERT INTO stock (id) SELECT generate_series(0, 39)")
        sell = "UPDATE stock SET sold = sold + 1 WHERE id = ?"
        quick = f"{store._url}{'&' if '?' in store._url else '?'}options=-c%20deadlock_timeout%3D20ms"
        both = [GroupCommit(PostgresStore(quick, clock=ManualClock())) for _ in range(2)]

        def work(commits: GroupCommit, number: int) -> None:
            places = range(40) if number % 2 else reversed(range(40))
            claim = commits.submit(Reserve(reservation(number)))
            writes = tuple((sell, (place,)) for place in places)
            assert commits.submit(Settle(settlement(claim, writes=writes)))

        in_threads([partial(work, both[n % 2], n) for n in range(24)])
        for commits in both:
            commits.close()
        assert connection.execute("SELECT DISTINCT sold FROM stock").fetchall() == [(24,)]


def test_old_and_new_holder_in_one_batch_are_told_apart(store: PostgresStore, session: Session) -> None:
    """A zombie's settlement beside its successor's changes nothing, and does not stand in its way."""
    # Given a claim that was taken over after its lease
    with session.unit(single=True):
        (old,) = session.reserve([reservation(1)])
    store._clock.advance(31)  # type: ignore[union-attr]
    with session.unit(single=True):
        (new,) = session.reserve([reservation(1)])
    assert new.decision is Decision.RECOVER
    # When both end it in one batch, with a write or without
    with session.unit(single=True):
        told = session.settle([settlement(old), settlement(new)])
    # Then only the present holder did
    assert (old.entry_id, told) == (new.entry_id, [False, True])


def test_claim_renewed_twice_in_one_batch_is_kept(session: Session) -> None:
    """Two renewals of one claim that meet in a batch are both told that it is held."""
    with session.unit(single=True):
        (claim,) = session.reserve([reservation(1)])
    renewal = Renewal(*claim.claim, 1000)
    stale = Renewal(*claim.claim._replace(fence=claim.fence + 99), 1000)
    with session.unit(single=True):
        assert session.renew([renewal, stale, renewal]) == [True, False, True]


def test_more_tenants_than_are_remembered(session: Session) -> None:
    """A session that has seen more names than it keeps goes on knowing those it is asked about."""
    step = 500
    for start in range(0, NAMES_CACHED_MAX + 2 * step, step):
        wanted = [
            reservation(number, tenant=f"tenant {number}", actor="caretaker")
            for number in range(max(0, start - 250), start + step)
        ]
        with session.unit(single=True):
            answers = session.reserve(wanted)
        assert {answer.decision for answer in answers} <= {Decision.RUN, Decision.BUSY}
    with session.unit():
        (first,) = session.read([reservation(0).key])
    assert first is not None
    assert first.tenant == "tenant 0"


def test_new_name_in_a_long_transaction_keeps_nobody_waiting(
    store: PostgresStore, session: Session
) -> None:
    """A handler's open transaction is the first to use a tenant; others of that tenant go on meanwhile."""
    with contextlib.closing(store.connect()) as long, long.unit():
        long.reserve([reservation(1, tenant="new")])
        with session.unit(single=True):
            (answer,) = session.reserve([reservation(2, tenant="new")])

    assert answer.decision is Decision.RUN


@pytest.mark.slow
def test_steps_recorded_in_one_batch_do_not_deadlock(store: PostgresStore) -> None:
    """Two sessions record steps of the same claims in opposite order."""
    with contextlib.closing(store.connect()) as first, contextlib.closing(store.connect()) as second:
        with first.unit(single=True):
            claims = first.reserve([reservation(key) for key in range(60)])
        step = (StepRecord("claim", StepState.STARTED, "terminal"),)
        wanted = [StepRecords(*claim.claim, step, 0) for claim in claims]

        def record(session: Session, items: list[StepRecords]) -> list[bool]:
            with session.unit(single=True):
                return session.progress(items)

        for _ in range(10):
            told = in_threads([lambda: record(first, wanted), lambda: record(second, wanted[::-1])])
            assert told == [[True] * 60] * 2


def test_forked_process_opens_its_own_connection(store: PostgresStore) -> None:
    """A child never uses its parent's connection, and its end does not close it."""
    commits = GroupCommit(store)
    commits.submit(Reserve(reservation(1)))

    code, answer = run_forked(lambda: commits.submit(Reserve(reservation(1))).decision.name)

    assert (code, answer) == (0, "BUSY")
    assert commits.submit(Reserve(reservation(2))).decision is Decision.RUN
    commits.close()


@pytest.mark.parametrize("default", ["repeatable read", "serializable"])
def test_database_with_another_default_is_used_at_read_committed(
    ledger_url: str, store: PostgresStore, default: str
) -> None:
    """What every statement relies on is not left to whoever set the database up."""
    with psycopg.connect(ledger_url, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(
            f"ALTER DATABASE \"{name}\" SET default_transaction_isolation = '{default}'".encode()
        )
        try:
            with contextlib.closing(store.connect()) as session:
                assert session._query("SHOW transaction_isolation", ()) == [("read committed",)]
        finally:
            connection.execute(f'ALTER DATABASE "{name}" RESET default_transaction_isolation'.encode())
