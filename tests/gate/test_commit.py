"""Commit: the business write and the outcome are one transaction, as data or in a block."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from typing import Any

import pytest

from oncegate import Gate, StoreError, UsageError, Verdict
from oncegate.errors import StoreRejected
from oncegate.store import LogKind
from oncegate.testing.waiting import DEADLINE_SECONDS
from tests.support.gates import BOOK, Ledger, Style, Terminal, running, until, wait_for

EVENT = {"id": "N-1", "equipment": "MSKU1234565"}
BOOKED = [("MSKU1234565", "s-1")]


def test_writes_as_data_are_committed_with_the_outcome(booked_ledger: Ledger, style: Style) -> None:
    """A5: nothing of it is in the database before the handler has returned, all of it after."""
    gate, before = booked_ledger.gate(), []

    def body(event, once):
        once.commit(resource="s-1", writes=[(BOOK, (event["equipment"], "s-1"))])
        before.append((booked_ledger.bookings(), booked_ledger.state()))
        return "booked"

    style.register(gate, "bookings", body)
    answer = style.admit(gate, "bookings", EVENT)
    assert before == [([], "in_flight")]
    assert (booked_ledger.bookings(), booked_ledger.state()) == (BOOKED, "committed")
    assert (answer.value, answer.resource) == ("booked", "s-1")
    # And the replay shows both and writes nothing
    replay = style.admit(booked_gate(booked_ledger, style, body), "bookings", EVENT)
    assert (replay.verdict, replay.value, replay.resource) == (Verdict.REPLAY, "booked", "s-1")
    assert booked_ledger.bookings() == BOOKED


def booked_gate(ledger: Ledger, style: Style, body: Any, **options: Any) -> Gate:
    """Another process with the same handler."""
    gate = ledger.gate()
    style.register(gate, "bookings", body, **options)
    return gate


def test_writes_are_run_in_the_order_given(booked_ledger: Ledger, style: Style) -> None:
    """Several statements, several calls of commit: one transaction, in order."""
    gate = booked_ledger.gate()

    def body(event, once):
        once.commit(writes=[(BOOK, ("A", "first")), ("UPDATE bookings SET slot = 'second'", ())])
        once.commit(writes=[("UPDATE bookings SET slot = slot || ', third'", [])])

    style.register(gate, "bookings", body)
    style.admit(gate, "bookings", EVENT)
    assert booked_ledger.bookings() == [("A", "second, third")]


def test_awaiting_a_commit_of_data_is_allowed(booked_ledger: Ledger) -> None:
    """In an async handler `await once.commit(…)` reads naturally; it only says what belongs together."""
    gate = booked_ledger.gate()

    @gate.handler("bookings", key="{id}")
    async def book(event, once):
        await once.commit(writes=[(BOOK, (event["equipment"], "s-1"))])

    asyncio.run(gate.admit("bookings", EVENT))
    assert booked_ledger.bookings() == BOOKED


@pytest.mark.parametrize(
    "statement",
    [
        ("INSERT INTO no_such_table VALUES (?)", (1,)),
        (BOOK, (None, "s-1")),
        (BOOK, ("too", "many", "values")),
        (BOOK, (object(), "s-1")),
        ("not sql", ()),
    ],
    ids=["no table", "constraint", "parameters", "not storable", "not sql"],
)
def test_a_refused_business_write_undoes_the_outcome_with_it(
    booked_ledger: Ledger, style: Style, statement: Any
) -> None:
    """A5: all or nothing: no booking, no outcome, no committed record."""
    # Given a handler whose second write is refused
    gate = booked_ledger.gate()

    def body(event, once):
        once.commit(writes=[(BOOK, ("A", "s-1")), statement])
        return "booked"

    style.register(gate, "bookings", body)
    # When it returns
    with pytest.raises(StoreRejected):
        style.admit(gate, "bookings", EVENT)
    # Then nothing of it is there
    assert booked_ledger.bookings() == []
    assert booked_ledger.state() != "committed"
    assert booked_ledger.rows("SELECT * FROM oncegate_outcome") == []
    assert LogKind.COMMITTED not in booked_ledger.log_kinds()


def test_writes_of_a_handler_that_fails_are_not_run(booked_ledger: Ledger, style: Style) -> None:
    """They belong to the outcome: without it there is nothing to commit them with."""
    gate, fails = booked_ledger.gate(), [True]

    def body(event, once):
        once.commit(writes=[(BOOK, (event["equipment"], f"attempt {once.attempt}"))])
        if fails:
            fails.pop()
            raise Sorry
        return "booked"

    style.register(gate, "bookings", body)
    with pytest.raises(Sorry):
        style.admit(gate, "bookings", EVENT)
    assert (booked_ledger.bookings(), booked_ledger.state()) == ([], "retryable")
    assert style.admit(gate, "bookings", EVENT).value == "booked"
    assert booked_ledger.bookings() == [("MSKU1234565", "attempt 2")]


def test_a_write_that_is_refused_once_can_be_tried_again(booked_ledger: Ledger, style: Style) -> None:
    """What was undone may be done: after the cause is gone, the event is finished."""
    booked_ledger.rows(BOOK, ("MSKU1234565", "somebody else's"))
    gate = booked_ledger.gate()

    def body(event, once):
        once.commit(writes=[(BOOK, (event["equipment"], "s-1"))])

    style.register(gate, "bookings", body)
    with pytest.raises(StoreRejected):
        style.admit(gate, "bookings", EVENT)
    booked_ledger.rows("DELETE FROM bookings")
    booked_ledger.lapse()
    assert style.admit(gate, "bookings", EVENT).verdict is Verdict.RUN
    assert booked_ledger.bookings() == BOOKED


def test_a_write_that_is_always_refused_ends_in_front_of_a_person(
    booked_ledger: Ledger, style: Style
) -> None:
    """D2, I18: the outcome is recorded on every path, and attempts are bounded on every path."""
    gate, runs = booked_ledger.gate(), []

    def body(event, once):
        runs.append(once.attempt)
        once.commit(writes=[("INSERT INTO no_such_table VALUES (1)", ())])

    style.register(gate, "bookings", body, attempts_max=3)
    for _ in range(5):
        try:
            style.admit(gate, "bookings", EVENT)
        except StoreRejected:
            booked_ledger.lapse()
    assert runs == [1, 2, 3]
    assert booked_ledger.state() == "held"
    assert "no_such_table" in booked_ledger.reason()


@pytest.mark.parametrize("value", [2**63, "\udcff"], ids=["integer", "text"])
def test_a_write_that_cannot_be_bound_harms_nobody_else(booked_ledger: Ledger, value: Any) -> None:
    """Events that happen to be committed together do not share each other's mistakes."""
    # Given a handler that hands over a value which SQLite cannot store, and another, opaque one
    gate, runs = booked_ledger.gate(), []

    @gate.handler("bad", key="{id}")
    async def bad(event, once):
        once.commit(writes=[(BOOK, ("A", value))])

    @gate.handler("good", key="{id}")
    async def good(event):
        runs.append(event)

    async def both() -> Any:
        arrivals = (gate.admit("bad", EVENT), gate.admit("good", EVENT))
        return await asyncio.wait_for(asyncio.gather(*arrivals, return_exceptions=True), DEADLINE_SECONDS)

    # When both are settled in one batch
    refused, answer = asyncio.run(both())
    # Then one is refused and the other is done, once
    assert isinstance(refused, StoreError)
    assert not isinstance(answer, BaseException)
    assert answer.verdict is Verdict.RUN
    assert asyncio.run(gate.admit("good", EVENT)).verdict is Verdict.REPLAY
    assert len(runs) == 1


@pytest.mark.parametrize("way", ["step", "effect", "commit"])
def test_a_resource_that_is_not_unicode_harms_nobody(booked_ledger: Ledger, way: str) -> None:
    """JSON may hold half of a surrogate pair; a downstream that sends one must not spoil a batch."""
    gate, runs = booked_ledger.gate(), []
    ect = gate.downstream("ect", honours_key="7d")

    async def both() -> Any:
        # Given two handlers that go on in the same turn of the loop, so that they share a batch
        together = asyncio.Barrier(2)

        async def claim(idempotency_key=""):
            await together.wait()
            return json.loads('{"id": "\\ud800"}')

        @gate.handler("bad", key="{id}")
        async def bad(event, once):
            if way == "commit":
                once.commit(resource=(await claim())["id"])
            elif way == "step":
                await once.step("claim", claim)
            else:
                await once.effect(ect, claim)
            return "done"

        @gate.handler("good", key="{id}")
        async def good(event):
            runs.append(event)
            await together.wait()

        arrivals = (gate.admit("bad", EVENT), gate.admit("good", EVENT))
        return await asyncio.wait_for(asyncio.gather(*arrivals, return_exceptions=True), DEADLINE_SECONDS)

    # When both are settled
    bad_answer, good_answer = asyncio.run(both())
    # Then the one is done, once
    assert not isinstance(good_answer, BaseException)
    assert asyncio.run(gate.admit("good", EVENT)).verdict is Verdict.REPLAY
    assert len(runs) == 1
    # And so is the other
    assert not isinstance(bad_answer, BaseException)
    assert bad_answer.verdict is Verdict.RUN


def test_a_refused_write_harms_nobody_else_in_its_batch(booked_ledger: Ledger) -> None:
    """One settlement's bad statement undoes that settlement, not its neighbours'."""
    gate, count = booked_ledger.gate(), 20

    @gate.handler("bookings", key="{id}")
    async def book(event, once):
        table = "no_such_table" if event["id"] % 5 == 0 else "bookings"
        once.commit(writes=[(f"INSERT INTO {table} VALUES (?, 's')", (str(event["id"]),))])

    async def arrive() -> list[Any]:
        arrivals = [gate.admit("bookings", {"id": number}) for number in range(count)]
        return await asyncio.gather(*arrivals, return_exceptions=True)

    answers = asyncio.run(arrive())
    for number, answer in enumerate(answers):
        assert isinstance(answer, StoreRejected) == (number % 5 == 0)
    assert len(booked_ledger.bookings()) == 16


def test_a_commit_block_commits_its_statements_with_the_outcome(
    booked_ledger: Ledger, style: Style
) -> None:
    """At the end of the block both are there; the returned value is attached afterwards."""
    gate, after = booked_ledger.gate(), []

    def body(event, once):
        yield style.block(once, (BOOK, (event["equipment"], "s-1")), resource="s-1")
        after.append((booked_ledger.bookings(), booked_ledger.state()))
        return "booked"

    style.register(gate, "bookings", body)
    answer = style.admit(gate, "bookings", EVENT)
    assert after == [(BOOKED, "committed")]
    assert (answer.verdict, answer.value, answer.resource) == (Verdict.RUN, "booked", "s-1")
    replay = style.admit(booked_gate(booked_ledger, style, body), "bookings", EVENT)
    assert (replay.verdict, replay.value, replay.resource) == (Verdict.REPLAY, "booked", "s-1")
    assert booked_ledger.log_kinds() == [LogKind.COMMITTED]


def test_an_outcome_given_to_the_block_is_committed_with_it(booked_ledger: Ledger, style: Style) -> None:
    """`outcome=` makes the value part of the transaction; what the handler returns is not asked for."""
    gate = booked_ledger.gate()

    def body(event, once):
        yield style.block(once, (BOOK, (event["equipment"], "s-1")), outcome={"slot": "s-1"})
        return "ignored"

    style.register(gate, "bookings", body)
    assert style.admit(gate, "bookings", EVENT).value == {"slot": "s-1"}
    replay = style.admit(booked_gate(booked_ledger, style, body), "bookings", EVENT)
    assert replay.value == {"slot": "s-1"}


def test_a_block_reads_what_it_has_written(booked_ledger: Ledger) -> None:
    """`tx.execute` returns rows, of the transaction's own view."""
    gate = booked_ledger.gate()

    @gate.handler("plain", key="{id}")
    def plain(event, once):
        with once.commit() as tx:
            tx.execute(BOOK, ("A", "s-1"))
            rows = tx.execute("SELECT * FROM bookings")
        return rows

    @gate.handler("async", key="{id}")
    async def in_task(event, once):
        async with once.commit() as tx:
            await tx.execute(BOOK, ("B", "s-2"))
            rows = await tx.execute("SELECT * FROM bookings WHERE equipment = ?", ("B",))
        return rows

    assert gate.admit_sync("plain", EVENT).value == [["A", "s-1"]]
    assert asyncio.run(gate.admit("async", EVENT)).value == [["B", "s-2"]]


class Sorry(Exception):
    """An error of the user's own."""


def test_an_error_in_the_block_rolls_everything_back(booked_ledger: Ledger) -> None:
    """The block's statements are undone, the failure is recorded, a retry does it all."""
    gate, fails = booked_ledger.gate(), {"plain": True, "async": True}

    def check(surface: str) -> None:
        if fails[surface]:
            fails[surface] = False
            raise Sorry

    @gate.handler("plain", key="{id}")
    def plain(event, once):
        with once.commit() as tx:
            tx.execute(BOOK, ("A", "s-1"))
            check("plain")
        return "booked"

    @gate.handler("async", key="{id}")
    async def in_task(event, once):
        async with once.commit() as tx:
            await tx.execute(BOOK, ("B", "s-1"))
            check("async")
        return "booked"

    def arrive(surface: str) -> Any:
        return Style(surface).admit(gate, surface, EVENT)

    for surface in ("plain", "async"):
        with pytest.raises(Sorry):
            arrive(surface)
    assert booked_ledger.bookings() == []
    assert booked_ledger.states() == ["retryable", "retryable"]
    assert [arrive(surface).value for surface in ("plain", "async")] == ["booked", "booked"]
    assert booked_ledger.bookings() == [("A", "s-1"), ("B", "s-1")]


def test_a_refused_statement_in_the_block_rolls_everything_back(
    booked_ledger: Ledger, style: Style
) -> None:
    """SQLite's refusal comes at the statement, as an error of ours."""
    gate = booked_ledger.gate()

    def body(event, once):
        yield style.block(once, (BOOK, ("A", "s-1")), ("INSERT INTO no_such_table VALUES (1)", ()))

    style.register(gate, "bookings", body)
    with pytest.raises(StoreRejected, match="no_such_table"):
        style.admit(gate, "bookings", EVENT)
    assert booked_ledger.bookings() == []
    assert booked_ledger.state() != "committed"


@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK"])
def test_ending_the_transaction_inside_the_block_is_refused(
    booked_ledger: Ledger, style: Style, statement: str
) -> None:
    """The block belongs to the gate: whoever ends it would part the write from the outcome."""
    gate = booked_ledger.gate()

    def body(event, once):
        yield style.block(once, (statement, ()))

    style.register(gate, "bookings", body)
    with pytest.raises(UsageError, match="leave COMMIT and ROLLBACK to the gate"):
        style.admit(gate, "bookings", EVENT)
    assert booked_ledger.state() == "retryable"


@pytest.mark.parametrize("statement", ["COMMIT", "/* all */ rollback", "COMMIT AND CHAIN"])
def test_ending_the_transaction_by_data_touches_no_neighbour(booked_ledger: Ledger, statement: str) -> None:
    """I2, I3: writes of many events share a commit; whoever would end it is refused before it is sent."""
    gate = booked_ledger.gate()

    @gate.handler("bookings", key="{id}")
    async def book(event, once):
        writes = [(BOOK, (event["id"], "s"))]
        once.commit(writes=[*writes, (statement, ())] if event["id"] == "N-5" else writes)

    async def storm() -> list[Any]:
        events = [{"id": f"N-{number}"} for number in range(12)]
        return await asyncio.gather(
            *(gate.admit("bookings", event) for event in events), return_exceptions=True
        )

    answers = asyncio.run(storm())
    assert [type(answer) for answer in answers if isinstance(answer, Exception)] == [UsageError]
    assert len(booked_ledger.bookings()) == 11


@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK"])
def test_ending_the_transaction_in_a_step_or_a_rule_is_refused(
    booked_ledger: Ledger, style: Style, statement: str
) -> None:
    gate = booked_ledger.gate()

    def body(event, once):
        yield once.write("stock", [(BOOK, ("A", "s")), (statement, ())])

    style.register(gate, "bookings", body)
    style.register(gate, "rules", lambda event, once: None, writes=lambda event: [(statement, ())])
    for surface in ("bookings", "rules"):
        with pytest.raises(UsageError, match="leave COMMIT and ROLLBACK to the gate"):
            style.admit(gate, surface, EVENT)
    assert booked_ledger.bookings() == []


def test_parameters_by_name_are_written_as_values(booked_ledger: Ledger, style: Style) -> None:
    """A tuple of a mapping is its names: those were in the row."""
    gate = booked_ledger.gate()
    named = "INSERT INTO bookings (equipment, slot) VALUES (:equipment, :slot)"

    def body(event, once):
        once.commit(writes=[(named, {"equipment": "A", "slot": "s-1"})])
        yield once.write("stock", [(named, {"equipment": "B", "slot": "s-2"})])

    style.register(gate, "bookings", body)
    style.admit(gate, "bookings", EVENT)
    assert booked_ledger.bookings() == [("A", "s-1"), ("B", "s-2")]


@pytest.mark.parametrize("writes", ["INSERT", [BOOK], [(BOOK, "ab")], [(BOOK, 7)], 7])
def test_writes_of_another_shape_are_refused(booked_ledger: Ledger, style: Style, writes: Any) -> None:
    gate = booked_ledger.gate()

    def body(event, once):
        once.commit(writes=writes)

    style.register(gate, "bookings", body)
    with pytest.raises(UsageError, match="a list of statements, each with its parameters"):
        style.admit(gate, "bookings", EVENT)
    assert booked_ledger.bookings() == []


def test_data_and_block_together_are_one_transaction(booked_ledger: Ledger, style: Style) -> None:
    """Writes handed over before the block are committed with it."""
    gate = booked_ledger.gate()

    def body(event, once):
        once.commit(writes=[(BOOK, ("A", "data"))])
        yield style.block(once, (BOOK, ("B", "block")))

    style.register(gate, "bookings", body)
    style.admit(gate, "bookings", EVENT)
    assert booked_ledger.bookings() == [("A", "data"), ("B", "block")]


def test_effects_steps_and_commits_after_the_commit_are_refused(
    booked_ledger: Ledger, style: Style
) -> None:
    """What comes after the outcome could be lost with a crash and would never be tried again."""
    gate, terminal, refused = booked_ledger.gate(), Terminal(), []
    ect = gate.downstream("ect", honours_key="7d")

    def body(event, once):
        yield style.block(once, (BOOK, ("A", "s-1")))
        attempts = [
            lambda: once.effect(ect, style.function(terminal.claim), "X"),
            lambda: once.step("notify", style.function(terminal.claim), "X"),
            lambda: once.write("more", [(BOOK, ("B", "s-2"))]),
            lambda: once.commit(writes=[(BOOK, ("C", "s-3"))]),
            lambda: style.block(once, (BOOK, ("D", "s-4"))),
        ]
        for attempt in attempts:
            try:
                yield attempt()
            except UsageError as error:
                refused.append(str(error))
        return "booked"

    style.register(gate, "bookings", body)
    assert style.admit(gate, "bookings", EVENT).value == "booked"
    assert len(refused) == 5
    assert all("already committed" in text for text in refused)
    assert not terminal.keys
    assert booked_ledger.bookings() == [("A", "s-1")]


def test_an_error_after_the_block_does_not_undo_the_outcome(booked_ledger: Ledger, style: Style) -> None:
    """The caller gets the error; the key is settled all the same, and a repeat is a replay."""
    gate = booked_ledger.gate()

    def body(event, once):
        yield style.block(once, (BOOK, ("A", "s-1")))
        raise Sorry

    style.register(gate, "bookings", body)
    with pytest.raises(Sorry):
        style.admit(gate, "bookings", EVENT)
    assert (booked_ledger.state(), booked_ledger.bookings()) == ("committed", [("A", "s-1")])
    assert style.admit(gate, "bookings", EVENT).verdict is Verdict.REPLAY


def test_a_replay_before_the_value_was_attached_is_not_remembered(
    booked_ledger: Ledger, style: Style
) -> None:
    """Between the block's end and the handler's return there is no value yet; later there is one."""
    # Given another process at which the event arrives in that very moment
    gate, other, early = booked_ledger.gate(), booked_ledger.gate(), []
    Style("plain").register(other, "bookings", lambda event, once: "never")

    def body(event, once):
        yield style.block(once, (BOOK, ("A", "s-1")))
        early.append(other.admit_sync("bookings", EVENT))
        return "booked"

    style.register(gate, "bookings", body)
    style.admit(gate, "bookings", EVENT)
    # When it arrives there again
    assert [answer.value for answer in early] != ["never"]
    assert other.admit_sync("bookings", EVENT).value == "booked"


@pytest.mark.parametrize("style_name", ["plain", "async"])
def test_a_step_inside_the_block_is_refused_at_once(booked_ledger: Ledger, style_name: str) -> None:
    """An outside call while the database is locked cannot be recorded; it is refused like one after it."""
    gate = booked_ledger.gate()
    calls: list[int] = []

    @gate.handler("plain", key="{id}")
    def plain(event, once):
        with once.commit():
            once.step("notify", calls.append, 1)

    @gate.handler("async", key="{id}")
    async def in_task(event, once):
        async with once.commit():
            await once.step("notify", calls.append, 1)

    with pytest.raises(UsageError):
        Style(style_name).admit(gate, style_name, EVENT)
    assert not calls


def test_others_go_on_as_soon_as_a_block_ends(booked_ledger: Ledger, style: Style) -> None:
    """While one handler's block is open other writers wait; they are served when it ends."""
    gate = booked_ledger.gate()
    inside, leave = threading.Event(), threading.Event()

    @gate.handler("held", key="{id}")
    def held(event, once):
        with once.commit() as tx:
            tx.execute(BOOK, ("A", "s-1"))
            inside.set()
            wait_for(leave)

    style.register(gate, "bookings", lambda event, once: "done")
    other_done: list[Any] = []
    with running(lambda: gate.admit_sync("held", EVENT)) as held_answers:
        wait_for(inside)
        with running(lambda: other_done.append(style.admit(gate, "bookings", EVENT))):
            leave.set()
    assert held_answers[0].verdict is Verdict.RUN
    assert other_done[0].verdict is Verdict.RUN


def someone_waits_for_a_turn() -> bool:
    """Whether a thread is inside `begin`, waiting until it may write."""
    frames = sys._current_frames()
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0) if thread.name.startswith("oncegate-turn") else None
        while frame is not None:
            if frame.f_code.co_name == "begin":
                return True
            frame = frame.f_back
    return False


@pytest.mark.parametrize("same_database", [False, True], ids=["block", "same database"])
def test_a_task_cancelled_while_it_waits_for_its_turn_holds_nothing(
    booked_ledger: Ledger, same_database: bool
) -> None:
    """A client that goes away must not take the ledger's write lock with it."""
    gate = booked_ledger.gate()

    async def story() -> Any:
        reserved, proceed = asyncio.Event(), asyncio.Event()

        @gate.handler("bookings", key="{id}", same_database=same_database)
        async def book(event, once):
            reserved.set()
            await proceed.wait()
            if not same_database:
                async with once.commit():
                    pass

        gate.check_surfaces()
        # Given a task that waits for its turn to write, which another transaction has
        task = None
        if not same_database:
            task = asyncio.create_task(gate.admit("bookings", {"id": "waits"}))
            await reserved.wait()
        with gate.engine._context.commits.transaction():
            proceed.set()
            if task is None:
                task = asyncio.create_task(gate.admit("bookings", {"id": "waits"}))
            await until(someone_waits_for_a_turn)
            # When it is cancelled, and the other transaction ends
            task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        # Then the next event gets its turn
        return await gate.admit("bookings", {"id": "next"})

    assert asyncio.run(story()).verdict is Verdict.RUN


WRONG_WRITES: list[Any] = [
    BOOK,
    [BOOK],
    [(BOOK,)],
    [(BOOK, "ab")],
    [(BOOK, None)],
    [([], ())],
]


@pytest.mark.parametrize("writes", WRONG_WRITES, ids=range(len(WRONG_WRITES)))
def test_writes_that_are_no_statements_are_told(booked_ledger: Ledger, style: Style, writes: Any) -> None:
    """Wherever they are given; and nothing is on record."""
    gate = booked_ledger.gate()

    def commit(event, once):
        once.commit(writes=writes)

    def write(event, once):
        yield once.write("book", writes)

    style.register(gate, "commits", commit)
    style.register(gate, "steps", write)
    style.register(gate, "made", lambda event: None, writes=lambda event: writes)
    for surface in ("commits", "steps", "made"):
        with pytest.raises(UsageError, match="writes= is a list of statements"):
            style.admit(gate, surface, EVENT)
    assert booked_ledger.bookings() == []
