"""Joining users' own transactions on PostgreSQL: their commit is the commit of the outcome.

Every kind of transaction that is supported runs the same scenarios, on a real server.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from oncegate import ClaimLost, Content, Gate, UsageError, Verdict
from oncegate.errors import StoreRejected
from oncegate.feed import Feed
from oncegate.testing import ManualClock
from oncegate.testing.postgres import GivenServer, PostgresServer
from oncegate.testing.waiting import DEADLINE_SECONDS
from tests.gate.join_kinds import KINDS, PERCENT, Kind, sqlalchemy_url
from tests.support.gates import BOOKINGS, LEASE_SECONDS, running

EVENT = {"id": "N-1", "equipment": "MSKU1234565"}
BOOKED = [("MSKU1234565", "s-1")]
EMPTIED = ("bookings", "oncegate_entry", "oncegate_open", "oncegate_payload", "oncegate_outcome",
           "oncegate_step", "oncegate_log", "oncegate_content",
           "oncegate_feed", "oncegate_feed_key", "oncegate_feed_tenant")  # fmt: skip


class PostgresLedger:
    """A ledger on the server, emptied for every test, and gates that each stand for one process."""

    def __init__(self, url: str, elsewhere: str, without_ledger: str) -> None:
        self.url = url
        self.elsewhere = elsewhere
        self.without_ledger = without_ledger
        self.clock = ManualClock()
        self._gates: list[Gate] = []
        self._connection = psycopg.connect(url, autocommit=True)

    def gate(self) -> Gate:
        """Opens another gate, as another process would."""
        self._gates.append(Gate(self.url, clock=self.clock))
        return self._gates[-1]

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Asks the server itself, past the gate."""
        cursor = self._connection.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []

    def bookings(self) -> list[tuple[Any, ...]]:
        """The user's own data."""
        return self.rows("SELECT equipment, slot FROM bookings ORDER BY equipment")

    def states(self) -> list[str]:
        """The state of every entry."""
        return [state for (state,) in self.rows("SELECT state FROM oncegate_entries ORDER BY id")]

    def lapse(self) -> None:
        """Lets every lease run out."""
        self.clock.advance(LEASE_SECONDS + 1)

    def close(self) -> None:
        """Closes every gate and empties the ledger."""
        for gate in self._gates:
            gate.close()
        self.rows(";".join(f"DELETE FROM {table}" for table in EMPTIED))
        self._connection.close()


@pytest.fixture(scope="module")
def databases(postgres: PostgresServer | GivenServer) -> tuple[str, str, str]:
    """Two ledgers and a database without one."""
    urls = [postgres.new_database() for _ in range(3)]
    for url in urls:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(BOOKINGS.encode())
    for url in urls[:2]:
        with Gate(url) as gate:
            gate.engine.store.migrate()
    return urls[0], urls[1], urls[2]


@pytest.fixture
def ledger(databases: tuple[str, str, str]) -> Iterator[PostgresLedger]:
    """The first ledger, empty again afterwards."""
    fresh = PostgresLedger(*databases)
    yield fresh
    fresh.close()


@pytest.fixture(params=KINDS, ids=[kind.name for kind in KINDS])
def kind(request: pytest.FixtureRequest) -> Kind:
    """Every kind of transaction."""
    chosen: Kind = request.param
    return chosen


class Undo(Exception):
    """Makes a user's block roll back."""


@pytest.mark.slow
def test_the_users_commit_commits_the_outcome(ledger: PostgresLedger, kind: Kind) -> None:
    """A5: one transaction, on the user's own connection; nothing shows before its commit."""
    gate, before = ledger.gate(), []

    async def body(event, once):
        async with kind.transaction(ledger.url) as tx:
            await kind.write(tx, event["equipment"])
            await kind.commit(once, tx, resource="s-1")
            before.append((ledger.bookings(), ledger.states()))
        return "booked"

    kind.register(gate, body)
    answer = kind.run(kind.admit(gate, EVENT))
    assert before == [([], ["in_flight"])]
    assert (ledger.bookings(), ledger.states()) == (BOOKED, ["committed"])
    assert (answer.verdict, answer.value, answer.resource) == (Verdict.RUN, "booked", "s-1")
    fresh = ledger.gate()
    kind.register(fresh, body)
    replay = kind.run(kind.admit(fresh, EVENT))
    assert (replay.verdict, replay.value, replay.resource) == (Verdict.REPLAY, "booked", "s-1")
    assert [kind for (kind,) in ledger.rows("SELECT kind FROM oncegate_log")] == [2]


def test_outcome_and_writes_given_to_the_join_are_in_the_users_transaction(
    ledger: PostgresLedger, kind: Kind
) -> None:
    """Everything that belongs to the outcome goes into the same commit, after finished steps too."""
    gate = ledger.gate()
    portable = PERCENT.replace("%s", "?")

    async def body(event, once):
        step = once.step("look", str, 7)
        if kind.is_async:
            await step
        async with kind.transaction(ledger.url) as tx:
            await kind.write(tx, "A", "by hand")
            await kind.commit(once, tx, outcome={"slot": 1}, writes=[(portable, ("B", "as data"))])
        return "ignored"

    kind.register(gate, body)
    assert kind.run(kind.admit(gate, EVENT)).value == {"slot": 1}
    assert ledger.bookings() == [("A", "by hand"), ("B", "as data")]
    assert ledger.rows("SELECT * FROM oncegate_step") == []


def test_the_users_rollback_takes_the_outcome_with_it(ledger: PostgresLedger, kind: Kind) -> None:
    """The handler's error is recorded, and the next attempt may do it."""
    gate, undone = ledger.gate(), [Undo("no luck")]

    async def body(event, once):
        async with kind.transaction(ledger.url) as tx:
            await kind.write(tx, event["equipment"])
            await kind.commit(once, tx)
            if undone:
                raise undone.pop()
        return "booked"

    kind.register(gate, body)
    with pytest.raises(Undo):
        kind.run(kind.admit(gate, EVENT))
    assert (ledger.bookings(), ledger.states()) == ([], ["retryable"])
    assert kind.run(kind.admit(gate, EVENT)).value == "booked"
    assert (ledger.bookings(), ledger.states()) == (BOOKED, ["committed"])


def test_a_transaction_undone_in_silence_is_told(ledger: PostgresLedger, kind: Kind) -> None:
    """The gate looks whether it was committed, instead of answering for something that is gone (I3)."""
    gate = ledger.gate()

    async def body(event, once):
        with contextlib.suppress(Undo):
            async with kind.transaction(ledger.url) as tx:
                await kind.commit(once, tx)
                raise Undo

    kind.register(gate, body)
    with pytest.raises(UsageError, match="commit it inside the handler"):
        kind.run(kind.admit(gate, EVENT))
    assert ledger.states() == ["retryable"]


@pytest.mark.parametrize("fails", [False, True], ids=["returns", "raises"])
@pytest.mark.parametrize("name", ["psycopg", "asyncpg"])
def test_writes_that_were_committed_without_the_outcome_wait_for_a_person(
    ledger: PostgresLedger, name: str, fails: bool
) -> None:
    """I1, I9: a savepoint around the join was undone, the rest committed; it must not be run again."""
    gate, kind = ledger.gate(), next(kind for kind in KINDS if kind.name == name)

    async def say(tx: Any, sql: str) -> None:
        done = tx.execute(sql)
        if kind.is_async:
            await done

    async def body(event, once):
        async with kind.transaction(ledger.url) as tx:
            await kind.write(tx, event["equipment"])
            await say(tx, "SAVEPOINT here")
            await kind.commit(once, tx, outcome="booked")
            await say(tx, "ROLLBACK TO here")
        if fails:
            raise Undo("too late")

    kind.register(gate, body)
    with pytest.raises(Undo if fails else UsageError, match="too late" if fails else "savepoint"):
        kind.run(kind.admit(gate, EVENT))
    assert (ledger.bookings(), ledger.states()) == (BOOKED, ["unknown"])


def test_a_connection_that_does_not_wait_for_the_disk_does_so_for_us(ledger: PostgresLedger) -> None:
    """I3: what is answered for is durable, whatever the user's own connection is set to."""
    gate, found = ledger.gate(), []

    def setting(connection: psycopg.Connection[Any]) -> str:
        ((value,),) = connection.execute("SHOW synchronous_commit").fetchall()
        return str(value)

    @gate.handler("bookings", key="{id}")
    def join(event, once):
        with connection.transaction():
            once.commit(tx=connection)
            found.append(setting(connection))

    @gate.handler("same", key="{id}", same_database=True)
    def same(event, once):
        found.append(setting(connection))

    off = "-c synchronous_commit=off"
    with psycopg.connect(ledger.url, autocommit=True, options=off) as connection:
        gate.admit_sync("bookings", EVENT)
        with connection.transaction():
            gate.admit_sync("same", EVENT, tx=connection)
        found.append(setting(connection))
    assert found == ["on", "on", "off"]


def test_without_a_transaction_there_is_nothing_to_join(ledger: PostgresLedger, kind: Kind) -> None:
    """The message says how to open one."""
    gate = ledger.gate()

    async def body(event, once):
        async with kind.bare(ledger.url) as tx:
            await kind.commit(once, tx)

    kind.register(gate, body)
    with pytest.raises(UsageError, match=r"no transaction open; use .* inside `(async )?with"):
        kind.run(kind.admit(gate, EVENT))
    assert ledger.states() == ["retryable"]


@pytest.mark.parametrize("where", ["elsewhere", "without_ledger"])
def test_another_database_is_refused_and_not_touched(
    ledger: PostgresLedger, kind: Kind, where: str
) -> None:
    """Two databases are two commits; entries of another ledger may even have the same numbers."""
    gate, url = ledger.gate(), getattr(ledger, where)

    async def body(event, once):
        async with kind.transaction(url) as tx:
            await kind.write(tx, event["equipment"])
            await kind.commit(once, tx)

    kind.register(gate, body)
    with pytest.raises(UsageError, match="another database"):
        kind.run(kind.admit(gate, EVENT))
    assert ledger.states() == ["retryable"]
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT * FROM bookings").fetchall() == []


@pytest.mark.slow
def test_a_lost_claim_raises_inside_the_users_transaction(ledger: PostgresLedger, kind: Kind) -> None:
    """I4: the fence is checked there, so the late worker's business write is undone with ours."""
    gate, other = ledger.gate(), ledger.gate()
    other.handler("bookings", key="{id}")(lambda event, once: "by the other")

    async def body(event, once):
        ledger.lapse()
        with running(lambda: other.admit_sync("bookings", EVENT)) as answers:
            pass
        assert answers[0].value == "by the other"
        async with kind.transaction(ledger.url) as tx:
            await kind.write(tx, event["equipment"], "late")
            await kind.commit(once, tx)

    kind.register(gate, body)
    with pytest.raises(ClaimLost, match="roll this transaction back"):
        kind.run(kind.admit(gate, EVENT))
    assert (ledger.bookings(), ledger.states()) == ([], ["committed"])
    assert kind.run(kind.admit(gate, EVENT)).value == "by the other"


def test_returning_before_the_commit_is_told_and_recovered_later(
    ledger: PostgresLedger, kind: Kind
) -> None:
    """The handler is told what it forgot, nobody waits behind its lock, and the lease lapses as usual."""
    gate = ledger.gate()
    borrowed: list[Any] = []

    async def body(event, once):
        async with contextlib.AsyncExitStack() as stack:
            tx = borrowed[0] if borrowed else await stack.enter_async_context(kind.transaction(ledger.url))
            await kind.write(tx, event["equipment"])
            await kind.commit(once, tx)
        return once.attempt

    async def forget() -> None:
        async with kind.transaction(ledger.url) as tx:
            borrowed.append(tx)
            with pytest.raises(UsageError, match="commit it inside the handler"):
                await kind.admit(gate, EVENT)
            raise Undo

    kind.register(gate, body)
    with pytest.raises(Undo):
        kind.run(forget())
    assert (ledger.bookings(), ledger.states()) == ([], ["in_flight"])
    borrowed.clear()
    ledger.lapse()
    assert kind.run(kind.admit(gate, EVENT)).value == 2
    assert (ledger.bookings(), ledger.states()) == (BOOKED, ["committed"])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.is_async], ids=lambda kind: kind.name)
def test_a_join_that_is_never_awaited_does_not_pass(ledger: PostgresLedger, kind: Kind) -> None:
    """The business write is committed without its outcome: nothing may simply run it again."""
    gate = ledger.gate()

    async def body(event, once):
        async with kind.transaction(ledger.url) as tx:
            await kind.write(tx, event["equipment"])
            once.commit(tx=tx)

    kind.register(gate, body)
    with pytest.raises(UsageError, match="await it"):
        kind.run(kind.admit(gate, EVENT))
    assert (ledger.bookings(), ledger.states()) == (BOOKED, ["unknown"])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.is_async], ids=lambda kind: kind.name)
def test_async_with_joins_too(ledger: PostgresLedger, kind: Kind) -> None:
    """`async with once.commit(tx=…):` is the same as awaiting it."""
    gate = ledger.gate()

    async def body(event, once):
        async with kind.transaction(ledger.url) as tx, once.commit(tx=tx):
            await kind.write(tx, event["equipment"])

    kind.register(gate, body)
    assert kind.run(kind.admit(gate, EVENT)).verdict is Verdict.RUN
    assert (ledger.bookings(), ledger.states()) == (BOOKED, ["committed"])


def test_an_async_transaction_in_a_plain_handler_is_refused(ledger: PostgresLedger) -> None:
    """A plain handler cannot wait for it."""
    gate, kind = ledger.gate(), next(kind for kind in KINDS if kind.name == "asyncpg")

    async def scenario() -> None:
        async with kind.transaction(ledger.url) as tx:
            gate.handler("bookings", key="{id}")(lambda event, once: once.commit(tx=tx))
            gate.handler("together", key="{id}", same_database=True)(lambda event, once: None)
            with pytest.raises(UsageError, match="tx= is async"):
                await gate.admit("bookings", EVENT)
            with pytest.raises(UsageError, match="tx= is async"):
                gate.admit_sync("together", EVENT, tx=tx)

    kind.run(scenario())


def test_a_refused_business_write_is_told(ledger: PostgresLedger, kind: Kind) -> None:
    """What is given as data fails like any business write, and the user's block undoes everything."""
    gate = ledger.gate()

    async def body(event, once):
        async with kind.transaction(ledger.url) as tx:
            await kind.write(tx, "A")
            await kind.commit(once, tx, writes=[(PERCENT, ("A", "again"))])

    kind.register(gate, body)
    with pytest.raises(StoreRejected, match="unique"):
        kind.run(kind.admit(gate, EVENT))
    assert (ledger.bookings(), ledger.states()) == ([], ["retryable"])


# --- same-database mode in the caller's own transaction


def together(ledger: PostgresLedger, kind: Kind, given: list[Any], runs: list[int]) -> Gate:
    """A process whose handler books through the transaction that its caller has opened."""
    gate = ledger.gate()

    async def body(event, once):
        runs.append(once.attempt)
        await kind.write(given[-1], event["equipment"])
        return {"slot": "s-1"}

    kind.register(gate, body, same_database=True)
    return gate


def test_admitting_in_the_callers_transaction(ledger: PostgresLedger, kind: Kind) -> None:
    """E4: reservation, mutation and outcome are one commit, the caller's; repeats write nothing."""
    given: list[Any] = []
    runs: list[int] = []

    async def admit(gate: Gate) -> Any:
        async with kind.transaction(ledger.url) as tx:
            given.append(tx)
            first = await kind.admit(gate, EVENT, tx=tx)
            again = await kind.admit(gate, EVENT, tx=tx)
            seen = (ledger.bookings(), ledger.states())
            return first, again, seen

    first, again, seen = kind.run(admit(together(ledger, kind, given, runs)))
    assert (first.verdict, again.verdict, seen) == (Verdict.RUN, Verdict.REPLAY, ([], []))
    assert (ledger.bookings(), ledger.states()) == (BOOKED, ["committed"])
    replay, _, _ = kind.run(admit(together(ledger, kind, given, runs)))
    assert (replay.verdict, replay.value, runs) == (Verdict.REPLAY, {"slot": "s-1"}, [1])


@pytest.mark.parametrize("commits", [False, True], ids=["rolled back", "committed all the same"])
def test_an_error_is_the_callers_to_end(ledger: PostgresLedger, kind: Kind, commits: bool) -> None:
    """Rolled back, nothing was ever there; a caller who commits half a handler has it held for a person."""
    gate = ledger.gate()

    async def body(event, once):
        raise Undo("half done")

    async def admit() -> None:
        async with kind.transaction(ledger.url) as tx:
            await kind.write(tx, "A")
            try:
                await kind.admit(gate, EVENT, tx=tx)
            except Undo:
                if not commits:
                    raise

    kind.register(gate, body, same_database=True)
    with contextlib.nullcontext() if commits else pytest.raises(Undo):
        kind.run(admit())
    assert (ledger.bookings(), ledger.states()) == (([("A", "s-1")], ["held"]) if commits else ([], []))


def test_a_cancelled_handler_whose_caller_commits_is_held(ledger: PostgresLedger) -> None:
    """I1: a timeout inside the caller's transaction is an error like any other."""
    gate = ledger.gate()
    entered = asyncio.Event()

    @gate.handler("bookings", key="{id}", same_database=True)
    async def body(event, once):
        entered.set()
        await asyncio.Event().wait()

    async def admit() -> None:
        connection = await asyncpg.connect(ledger.url)
        async with connection.transaction():
            task = asyncio.create_task(gate.admit("bookings", EVENT, tx=connection))
            await entered.wait()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await connection.close()

    asyncio.run(admit())
    assert ledger.states() == ["held"]


def test_a_stranded_key_is_recovered_in_the_callers_transaction(ledger: PostgresLedger, kind: Kind) -> None:
    """Busy while its lease lasts; lapsed, it is taken over there, with another content it conflicts."""
    given: list[Any] = []
    runs: list[int] = []
    ledger.rows("SELECT 1")
    lost, gate = ledger.gate(), together(ledger, kind, given, runs)

    def die(event: Any, once: Any) -> None:
        raise SystemExit

    lost.handler("bookings", key="{id}", lease="10m")(die)
    with pytest.raises(SystemExit):
        lost.admit_sync("bookings", EVENT)

    async def admit(event: Any) -> Verdict:
        async with kind.transaction(ledger.url) as tx:
            given.append(tx)
            return (await kind.admit(gate, event, tx=tx)).verdict

    assert kind.run(admit(EVENT)) is Verdict.BUSY
    assert kind.run(admit({**EVENT, "equipment": "other"})) is Verdict.CONFLICT
    ledger.lapse()
    assert kind.run(admit(EVENT)) is Verdict.RUN
    assert (ledger.bookings(), ledger.states(), runs) == (BOOKED, ["committed", "quarantined"], [2])


@pytest.mark.parametrize("commits", [True, False], ids=["commits", "rolls back"])
def test_the_second_of_two_transactions_waits_for_the_first(ledger: PostgresLedger, commits: bool) -> None:
    """READ COMMITTED: the conditional insert waits, then replays what was committed or runs itself."""
    kind, runs = KINDS[0], []
    gate = ledger.gate()
    gate.handler("bookings", key="{id}", same_database=True)(lambda event, once: runs.append(once.key))

    def second() -> Verdict:
        with psycopg.connect(ledger.url, application_name="second") as connection:
            connection.execute("SELECT 1")
            return gate.admit_sync("bookings", EVENT, tx=connection).verdict

    async def first(stack: contextlib.ExitStack) -> list[Any]:
        async with kind.transaction(ledger.url) as tx:
            gate.admit_sync("bookings", EVENT, tx=tx)
            answers = stack.enter_context(running(second))
            await_lock(ledger)
            if not commits:
                tx.execute("ROLLBACK")
        return answers

    with contextlib.ExitStack() as stack:
        answers = kind.run(first(stack))
    assert (answers, len(runs)) == (([Verdict.REPLAY], 1) if commits else ([Verdict.RUN], 2))


def await_lock(ledger: PostgresLedger) -> None:
    """Waits until the second transaction waits for a lock; the server itself is asked."""
    waits = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'second' AND wait_event_type = 'Lock'"
    for _ in range(int(DEADLINE_SECONDS * 1000)):
        if ledger.rows(waits):
            return
    raise AssertionError("the second transaction did not wait")


def test_a_surface_that_may_act_outside_is_not_admitted_in_a_transaction(ledger: PostgresLedger) -> None:
    """Its reservation would not be durable before the outside call."""
    gate, kind = ledger.gate(), KINDS[0]
    gate.handler("bookings", key="{id}")(lambda event, once: None)

    async def scenario() -> None:
        async with kind.transaction(ledger.url) as tx:
            await kind.admit(gate, EVENT, tx=tx)

    with pytest.raises(UsageError, match="same_database=True"):
        kind.run(scenario())


def test_an_engine_that_commits_every_statement_is_refused(ledger: PostgresLedger) -> None:
    """SQLAlchemy calls it a transaction, the server does not."""
    gate = ledger.gate()
    url = sqlalchemy_url(ledger.url, "psycopg")
    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool)

    def handle(event, once):
        with engine.begin() as tx:
            once.commit(tx=tx)

    gate.handler("bookings", key="{id}")(handle)
    with pytest.raises(UsageError, match="no transaction open"):
        gate.admit_sync("bookings", EVENT)
    assert ledger.states() == ["retryable"]


def test_stand_ins_lead_to_what_they_stand_for(ledger: PostgresLedger) -> None:
    """Scoped sessions, pools and subclasses are what users really hold."""
    gate, events = ledger.gate(), iter(range(9))
    gate.handler("together", key="{id}", same_database=True)(lambda event, once: None)

    class OwnSession(Session):
        """A user's own subclass."""

    engine = sqlalchemy.create_engine(sqlalchemy_url(ledger.url, "psycopg"), poolclass=NullPool)
    scoped = scoped_session(sessionmaker(engine, class_=OwnSession))
    with scoped.begin():
        assert gate.admit_sync("together", {"id": next(events)}, tx=scoped).verdict is Verdict.RUN
    scoped.remove()

    async def on_a_pool() -> Verdict:
        pool = asyncpg.create_pool(ledger.url, min_size=1, max_size=1)
        async with pool, pool.acquire() as connection, connection.transaction():
            return (await gate.admit("together", {"id": next(events)}, tx=connection)).verdict

    assert asyncio.run(on_a_pool()) is Verdict.RUN
    assert ledger.states() == ["committed", "committed"]


def test_rows_of_another_shape_do_not_matter(ledger: PostgresLedger) -> None:
    """The user's row factory is for the user's rows."""
    gate = ledger.gate()
    gate.handler("together", key="{id}", same_database=True)(lambda event, once: None)
    with psycopg.connect(ledger.url, row_factory=dict_row) as connection, connection.transaction():
        assert gate.admit_sync("together", EVENT, tx=connection).verdict is Verdict.RUN
    assert ledger.states() == ["committed"]


@pytest.mark.parametrize("tx", ["a text", 7, object()], ids=lambda tx: type(tx).__name__)
def test_something_else_is_refused(ledger: PostgresLedger, tx: Any) -> None:
    """The message names what was given and what is wanted."""
    gate = ledger.gate()
    gate.handler("bookings", key="{id}")(lambda event, once: once.commit(tx=tx))
    with pytest.raises(UsageError, match="on a PostgreSQL ledger give"):
        gate.admit_sync("bookings", EVENT)


def test_an_event_is_published_with_the_users_commit(ledger: PostgresLedger, kind: Kind) -> None:
    """C5: undone with their transaction, visible with its commit, and refused on another database."""
    feed = Feed(ledger.gate())

    async def publish(event_id: str, tx: Any) -> None:
        wanted: dict[str, Any] = {"tenant": "acme", "event_id": event_id, "key": "wh-7", "data": 1}
        if kind.is_async:
            await feed.publish(**wanted, tx=tx)
        else:
            feed.publish_sync(**wanted, tx=tx)

    async def scene() -> None:
        with contextlib.suppress(Undo):
            async with kind.transaction(ledger.url) as tx:
                await publish("undone", tx)
                raise Undo
        async with kind.transaction(ledger.url) as tx:
            await publish("kept", tx)
            assert feed.read_sync("exec", tenant="acme").events == ()
        with pytest.raises(UsageError):
            async with kind.transaction(ledger.elsewhere) as tx:
                await publish("elsewhere", tx)

    kind.run(scene())
    events = feed.read_sync("exec", tenant="acme").events
    assert [(event.id, event.seq) for event in events] == [("kept", 1)]


def test_a_mark_of_content_is_kept_with_the_users_transaction(ledger: PostgresLedger, kind: Kind) -> None:
    """E6: committed with it, undone with it, whichever library sends it."""
    gate = ledger.gate()

    async def body(event, once):
        return "done"

    kind.register(gate, body, same_database=True, content=Content(("equipment",), "{id}", "cancel {id}"))

    async def scenario(ends: type[Exception] | None) -> None:
        with contextlib.suppress(Undo):
            async with kind.transaction(ledger.url) as tx:
                await kind.admit(gate, EVENT, tx=tx)
                if ends is not None:
                    raise ends

    kind.run(scenario(Undo))
    assert ledger.rows("SELECT count(*) FROM oncegate_content") == [(0,)]
    kind.run(scenario(None))
    found = ledger.rows("SELECT target, compensation, length(hash) FROM oncegate_content")
    assert found == [("N-1", "cancel {id}", 16)]
