"""A commit whose reply is lost is unknown: it is read back before anything is decided (I5)."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from oncegate import Admission, Gate, Once, Verdict
from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.operations import Attach, Operation, ReadEntry, RecordProgress, Renew, Reserve, Settle
from oncegate.commit.review_operations import Rule
from oncegate.errors import OncegateError, StoreError, StoreUnavailable, StoreUnknown
from oncegate.maintenance.reconciler import Reconciler
from oncegate.model.decisions import Verb
from oncegate.model.keys import derive_key
from oncegate.model.states import Decision, State
from oncegate.store import (
    Attachment,
    EntryDetail,
    EntryFilter,
    LogKind,
    Renewal,
    Reservation,
    Reserved,
    Ruling,
    Settlement,
    StepRecord,
    StepRecords,
    StepState,
)
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing import Fault, Faults, ManualClock, faulty

DOUBTS = [Fault.LOST_REPLY, Fault.UNDONE]
KEY = derive_key("", "orders", "{id}", ("e",)).digest


class Ledger:
    """A ledger behind a faulty store, and the outside world that its handlers act on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        self.faults = Faults()
        self.store = faulty(SqliteStore(path, clock=self.clock), self.faults)
        self.effects: Counter[str] = Counter()
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE booking (ref TEXT)")

    def commits(self) -> GroupCommit:
        return GroupCommit(self.store, clock=self.clock)

    def gate(self) -> Gate:
        return Gate(store=self.store, clock=self.clock)

    def claim_slot(self, idempotency_key: str) -> dict[str, str]:
        self.effects[idempotency_key] += 1
        return {"id": f"slot of {idempotency_key}"}

    def detail(self, key: bytes = KEY) -> EntryDetail | None:
        with SqliteStore(self.path, clock=self.clock).look() as session:
            (entry,) = session.read([key])
            return None if entry is None else session.detail(entry.entry_id)

    def bookings(self) -> list[str]:
        with contextlib.closing(sqlite3.connect(self.path)) as connection:
            return [ref for (ref,) in connection.execute("SELECT ref FROM booking ORDER BY ref")]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.db")


@pytest.fixture
def commits(ledger: Ledger) -> Iterator[GroupCommit]:
    opened = ledger.commits()
    yield opened
    opened.close()


def reserve(token: int = 1) -> Reserve:
    return Reserve(Reservation(KEY, "", "orders", "e", b"content", b"{}", 1, 20_000, 8, token))


# --- operation by operation ------------------------------------------------------------------------


def test_reservation_whose_reply_is_lost_is_found_by_its_token(
    ledger: Ledger, commits: GroupCommit
) -> None:
    """It happened: the caller gets its claim, with the fence that stands in the ledger."""
    ledger.faults.plan.extend([Fault.LOST_REPLY])

    answer = commits.submit(reserve())

    found = ledger.detail()
    assert found is not None
    assert (answer.decision, answer.attempt) == (Decision.RUN, 1)
    assert (answer.entry_id, answer.fence) == (found.entry.entry_id, found.entry.fence)


def test_reservation_that_was_undone_is_told_as_not_done(ledger: Ledger, commits: GroupCommit) -> None:
    """It did not happen: the caller is told so, and the next arrival runs."""
    ledger.faults.plan.extend([Fault.UNDONE])

    with pytest.raises(StoreUnavailable):
        commits.submit(reserve())

    assert ledger.detail() is None
    assert commits.submit(reserve(2)).decision is Decision.RUN


def test_somebody_elses_claim_is_not_taken_for_ones_own(ledger: Ledger, commits: GroupCommit) -> None:
    """Under a lost reply an arrival that was only busy does not find itself the holder."""
    commits.submit(reserve(1))
    ledger.faults.plan.extend([Fault.LOST_REPLY])

    with pytest.raises(StoreUnavailable):
        commits.submit(reserve(2))


def test_take_over_whose_reply_is_lost_starts_nothing(ledger: Ledger, commits: GroupCommit) -> None:
    """A recovered claim that cannot be told with its steps is left to lapse, not run half-informed."""
    first = commits.submit(reserve(1))
    ledger.clock.advance(30)
    ledger.faults.plan.extend([Fault.LOST_REPLY])

    with pytest.raises(StoreUnavailable):
        commits.submit(reserve(2))

    assert commits.submit(reserve(3)).decision is Decision.BUSY
    ledger.clock.advance(30)
    again = commits.submit(reserve(4))
    assert (again.decision, again.attempt) == (Decision.RECOVER, 3)
    assert again.fence > first.fence


def _settle_for_a_person(ledger: Ledger, commits: GroupCommit) -> Ruling:
    """An entry that ran and is held; returns a person's word that it may run again."""
    first = commits.submit(reserve(1))
    held = Settlement(*first.claim, State.HELD, 1, "gate", reason="look at it")
    commits.submit(Settle(held))
    found = ledger.detail()
    assert found is not None
    reason = "approved by Ada: looked into it"
    seen = found.entry
    return Ruling(
        seen.entry_id, seen.fence, seen.key, Verb.APPROVE, "Ada", "looked into it", reason, at_ms=2
    )


def test_claim_after_a_persons_word_is_not_taken_for_the_first_of_all(
    ledger: Ledger, commits: GroupCommit
) -> None:
    """Its attempts count anew, but an earlier one may have called: it is left to lapse, and looked into."""
    # Given an entry that has run, was held, and may run again: its next attempt has number 1
    (answer,) = commits.submit(Rule((_settle_for_a_person(ledger, commits),)))
    assert answer.done
    # When the reply to the next reservation is lost
    ledger.faults.plan.extend([Fault.LOST_REPLY])
    with pytest.raises(StoreUnavailable):
        commits.submit(reserve(2))
    # Then the claim stands in the ledger, as an attempt with number 1, and nobody runs on it
    found = ledger.detail()
    assert found is not None
    assert (found.entry.state, found.entry.attempt, found.entry.token) == (State.IN_FLIGHT, 1, 2)


def test_claim_after_one_that_was_given_back_is_not_taken_for_the_first_of_all(
    ledger: Ledger, commits: GroupCommit
) -> None:
    """What it left on record is not read back here: a word that nothing happened must be replaced first."""
    # Given a claim that was given back before anything was called: the next attempt has number 1 again
    first = commits.submit(reserve(1))
    step = StepRecord("call", StepState.NOT_APPLIED, "(undeclared)")
    given = Settlement(*first.claim, State.RETRYABLE, 1, "gate", steps=(step,))
    commits.submit(Settle(replace(given, attempts_given_back=1)))
    # When the reply to the next reservation is lost, then nobody runs on it
    ledger.faults.plan.extend([Fault.LOST_REPLY])
    with pytest.raises(StoreUnavailable):
        commits.submit(reserve(2))
    found = ledger.detail()
    assert found is not None
    assert (found.entry.state, found.entry.attempt, found.entry.token) == (State.IN_FLIGHT, 1, 2)


@pytest.mark.parametrize("doubt", DOUBTS)
def test_doubtful_word_about_an_entry_that_is_gone_is_told_as_not_done(
    ledger: Ledger, commits: GroupCommit, doubt: Fault
) -> None:
    """Nothing stands there that could have been decided about: that is certain, not unknown."""
    ruling = _settle_for_a_person(ledger, commits)
    ledger.faults.plan.extend([doubt])

    with pytest.raises(StoreUnavailable):
        commits.submit(Rule((replace(ruling, entry_id=ruling.entry_id + 100),)))


@pytest.mark.parametrize("after", [Fault.DOWN, Fault.LOST_REPLY, Fault.UNDONE])
@pytest.mark.parametrize("doubt", DOUBTS)
def test_reading_back_that_fails_leaves_it_unknown(
    ledger: Ledger, commits: GroupCommit, doubt: Fault, after: Fault
) -> None:
    """Nobody guesses: while the ledger cannot be read the answer is StoreUnknown, and it recovers."""
    ledger.faults.plan.extend([doubt, after])

    with pytest.raises(StoreUnknown):
        commits.submit(reserve(1))

    decision = commits.submit(reserve(2)).decision
    assert decision is (Decision.BUSY if doubt is Fault.LOST_REPLY else Decision.RUN)


@pytest.mark.parametrize("state", [State.COMMITTED, State.FAILED, State.RETRYABLE, State.UNKNOWN])
@pytest.mark.parametrize("doubt", DOUBTS)
def test_doubtful_settlement_is_told_as_it_is(
    ledger: Ledger, commits: GroupCommit, doubt: Fault, state: State
) -> None:
    """A settlement that happened is True with one record; one that did not changed nothing."""
    claim = commits.submit(reserve())
    ledger.faults.plan.extend([doubt])
    writes = (("INSERT INTO booking VALUES ('b')", ()),) if state is State.COMMITTED else ()
    ended = Settlement(*claim.claim, state, 1, "test", b"1", writes=writes)

    told = outcome_of(lambda: commits.submit(Settle(ended)))

    found = ledger.detail()
    assert found is not None
    if doubt is Fault.LOST_REPLY:
        assert told is True
        assert found.entry.state is state
        assert [record.kind for record in found.records] == [LogKind(state.value)]
        assert len(ledger.bookings()) == len(writes)
    else:
        assert isinstance(told, StoreUnavailable)
        assert (found.entry.state, found.records, ledger.bookings()) == (State.IN_FLIGHT, (), [])
        assert commits.submit(Settle(ended)) is True


@pytest.mark.parametrize("doubt", DOUBTS)
def test_settlement_of_a_lost_claim_is_never_taken_for_done(
    ledger: Ledger, commits: GroupCommit, doubt: Fault
) -> None:
    """A zombie whose reply is lost as well does not find the new holder's settlement to be its own."""
    old = commits.submit(reserve(1))
    ledger.clock.advance(30)
    new = commits.submit(reserve(2))
    commits.submit(Settle(Settlement(*new.claim, State.COMMITTED, 1, "new")))
    ledger.faults.plan.extend([doubt])

    told = outcome_of(lambda: commits.submit(Settle(Settlement(*old.claim, State.COMMITTED, 1, "old"))))

    assert told is not True


@pytest.mark.parametrize("doubt", DOUBTS)
def test_doubtful_progress_is_told_as_it_is(ledger: Ledger, commits: GroupCommit, doubt: Fault) -> None:
    """A step counts as recorded exactly when it is, with its business write."""
    claim = commits.submit(reserve())
    steps = (StepRecord("a", StepState.STARTED, "d"), StepRecord("b", StepState.DONE, "d", b"1"))
    ledger.faults.plan.extend([doubt])
    wanted = StepRecords(*claim.claim, steps, 1, (("INSERT INTO booking VALUES ('s')", ()),))

    told = outcome_of(lambda: commits.submit(RecordProgress(wanted)))

    found = ledger.detail()
    assert found is not None
    happened = doubt is Fault.LOST_REPLY
    assert (told is True) is happened
    assert isinstance(told, StoreUnavailable) is not happened
    assert found.steps == (steps if happened else ())
    assert ledger.bookings() == (["s"] if happened else [])


@pytest.mark.parametrize("doubt", DOUBTS)
def test_a_doubtful_record_of_an_answer_is_told_as_it_is(
    ledger: Ledger, commits: GroupCommit, doubt: Fault
) -> None:
    """What a downstream said counts as recorded exactly when it is; another's record is not ours."""
    claim = commits.submit(reserve())
    notes = ["asked d about a: nothing found", "asked d about a: holds S-1"]
    first, wanted = (RecordProgress(StepRecords(*claim.claim, (), 1, probed=note)) for note in notes)
    commits.submit(first)
    ledger.faults.plan.extend([doubt])

    told = outcome_of(lambda: commits.submit(wanted))

    found = ledger.detail()
    assert found is not None
    happened = doubt is Fault.LOST_REPLY
    assert (told is True) is happened
    assert isinstance(told, StoreUnavailable) is not happened
    assert [record.note for record in found.records] == (notes if happened else notes[:1])


@pytest.mark.parametrize("doubt", DOUBTS)
def test_doubtful_attachment_is_told_as_it_is(ledger: Ledger, commits: GroupCommit, doubt: Fault) -> None:
    """An outcome counts as attached exactly when it is there."""
    claim = commits.submit(reserve())
    commits.submit(Settle(Settlement(*claim.claim, State.COMMITTED, 1, "test")))
    ledger.faults.plan.extend([doubt])

    told = outcome_of(lambda: commits.submit(Attach(Attachment(*claim.claim, b'"value"'))))

    found = ledger.detail()
    assert found is not None
    assert (told is True) is (found.outcome == b'"value"') is (doubt is Fault.LOST_REPLY)


@pytest.mark.parametrize("doubt", DOUBTS)
def test_doubtful_renewal_and_reading_do_no_harm(
    ledger: Ledger, commits: GroupCommit, doubt: Fault
) -> None:
    """A lease that may not have been renewed counts as not renewed; an entry is read again."""
    claim = commits.submit(reserve())
    ledger.faults.plan.extend([doubt])
    with pytest.raises(StoreUnavailable):
        commits.submit(Renew(Renewal(*claim.claim, 20_000)))
    ledger.faults.plan.extend([doubt])

    entry = commits.submit(ReadEntry(KEY))

    assert entry is not None
    assert entry.fence == claim.fence


@pytest.mark.parametrize("doubt", DOUBTS)
def test_everybody_in_a_doubtful_batch_is_told_their_own_fate(ledger: Ledger, doubt: Fault) -> None:
    """Reservations and settlements of one doubtful batch are read back one by one."""
    commits = GroupCommit(ledger.store, clock=ledger.clock, inline=False)
    claim = commits.submit(reserve())
    keys = [derive_key("", "orders", "{id}", (f"n{number}",)).digest for number in range(4)]
    wanted = [
        Reserve(Reservation(key, "", "orders", "n", b"c", b"{}", 1, 20_000, 8, 50 + number))
        for number, key in enumerate(keys)
    ]
    ended = Settlement(*claim.claim, State.COMMITTED, 1, "test")
    ledger.faults.plan.extend([doubt])

    async def perform_together() -> list[Any]:
        operations: list[Operation[Any]] = [*wanted, Settle(ended)]
        calls = [commits.submit_async(operation) for operation in operations]
        return list(await asyncio.gather(*calls, return_exceptions=True))

    answers = asyncio.run(perform_together())
    commits.close()

    assert ledger.faults.sizes("reserve")[-1] == 4
    if doubt is Fault.LOST_REPLY:
        assert all(isinstance(a, Reserved) and a.decision is Decision.RUN for a in answers[:4])
        assert answers[4] is True
    else:
        assert [type(answer) for answer in answers] == [StoreUnavailable] * 5


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.UNDONE, Fault.DOWN])
def test_session_whose_commit_failed_is_not_used_again(
    ledger: Ledger, commits: GroupCommit, fault: Fault
) -> None:
    """A connection of which nobody knows what it is in the middle of is closed, and a new one opened."""
    ledger.faults.plan.extend([fault, Fault.NONE, Fault.NONE])
    outcome_of(lambda: commits.submit(reserve(1)))
    before = ledger.faults.connects

    commits.submit(reserve(2))
    commits.submit(reserve(3))

    assert ledger.faults.connects == before + 1


def outcome_of(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except OncegateError as error:
        return error


# --- through the gate ------------------------------------------------------------------------------


def honouring(ledger: Ledger, gate: Gate) -> None:
    """A slot at a downstream that honours the key, and a booking handed over as data."""
    terminal = gate.downstream("terminal", honours_key="24h")

    @gate.handler("orders", key="{id}")
    def book(event: dict[str, Any], once: Once) -> str:
        slot = once.effect(terminal, ledger.claim_slot)
        once.commit(writes=[("INSERT INTO booking VALUES (?)", (slot["id"],))])
        return slot["id"]


def unrepeatable(ledger: Ledger, gate: Gate) -> None:
    """A step that nobody can be asked about, and a booking in a transaction of the handler's own."""

    @gate.handler("orders", key="{id}")
    def book(event: dict[str, Any], once: Once) -> str:
        slot = once.step("claim", ledger.claim_slot)
        with once.commit(outcome=slot["id"]) as tx:
            tx.execute("INSERT INTO booking VALUES (?)", (slot["id"],))
        return slot["id"]


def stepwise(ledger: Ledger, gate: Gate) -> None:
    """A booking written as a step of its own, and then the slot."""
    terminal = gate.downstream("terminal", honours_key="24h")

    @gate.handler("orders", key="{id}")
    def book(event: dict[str, Any], once: Once) -> str:
        once.write("book", [("INSERT INTO booking VALUES (?)", (once.key,))])
        return once.effect(terminal, ledger.claim_slot)["id"]


def same_database(ledger: Ledger, gate: Gate) -> None:
    """Reservation, booking and outcome in one transaction."""

    @gate.handler("orders", key="{id}", same_database=True)
    def book(event: dict[str, Any], once: Once) -> str:
        once.tx.execute("INSERT INTO booking VALUES (?)", (once.key,))
        return once.key


def with_attachment(ledger: Ledger, gate: Gate) -> None:
    """A booking in the handler's own transaction, its value attached after it."""
    terminal = gate.downstream("terminal", honours_key="24h")

    @gate.handler("orders", key="{id}")
    def book(event: dict[str, Any], once: Once) -> str:
        slot = once.effect(terminal, ledger.claim_slot)
        with once.commit() as tx:
            tx.execute("INSERT INTO booking VALUES (?)", (slot["id"],))
        return slot["id"]


HANDLERS = [honouring, unrepeatable, stepwise, same_database, with_attachment]


@pytest.mark.parametrize("doubt", DOUBTS)
@pytest.mark.parametrize("commit", range(5), ids=lambda number: f"commit{number + 1}")
@pytest.mark.parametrize("handlers", HANDLERS, ids=lambda function: function.__name__)
def test_event_survives_doubt_about_any_one_commit(
    ledger: Ledger, handlers: Callable[[Ledger, Gate], None], commit: int, doubt: Fault
) -> None:
    """Whichever commit of an event is in doubt, and whatever became of it: one effect, one booking."""
    gate = ledger.gate()
    handlers(ledger, gate)
    gate.check_surfaces()
    ledger.faults.plan.extend([Fault.NONE] * commit + [doubt])

    first = outcome_of(lambda: gate.admit_sync("orders", {"id": "e"}))
    effects_by_then = sum(ledger.effects.values())
    gate.close()
    final = finish(ledger, handlers)

    if commit == 0 and doubt is Fault.UNDONE:
        assert isinstance(first, StoreError)
        assert effects_by_then == 0, "an effect was started on a reservation that does not exist"
    if doubt is Fault.LOST_REPLY and handlers is not same_database:
        assert isinstance(first, Admission), "it happened, and could have been read back"
        assert first.verdict is Verdict.RUN
    check_once(ledger, final, at_most=handlers is unrepeatable)


@pytest.mark.parametrize("doubt", DOUBTS)
def test_doubt_about_a_surfaces_registration_costs_nothing(ledger: Ledger, doubt: Fault) -> None:
    """It is read back, or made again; the first event runs either way."""
    ledger.faults.plan.append(doubt)
    gate = ledger.gate()
    honouring(ledger, gate)
    assert gate.admit_sync("orders", {"id": "e"}).verdict is Verdict.RUN
    gate.close()
    check_once(ledger, finish(ledger, honouring))


@pytest.mark.parametrize("handlers", [honouring, unrepeatable, stepwise], ids=lambda f: f.__name__)
@pytest.mark.parametrize("doubt", DOUBTS)
def test_no_effect_starts_on_an_unknown_reservation(
    ledger: Ledger, handlers: Callable[[Ledger, Gate], None], doubt: Fault
) -> None:
    """When the reservation cannot be read back either, nothing is called, from a thread or a task."""
    gate = ledger.gate()
    handlers(ledger, gate)
    gate.check_surfaces()

    for admit in (
        lambda: gate.admit_sync("orders", {"id": "e"}),
        lambda: asyncio.run(gate.admit("orders", {"id": "e"})),
    ):
        ledger.faults.plan.extend([doubt, Fault.DOWN])
        with pytest.raises(StoreUnknown):
            admit()
        assert not ledger.effects
        assert ledger.bookings() == []
        ledger.clock.advance(30)

    gate.close()
    check_once(ledger, finish(ledger, handlers))


def test_no_unrepeatable_call_starts_on_an_unrecorded_start(ledger: Ledger) -> None:
    """When the record of its start is undone, an unrepeatable step is not called."""
    gate = ledger.gate()
    unrepeatable(ledger, gate)
    gate.check_surfaces()
    ledger.faults.plan.extend([Fault.NONE, Fault.UNDONE])

    with pytest.raises(StoreError):
        gate.admit_sync("orders", {"id": "e"})

    assert not ledger.effects
    gate.close()
    check_once(ledger, finish(ledger, unrepeatable))


def test_same_database_handler_that_raises_leaves_no_booking(ledger: Ledger) -> None:
    """Booking and reservation are undone together; the failure alone is recorded, and tried again."""
    gate, fails = ledger.gate(), [True]

    @gate.handler("orders", key="{id}", same_database=True)
    def book(event: dict[str, Any], once: Once) -> None:
        once.tx.execute("INSERT INTO booking VALUES ('b')")
        if fails:
            raise ValueError("after the booking")

    with pytest.raises(ValueError, match="after the booking"):
        gate.admit_sync("orders", {"id": "e"})

    found = ledger.detail()
    assert found is not None
    assert (found.entry.state, ledger.bookings()) == (State.RETRYABLE, [])
    fails.clear()
    assert gate.admit_sync("orders", {"id": "e"}).verdict is Verdict.RUN
    assert ledger.bookings() == ["b"]
    gate.close()


@pytest.mark.parametrize("seed", range(6))
def test_any_run_of_faults_ends_with_everything_once(ledger: Ledger, seed: int) -> None:
    """Twenty-five events under random lost replies, undone commits and outages, then finished."""
    choose = random.Random(seed)
    gate = ledger.gate()
    honouring(ledger, gate)
    events = [{"id": f"e{number}"} for number in range(25)]
    for event in events * 2:
        choices = [Fault.NONE, Fault.NONE, Fault.LOST_REPLY, Fault.UNDONE, Fault.DOWN]
        ledger.faults.plan.extend(choose.choices(choices, k=choose.randrange(5)))
        outcome_of(lambda event=event: gate.admit_sync("orders", event))  # type: ignore[misc]
        ledger.faults.plan.clear()
        if choose.random() < 0.1:
            ledger.clock.advance(30)

    ledger.clock.advance(60)
    Reconciler(gate, at_once=True).run_once()
    values = [gate.admit_sync("orders", event).result() for event in events]
    gate.close()

    assert sorted(ledger.bookings()) == sorted(values)
    assert len(set(values)) == 25
    with SqliteStore(ledger.path).look() as session:
        assert session.counts() == {State.COMMITTED: 25}
        for entry in session.entries(EntryFilter(), None, 100):
            found = session.detail(entry.entry_id)
            assert found is not None
            assert [record.kind for record in found.records].count(LogKind.COMMITTED) == 1


def finish(ledger: Ledger, handlers: Callable[[Ledger, Gate], None]) -> Admission:
    """What an at-least-once sender does: delivers again, later, until there is an answer for good."""
    ledger.faults.plan.clear()
    gate = ledger.gate()  # another worker, which remembers nothing
    handlers(ledger, gate)
    final: Any = None
    for _ in range(4):
        ledger.clock.advance(90)
        final = outcome_of(lambda: gate.admit_sync("orders", {"id": "e"}))
    assert isinstance(final, Admission)
    return final


def check_once(ledger: Ledger, final: Admission | OncegateError, *, at_most: bool = False) -> None:
    assert isinstance(final, Admission)
    found = ledger.detail()
    assert found is not None
    if at_most and found.entry.state is State.UNKNOWN:
        assert final.verdict is Verdict.HOLD
        assert sum(ledger.effects.values()) <= 1
        assert ledger.bookings() == []
        return
    assert final.verdict is Verdict.REPLAY
    assert found.entry.state is State.COMMITTED
    assert [record.kind for record in found.records].count(LogKind.COMMITTED) == 1
    assert len(ledger.bookings()) == 1
    assert len(ledger.effects) <= 1, "two keys were passed on for one event"
    if at_most:
        assert list(ledger.effects.values()) == [1]
