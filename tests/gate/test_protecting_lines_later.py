"""More lines of the gate that no other test near them missed when `make mutate` took them out."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from typing import Any

import psycopg
import pytest

from oncegate import Gate, Once, Verdict
from oncegate.commit.operations import RecordProgress
from oncegate.errors import (
    ClaimLost,
    Failed,
    NotApplied,
    OutcomeUnknown,
    StoreFull,
    StoreUnknown,
    UsageError,
)
from oncegate.gate.codec.outcome import decode_outcome
from oncegate.gate.flows.downstream_turns import NotNow, StillUnderWay
from oncegate.gate.flows.settlement import NotCommitted
from oncegate.gate.runtime.claim import claim_of
from oncegate.gate.runtime.reachability import Reach
from oncegate.gate.runtime.recovery_rate_limiter import current_pace
from oncegate.model.conflicts import KEPT_MAX
from oncegate.model.decisions import Verb
from oncegate.model.keys import derive_key
from oncegate.model.states import Decision, State
from oncegate.model.surface import Arrival
from oncegate.review.decisions import Decisions, EntryDecision, sayable
from oncegate.store import EntryFilter, Reserved, Settlement, StepRecord, StepRecords, StepState
from oncegate.store.tallies import What
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing import ArmedCrashPoints, CrashReached, Fault, Faults, faulty
from tests.support.gates import LEASE, Ledger
from tests.support.postgres_site import reservation

EVENT = {"id": "N-1"}


def _on_a_store_that_can_fail(ledger: Ledger) -> tuple[Gate, Faults]:
    faults = Faults()
    return Gate(
        store=faulty(SqliteStore(ledger.path, clock=ledger.clock), faults), clock=ledger.clock
    ), faults


@pytest.mark.parametrize("options", [{}, {"same_database": True}], ids=["plain", "same database"])
def test_replay_that_was_read_from_the_ledger_once_is_not_read_again(
    ledger: Ledger, options: dict[str, Any]
) -> None:
    """The outcome is final: whoever has seen it needs no store to repeat it."""
    # Given two processes, the first of which has run the event
    first = ledger.gate()
    second, faults = _on_a_store_that_can_fail(ledger)
    for gate in (first, second):
        gate.handler("bookings", key="{id}", **options)(lambda event, once: "slot 7")
    assert first.admit_sync("bookings", EVENT).verdict is Verdict.RUN
    # When the second has replayed it, and then has no store any more
    assert second.admit_sync("bookings", EVENT).verdict is Verdict.REPLAY
    faults.down = True
    # Then it still replays
    again = second.admit_sync("bookings", EVENT)
    assert (again.verdict, again.value) == (Verdict.REPLAY, "slot 7")
    second.close()


def test_replay_of_what_was_committed_in_one_transaction_needs_no_store(ledger: Ledger) -> None:
    gate, faults = _on_a_store_that_can_fail(ledger)
    gate.handler("bookings", key="{id}", same_database=True)(lambda event, once: "slot 7")
    assert gate.admit_sync("bookings", EVENT).verdict is Verdict.RUN

    faults.down = True
    again = gate.admit_sync("bookings", EVENT)

    assert (again.verdict, again.value) == (Verdict.REPLAY, "slot 7")
    gate.close()


class _Unkept:
    """What a call hands out: it has an id, but cannot be stored."""

    def __init__(self, name: str) -> None:
        self.id = name


@pytest.mark.parametrize(("found", "state"), [("S-1", "committed"), ("S-2", "held")])
def test_probe_that_names_something_else_than_the_call_handed_out_is_held(
    ledger: Ledger, found: str, state: str
) -> None:
    """A9: one key owns two things; which of them is ours, a person finds out."""
    # Given a call whose result could not be kept, only its id, and a handler that failed after it
    gate, failures = ledger.gate(), [NotApplied("not now")]
    ect = gate.downstream("ect", probe=lambda key: {"id": found})

    @gate.handler("bookings", key="{id}")
    def book(event: dict[str, str], once: Once) -> str:
        once.effect(ect, lambda idempotency_key: _Unkept("S-1"), name="claim")
        if failures:
            raise failures.pop()
        return "booked"

    with pytest.raises(NotApplied):
        gate.admit_sync("bookings", EVENT)
    # When the next attempt asks, as the result is lost
    if state == "held":
        with pytest.raises(OutcomeUnknown, match="holds 2 resources for claim: S-1 and S-2"):
            gate.admit_sync("bookings", EVENT)
    else:
        gate.admit_sync("bookings", EVENT)
    # Then another id is not taken for ours, and the step is in doubt with the first of them
    assert ledger.state() == state
    if state == "held":
        with gate.engine.store.look() as session:
            detail = session.detail(1)
        assert detail is not None
        assert [(step.state, step.resource) for step in detail.steps] == [(StepState.STARTED, "S-1")]


def test_key_that_was_read_for_one_call_says_nothing_of_the_next(ledger: Ledger) -> None:
    """The warning about a key that is not passed on belongs to each call; and nothing piles up."""
    gate = ledger.gate()
    ect = gate.downstream("ect", honours_key="7d")

    @gate.handler("bookings", key="{id}")
    def book(event: dict[str, str], once: Once) -> str:
        return str(once.effect(ect, lambda: once.headers["Idempotency-Key"], name="claim"))

    for number in range(3):
        gate.admit_sync("bookings", {"id": str(number)})

    assert gate.engine._context.keys_read == set()


def test_caretakers_look_at_a_same_database_entry_is_no_arrival(ledger: Ledger) -> None:
    """A7: the share of repeats is one of arrivals, and nobody has sent this one again."""
    # Given an event whose transaction was undone, with its failure on record
    gate, failures = ledger.gate(replay_cache_max=0), [ValueError("not now")]

    @gate.handler("local", key="{id}", same_database=True)
    def local(event: dict[str, str], once: Once) -> str:
        if failures:
            raise failures.pop()
        return "done"

    with pytest.raises(ValueError, match="not now"):
        gate.admit_sync("local", EVENT)
    # When a worker finishes it
    with gate.engine.store.look() as session:
        detail = session.detail(1)
    assert detail is not None
    gate.engine.recover_sync(detail)
    gate.engine.sightings.flush()
    # Then one arrival was seen
    with gate.engine.store.look() as session:
        counts = {tally.what: tally.count for tally in session.tallies(0, 2**40)}
    assert counts.get(What.FRESH) == 1
    assert What.REPLAY not in counts
    assert What.RETRY not in counts


def test_wait_for_an_earlier_request_says_what_is_waited_for(ledger: Ledger) -> None:
    gate = ledger.gate()
    gate.handler("waiting", key="{id}")(lambda event, once: None)
    key = derive_key("", "waiting", "{id}", ("N-1",))
    arrival = Arrival(key, "", "N-1", b"f" * 16, b"{}", None)
    claim = claim_of(gate.engine.surface("waiting"), arrival, Reserved(Decision.RECOVER, 1, 1))

    assert (
        str(StillUnderWay("claim at ect: an earlier request", claim)) == "claim at ect: an earlier request"
    )


def test_claim_that_is_lost_while_its_downstream_is_asked_calls_nothing(ledger: Ledger) -> None:
    """I4: whoever has the key now may have called already."""
    # Given a worker that died while it called
    calls: list[str] = []
    held: list[Any] = []

    def claim(idempotency_key: str) -> dict[str, str]:
        calls.append(idempotency_key)
        return {"id": "S-1"}

    def find(key: str) -> None:
        held[-1]._claim.lost = True  # as the keeper of leases notices, in a thread of its own

    def registered(gate: Gate) -> Gate:
        ect = gate.downstream("ect", probe=find)

        @gate.handler("bookings", key="{id}", lease=LEASE)
        def book(event: dict[str, str], once: Once) -> str:
            held.append(once)
            once.effect(ect, claim, name="claim")
            return "booked"

        return gate

    with pytest.raises(CrashReached):
        registered(ledger.gate(ArmedCrashPoints.raising("effect.before"))).admit_sync("bookings", EVENT)
    ledger.clock.advance(24 * 3600)  # past the lease, and past the life of any request
    # When the next one asks, is told nothing, and loses its claim meanwhile
    with pytest.raises(ClaimLost):
        registered(ledger.gate()).admit_sync("bookings", EVENT)
    # Then it does not call
    assert calls == []


def test_commit_in_doubt_of_one_transaction_is_not_recorded_as_a_failure(ledger: Ledger) -> None:
    """I5: nothing is known, so nothing is said; the event comes again."""
    gate, faults = _on_a_store_that_can_fail(ledger)
    gate.handler("bookings", key="{id}", same_database=True)(lambda event, once: "slot 7")
    gate.admit_sync("bookings", {"id": "another, so that names are known"})

    faults.plan.append(Fault.UNDONE)
    with pytest.raises(StoreUnknown):
        gate.admit_sync("bookings", EVENT)

    assert ledger.states() == ["committed"]
    gate.close()


def test_process_that_is_ending_records_nothing_of_its_transaction(ledger: Ledger) -> None:
    """Undone is undone: the event is as new as before."""
    gate = ledger.gate()

    @gate.handler("bookings", key="{id}", same_database=True)
    def book(event: dict[str, str], once: Once) -> str:
        raise SystemExit("told to end")

    with pytest.raises(SystemExit):
        gate.admit_sync("bookings", EVENT)

    assert ledger.states() == []


def test_steps_recorded_under_a_later_fence_are_not_taken_for_ones_own(ledger: Ledger) -> None:
    """I5: who does not know whether its record was committed reads back its own, or knows nothing."""
    step = StepRecord("claim", StepState.STARTED, "ect")
    session = ledger.gate().engine.store.connect()
    recalled = []
    with session.unit():
        (first,) = session.reserve([reservation(1)])
    ledger.lapse()
    with session.unit():
        (second,) = session.reserve([reservation(1)])
        session.progress([StepRecords(*second.claim, (step,), 1)])
        for claim in (first, second):
            progress = RecordProgress(StepRecords(*claim.claim, (step,), 1))
            recalled.append(progress.recall(session))
    session.close()

    assert recalled == [None, True]


def test_writes_that_are_a_step_need_a_name_that_can_be_one(ledger: Ledger) -> None:
    gate = ledger.gate()

    @gate.handler("bookings", key="{id}")
    def book(event: dict[str, str], once: Once) -> None:
        once.write("no step's name", [])

    with pytest.raises(UsageError, match="cannot name a step"):
        gate.admit_sync("bookings", EVENT)


def test_lease_of_a_claim_that_has_ended_is_not_kept_up(ledger: Ledger) -> None:
    gate = ledger.gate()
    gate.handler("bookings", key="{id}")(lambda event, once: once.step("say", lambda: "done"))
    gate.admit_sync("bookings", EVENT)

    assert gate.engine._context.leases._claims == {}


class _NoTurns:
    """A worker's traffic that has had enough for now."""

    def take(self, downstream: str) -> str:
        return f"{downstream} has had its share"


def test_recovery_of_an_opaque_function_waits_for_its_turn_at_the_downstream(ledger: Ledger) -> None:
    """One process must not bury a downstream under second calls after an outage."""
    calls: list[str] = []

    def registered(gate: Gate) -> Gate:
        ect = gate.downstream("ect", honours_key="7d")

        @gate.handler("bookings", key="{id}", downstream=ect, lease=LEASE)
        def book(event: dict[str, str], idempotency_key: str = "") -> str:
            calls.append(idempotency_key)
            return "booked"

        return gate

    with pytest.raises(CrashReached):
        registered(ledger.gate(ArmedCrashPoints.raising("effect.before"))).admit_sync("bookings", EVENT)
    ledger.lapse()
    token = current_pace.set(_NoTurns())  # type: ignore[arg-type]
    try:
        with pytest.raises(NotNow, match="has had its share"):
            registered(ledger.gate()).admit_sync("bookings", EVENT)
    finally:
        current_pace.reset(token)

    assert calls == []


def test_decision_whose_reply_is_lost_is_found_by_its_record(ledger: Ledger) -> None:
    """I5, I20: the operator is told that it counts, and not to try again."""
    # Given an entry that waits for a person
    gate, faults = _on_a_store_that_can_fail(ledger)

    @gate.handler("bookings", key="{id}", attempts_max=1)
    def book(event: dict[str, str], once: Once) -> str:
        raise ValueError("not now")

    with pytest.raises(ValueError, match="not now"):
        gate.admit_sync("bookings", EVENT)
    assert ledger.state() == "held"
    # When the reply to the commit of a decision is lost
    faults.plan.append(Fault.LOST_REPLY)
    entry = Decisions(gate.engine._context.commits, ledger.clock).say(
        1, EntryDecision(Verb.REJECT, "olga", "no such slot")
    )
    # Then it is known to have been carried out
    assert entry.state.label == ledger.state() == "failed"
    gate.close()


def test_joined_transaction_that_is_undone_is_told_also_where_the_outcome_was_given(
    ledger_url: str,
) -> None:
    """I3: there is nothing to attach then, so the entry itself is looked at."""
    with Gate(ledger_url) as gate:

        @gate.handler("bookings", key="{id}")
        def book(event: dict[str, str], once: Once) -> str:
            with psycopg.connect(ledger_url) as connection, connection.transaction(force_rollback=True):
                once.commit(tx=connection, outcome={"slot": 7})
            return "ignored"

        with pytest.raises(NotCommitted):
            gate.admit_sync("bookings", EVENT)
        with gate.engine.store.look() as session:
            detail = session.detail(1)

    assert detail is None or detail.entry.state is not State.COMMITTED


def test_downstream_that_answers_a_recovery_rests_no_more(ledger: Ledger) -> None:
    """One answer closes its circuit, whoever got it."""

    def registered(gate: Gate) -> Gate:
        ect = gate.downstream("ect", honours_key="7d")

        @gate.handler("bookings", key="{id}", lease=LEASE)
        def book(event: dict[str, str], once: Once) -> str:
            return str(once.effect(ect, lambda idempotency_key: "S-1", name="claim"))

        return gate

    with pytest.raises(CrashReached):
        registered(ledger.gate(ArmedCrashPoints.raising("effect.after"))).admit_sync("bookings", EVENT)
    gate = registered(ledger.gate())
    gate.engine.circuits.failed("bookings", "ect", 99, Reach.NOT_REACHED, "refused")
    assert gate.engine.circuits.rests("bookings") is not None
    ledger.lapse()
    gate.admit_sync("bookings", EVENT)

    assert gate.engine.circuits.rests("bookings") is None
    assert not gate.engine.circuits.is_unwell("bookings")


def test_step_whose_probe_was_unclear_is_one_that_a_person_may_speak_about(ledger: Ledger) -> None:
    """I20: the entry names what is in doubt."""

    def registered(gate: Gate) -> Gate:
        ect = gate.downstream("ect", probe=lambda key: "")

        @gate.handler("bookings", key="{id}", lease=LEASE)
        def book(event: dict[str, str], once: Once) -> str:
            return str(once.effect(ect, lambda idempotency_key: "S-1", name="claim"))

        return gate

    with pytest.raises(CrashReached):
        registered(ledger.gate(ArmedCrashPoints.raising("effect.after"))).admit_sync("bookings", EVENT)
    ledger.lapse()
    gate = registered(ledger.gate())
    with pytest.raises(OutcomeUnknown, match="neither what the key owns"):
        gate.admit_sync("bookings", EVENT)

    with gate.engine.store.look() as session:
        detail = session.detail(1)
    assert detail is not None
    assert [step.name for step in sayable(detail)] == ["claim"]


def test_business_write_for_which_the_disk_has_no_room_is_no_fault_of_the_write(ledger: Ledger) -> None:
    """The store's own trouble is told as such: whoever asks again later gets through."""
    # Given a claim on a ledger that cannot grow any more
    session = SqliteStore(ledger.path, clock=ledger.clock).connect()
    with session.unit():
        (claim,) = session.reserve([reservation(1)])
        session.execute("CREATE TABLE photo (body BLOB)", ())
        ((pages,),) = session.execute("PRAGMA page_count", ())
        session.execute(f"PRAGMA max_page_count = {pages}", ())
    settlement = Settlement(
        *claim.claim,
        State.COMMITTED,
        1,
        "gate",
        writes=(("INSERT INTO photo VALUES (zeroblob(?))", (1_000_000,)),),
    )
    # When a write needs more; then it is the store that has no room, and nothing was changed
    with pytest.raises(StoreFull), session.unit():
        session.settle([settlement])
    with session.unit():
        assert session.execute("SELECT count(*) FROM photo", ()) == [(0,)]
    session.close()


def test_transaction_of_a_task_that_is_destroyed_is_over_even_if_somebody_keeps_it(ledger: Ledger) -> None:
    """Nothing can be awaited any more; the ledger must be free for others all the same."""
    gate, kept = ledger.gate(), []

    @gate.handler("bookings", key="{id}", same_database=True)
    async def book(event: dict[str, str], once: Once) -> str:
        kept.append(once.tx)
        if event["id"] == "N-1":
            begun.set()
            await asyncio.get_running_loop().create_future()
        return "booked"

    async def program() -> Verdict:
        # Given a handler that waits with its transaction open, and somebody who keeps the transaction
        work: Any = gate.admit("bookings", EVENT)
        task = asyncio.create_task(work)
        await begun.wait()
        # When its task is destroyed
        work.close()
        answer = await gate.admit("bookings", {"id": "N-2"})
        task.cancel()
        return answer.verdict

    begun = asyncio.Event()
    # Then the next event has the ledger for itself
    assert asyncio.run(program()) is Verdict.RUN
    assert len(kept) == 2


@pytest.mark.parametrize("arguments", [{"berth": 7}, {"berth": 7, "headers": {"X-Trace": "t"}}])
def test_call_with_arguments_by_name_gets_the_key_in_every_place_for_it(
    ledger: Ledger, arguments: dict[str, Any]
) -> None:
    """A key that is left out would let a second call sell a second slot (I1)."""
    gate, seen = ledger.gate(), []
    ect = gate.downstream("ect", honours_key="7d")

    def claim(berth: int, idempotency_key: str = "", headers: Any = None) -> str:
        seen.append((berth, idempotency_key, headers))
        return "S-1"

    def claim_by_key(berth: int, idempotency_key: str = "") -> str:
        seen.append((berth, idempotency_key, None))
        return "S-2"

    @gate.handler("bookings", key="{id}")
    def book(event: dict[str, str], once: Once) -> str:
        once.effect(ect, claim_by_key, berth=7)
        return str(once.effect(ect, claim, **arguments))

    gate.admit_sync("bookings", EVENT)

    (_, only, _), (_, key, headers) = seen
    assert only
    assert key
    assert headers == {**arguments.get("headers", {}), "Idempotency-Key": key}


@pytest.mark.parametrize(("on_conflict", "kept"), [("keep", KEPT_MAX), ("refuse", 0)])
def test_conflicts_in_callers_transactions_are_kept_as_far_as_the_surface_says(
    ledger: Ledger, on_conflict: str, kept: int
) -> None:
    """Whoever commits it: no more than so many for each key, and nothing where they are only refused."""
    gate = ledger.gate()
    options: dict[str, Any] = {} if on_conflict == "keep" else {"on_conflict": on_conflict}
    gate.handler("bookings", key="{id}", same_database=True, **options)(lambda event, once: "slot 7")
    gate.admit_sync("bookings", EVENT)
    # When more other contents come than are kept
    for number in range(KEPT_MAX + 2):
        with contextlib.closing(sqlite3.connect(ledger.path)) as caller:
            caller.execute("BEGIN IMMEDIATE")
            answer = gate.admit_sync("bookings", {**EVENT, "amount": number}, tx=caller)
            caller.commit()
        assert answer.verdict is Verdict.CONFLICT
    # Then the rest is only refused
    with gate.engine.store.look() as session:
        assert len(session.entries(EntryFilter((State.QUARANTINED,)), None, 100)) == kept


def test_call_that_failed_stays_told_though_one_before_it_has_ended_meanwhile(ledger: Ledger) -> None:
    """D4: the outcome says when a call was made that no step tells of."""
    gate = ledger.gate()
    ect = gate.downstream("ect", honours_key="7d")

    @gate.handler("bookings", key="{id}", lease=LEASE)
    async def book(event: dict[str, str], once: Once) -> None:
        # Given a call under way, and a second one five seconds later
        called, may_end = asyncio.Event(), asyncio.Event()

        async def slow(idempotency_key: str) -> str:
            called.set()
            await may_end.wait()
            return "S-1"

        async def late(idempotency_key: str) -> str:
            may_end.set()
            await first
            raise Failed("no berth is free")

        first = asyncio.ensure_future(once.effect(ect, slow, name="slow"))
        await called.wait()
        ledger.clock.advance(5)
        # When the second fails for good after the first has ended
        await once.effect(ect, late, name="late")

    with pytest.raises(Failed):
        asyncio.run(gate.admit("bookings", EVENT))
    # Then the outcome tells of both
    with gate.engine.store.look() as session:
        detail = session.detail(1)
    assert detail is not None
    assert detail.outcome is not None
    outcome = decode_outcome(detail.outcome)
    assert [step.name for step in outcome.steps] == ["slow"]
    assert outcome.after_ms == 5_000
