"""One word for many: the plan is what is done, whatever happens meanwhile, and it can be cancelled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from oncegate import Gate
from oncegate.model.decisions import Verb
from oncegate.model.states import State
from oncegate.review import bulk
from oncegate.review.bulk import BulkPlan, BulkProgress, Job, make_plan
from oncegate.review.decisions import EntryDecision, StepDecision
from oncegate.store import EntryFilter, LogKind
from oncegate.stores.sqlite import SqliteStore
from tests.stores.test_replaced_files import copied, moved
from tests.support.gates import Ledger

YES = EntryDecision(Verb.APPROVE, "Ada", "all fine")
NO = EntryDecision(Verb.REJECT, "Ada", "no more")


class Queue:
    """Events that wait for approval, and one operator's view of them."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.gate: Gate = ledger.gate()
        self.ran: list[int] = []
        for name in ("payouts", "refunds"):
            self.gate.handler(name, key="{id}", approve_first=True)(self._run)

    def _run(self, event: Any, once: Any) -> None:
        self.ran.append(event["id"])

    def fill(self, count: int, surface: str = "payouts") -> None:
        """Lets events arrive."""
        for number in range(count):
            self.gate.admit_sync(surface, {"id": number})

    def plan(self, word: EntryDecision = YES, **wanted: Any) -> BulkPlan:
        """Plans a word for what fits."""
        with self.gate.engine.store.look() as session:
            return make_plan(session, word, EntryFilter(**wanted))

    def job(self, plan: BulkPlan) -> Job:
        """A job on a plan."""
        return Job(self.gate.people, plan)

    def states(self) -> dict[State, int]:
        """How many are in which state."""
        with self.gate.engine.store.look() as session:
            return {state: count for state, count in session.counts().items() if count}


@pytest.fixture
def queue(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> Queue:
    monkeypatch.setattr(bulk, "PAGE_ENTRIES", 7)
    monkeypatch.setattr(bulk, "BATCH_ENTRIES", 4)
    return Queue(ledger)


def test_the_whole_filter_is_planned_and_done_and_nothing_else(queue: Queue) -> None:
    """Trap 8: more than a page; the other surface is left alone; each entry has one record."""
    queue.fill(17)
    queue.fill(3, "refunds")
    plan = queue.plan(surface="payouts")
    assert (plan.count, plan.surfaces, plan.is_complete) == (17, {"payouts": 17}, True)
    assert [entry.label for entry in plan.sample] == ["16", "15", "14", "13", "12"]
    seen: list[BulkProgress] = []
    done = queue.job(plan).run(seen.append)
    assert (done.done, done.changed, done.refused, done.left) == (17, 0, 0, 0)
    assert [progress.done for progress in seen] == [4, 8, 12, 16, 17]
    assert queue.states() == {State.RETRYABLE: 17, State.HELD: 3}
    assert queue.ledger.log_kinds().count(LogKind.APPROVED) == 17


def test_what_came_or_changed_after_the_plan_is_left(queue: Queue) -> None:
    """I20: the job acts on what was shown: neither on later arrivals, nor on what others decided."""
    queue.fill(6)
    plan = queue.plan(NO)
    first = plan.entries[-1][0]
    queue.gate.people.approve(first, actor="Ben", reason="mine")
    queue.gate.admit_sync("payouts", {"id": 77})

    done = queue.job(plan).run()

    assert (done.done, done.changed, done.refused) == (5, 1, 0)
    assert queue.states() == {State.RETRYABLE: 1, State.FAILED: 5, State.HELD: 1}
    again = queue.job(plan).run()
    assert (again.done, again.changed) == (0, 6)


def test_what_changes_between_reading_and_saying_is_left(queue: Queue) -> None:
    """The fence decides in the ledger itself, not what was read a moment before."""
    queue.fill(3)
    plan = queue.plan(NO)
    job = queue.job(plan)
    carry_out: Callable[..., Any] = job._rulings.carry_out

    def overtaken(rulings: Any) -> Any:
        for entry_id, *_ in plan.entries[:2]:
            queue.ledger.gate().people.approve(entry_id, actor="Ben", reason="mine")
        return carry_out(rulings)

    job._rulings.carry_out = overtaken  # type: ignore[method-assign]
    done = job.run()
    assert (done.done, done.changed) == (1, 2)
    assert queue.states() == {State.RETRYABLE: 2, State.FAILED: 1}


def test_entry_whose_number_and_fence_another_event_has_now_is_left(queue: Queue) -> None:
    """I23: the plan was made before the ledger went back; its mark of the key tells the events apart."""
    queue.fill(3)
    plan = queue.plan()
    number, fence, mark = plan.entries[0]
    of_another = replace(plan, entries=((number, fence, mark[::-1]), *plan.entries[1:]))

    progress = queue.job(of_another).run()

    assert (progress.done, progress.changed) == (2, 1)
    assert queue.states() == {State.HELD: 1, State.RETRYABLE: 2}


def test_plan_of_a_ledger_that_went_back_touches_nothing(tmp_path: Path) -> None:
    """I23: given a plan, and a copy of the file in whose place other events have the planned numbers."""
    path = tmp_path / "ledger.db"
    with Gate(store=SqliteStore(path)) as gate:
        gate.handler("payouts", key="{id}", approve_first=True)(lambda event: None)
        gate.admit_sync("payouts", {"id": 0})
        copy = copied(path)
        for number in range(1, 4):
            gate.admit_sync("payouts", {"id": number})
        with gate.engine.store.look() as session:
            plan = make_plan(session, YES, EntryFilter())
    moved(copy, path)
    with Gate(store=SqliteStore(path)) as gate:
        gate.handler("payouts", key="{id}", approve_first=True)(lambda event: None)
        for number in range(11, 14):
            gate.admit_sync("payouts", {"id": number})
        with gate.engine.store.look() as session:
            now = make_plan(session, YES, EntryFilter())
        progress = Job(gate.people, plan).run()

    assert [one[:2] for one in now.entries] == [one[:2] for one in plan.entries]
    assert (progress.done, progress.changed) == (1, 3)


def test_a_cancelled_job_stops_between_batches_and_tells(queue: Queue) -> None:
    """What is done stays done, the rest waits as before, and a new plan takes it up."""
    queue.fill(11)
    job = queue.job(queue.plan())
    done = job.run(lambda progress: job.cancel() if progress.done == 8 else None)
    assert (done.done, done.left, done.is_cancelled) == (8, 3, True)
    assert queue.states() == {State.RETRYABLE: 8, State.HELD: 3}
    assert queue.job(queue.plan()).run().done == 3


def test_a_plan_has_a_limit_and_says_so(queue: Queue) -> None:
    """I18: what does not fit is left for the next plan."""
    queue.fill(9)
    with queue.gate.engine.store.look() as session:
        plan = make_plan(session, NO, EntryFilter(), entries_max=5)
    assert (plan.count, plan.is_complete) == (5, False)
    assert queue.job(plan).run().done == 5
    assert queue.plan(NO).count == 4


def test_steps_in_doubt_are_said_for_all_and_missing_ones_refused(queue: Queue) -> None:
    """An approval for many covers the steps it names where they are in doubt; others are left."""
    gate = queue.gate
    mail, fax = gate.downstream("mail"), gate.downstream("fax")

    def lost() -> None:
        raise TimeoutError("no answer")

    @gate.handler("letters", key="{id}")
    def send(event: Any, once: Any) -> str:
        once.effect(mail if event["id"] < 3 else fax, lost, name="mail" if event["id"] < 3 else "fax")
        return "sent"

    for number in range(4):
        with pytest.raises(TimeoutError):
            gate.admit_sync("letters", {"id": number})
    queue.fill(1)
    word = replace(YES, steps={"mail": StepDecision(happened=True)})
    done = queue.job(queue.plan(word)).run()
    assert (done.done, done.refused) == (4, 1)
    assert "step fax at fax may or may not have happened" in done.refusals[0]
    for number in range(3):
        assert gate.admit_sync("letters", {"id": number}).value == "sent"
    assert queue.states()[State.UNKNOWN] == 1
