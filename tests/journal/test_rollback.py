"""Roll-back: a plan that a person approves, applied through the gate, each line once (E9, I17, I20)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from oncegate import Gate
from oncegate.errors import ConfigError, PlanRefused, UsageError
from oncegate.journal.rollback.plans import PlanState, RollbackPlan
from oncegate.journal.rollback.releasing import Releasing
from oncegate.journal.snapshots.beliefs import id_of
from oncegate.maintenance.reconciler import Reconciler
from oncegate.model.states import State
from oncegate.store import EntryFilter, LogKind
from oncegate.testing import ManualClock
from oncegate.wiring.history import history_of
from tests.support.care import Care


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("ledger_url"))
    return f"sqlite:///{tmp_path / 'ledger.db'}"


BOTH_SLOWLY = pytest.mark.parametrize(
    "url", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)], indirect=True
)


@pytest.fixture
def care(url: str, tmp_path: Path) -> Iterator[Care]:
    made = Care(url, tmp_path)
    yield made
    made.close()


@pytest.fixture
def doubled(care: Care) -> Care:
    """Six good routes, a snapshot, six routes made twice, and what a person did since."""
    care.fill(6)
    care.take()
    for number in range(6):
        care.visit(f"again{number}", f"x{number}", f"carer{number}")
    care.sql("UPDATE route SET day = 'tuesday' WHERE id = 'x3'")
    care.sql("INSERT INTO route (id, carer, day) VALUES ('mine', 'eve', 'friday')")
    care.sql("UPDATE route SET day = 'sunday' WHERE id = 'r1'")
    return care


def test_plan_names_what_why_and_what_is_left_alone(doubled: Care) -> None:
    """Six doubled routes, one of them a conflict; a person's own changes are no lines."""
    plan, lines = doubled.plan()

    assert [(id_of(one.target), one.to) for one in lines.lines] == [
        (f"x{number}", None) for number in range(6)
    ]
    assert lines.lines[0].live == b'{"carer":"carer0","day":"monday","id":"x0"}'
    assert lines.lines[0].why[0] == "made with the content of r0"
    assert "of visits, vagain0" in lines.lines[0].why[1]
    assert [one.conflict is not None for one in lines.lines] == [False, False, False, True, False, False]
    assert {(id_of(one.target), one.change) for one in lines.left_alone} == {
        ("mine", "added"),
        ("r1", "changed"),
    }
    assert (plan.chosen, plan.conflicts, plan.unticked, plan.left_alone) == (5, 1, (4,), 2)


@pytest.mark.slow
def test_applied_plan_leaves_the_good_and_a_persons_changes(doubled: Care) -> None:
    """Live equals plan, a snapshot seals it, and the journal has each step."""
    plan, _ = doubled.plan()
    assert doubled.approve(plan).state is PlanState.APPROVED
    doubled.apply()

    ended = doubled.stands(plan.name)
    assert (ended.state, ended.progress.done, ended.progress.failed) == (PlanState.APPLIED, 5, 0)
    assert (ended.progress.differing, ended.progress.sealed) == (0, 2)
    assert doubled.ids() == ["mine", "r0", "r1", "r2", "r3", "r4", "r5", "x3"]
    assert doubled.sql("SELECT day FROM route WHERE id = 'r1'") == [("sunday",)]
    assert doubled.compensations() == ["x0", "x1", "x2", "x4", "x5"]
    with doubled.gate.engine.store.look() as session:
        kinds = [one.kind for one in session.read_log(0, 1000) if (one.note or "").startswith("roll-back ")]
    assert kinds == [LogKind.PLAN_MADE, LogKind.JOB_STARTED, LogKind.JOB_STARTED]


@pytest.mark.slow
def test_keys_of_events_that_were_rolled_back_stay_known(doubled: Care) -> None:
    """A repeat is a replay and makes no route again (I17)."""
    plan, _ = doubled.plan()
    doubled.approve(plan)
    doubled.apply()

    assert doubled.visit("again0", "x0", "carer0") is True
    assert "x0" not in doubled.ids()


@pytest.mark.slow
def test_released_event_runs_again_once_under_another_key(doubled: Care) -> None:
    """Its old key stays known; a second release, and one of a line that did not run, are refused."""
    plan, lines = doubled.plan()
    releasing = Releasing(doubled.gate.engine.commits, doubled.gate.engine.clock)
    with pytest.raises(PlanRefused, match="only events of an applied one"):
        releasing.release(plan.name, None, "anna", "wanted after all")
    doubled.approve(plan)
    doubled.apply()
    by_route = {str(id_of(one.target)): one for one in lines.lines}
    (done,), (left, *_) = by_route["x0"].entries, by_route["x3"].entries
    found = releasing.release(plan.name, [done, left, 999_999], "anna", "wanted after all")
    again = releasing.release(plan.name, [done], "bert", "once more")

    assert [one.refused for one in found] == ["", "a line of it was not done", "this plan did not undo it"]
    assert again[0].refused == f"it was released before, as entry {found[0].again}"
    assert "x0" not in doubled.ids()
    for _ in range(2):
        Reconciler(doubled.gate).run_once()
    assert doubled.ids().count("x0") == 1
    assert doubled.visit("again0", "x0", "carer0") is True
    with doubled.gate.engine.store.look() as session:
        told = session.detail(done)
        run = session.detail(found[0].again or 0)
    assert told is not None
    assert run is not None
    assert (told.records[-1].kind, told.records[-1].actor) == (LogKind.JOB_STARTED, "anna")
    assert run.entry.state is State.COMMITTED


def _undo(care: Care, to: int = 1) -> RollbackPlan:
    plan, _ = care.plan(to)
    care.approve(plan)
    care.apply()
    assert care.stands(plan.name).state is PlanState.APPLIED
    return plan


def _release(care: Care, *plans: RollbackPlan) -> list[list[tuple[str, str]]]:
    """Releases all events of plans and runs them: by plan the label of each event, and why it stays."""
    releasing, found = Releasing(care.gate.engine.commits, care.gate.engine.clock), []
    for plan in plans:
        done = releasing.release(plan.name, None, "anna", "wanted after all")
        for _ in range(3):
            Reconciler(care.gate).run_once()
        with care.gate.engine.store.look() as session:
            details = [(session.detail(one.entry_id), one.refused) for one in done]
        found.append([(seen.entry.label, why.partition(",")[0]) for seen, why in details if seen])
    return found


def _runs(care: Care) -> list[str]:
    """The label of every visit that was started, however it ended."""
    with care.gate.engine.store.look() as session:
        return sorted(one.label for one in session.entries(EntryFilter(surface="visits"), None, 99))


@BOTH_SLOWLY
def test_event_is_released_once_for_each_time_it_was_undone(care: Care) -> None:
    """Undone, released, undone, released: a compensation and a run that was undone before stay undone."""
    care.fill(1)
    care.take()
    care.visit("E", "x0", "carer0")
    first = _undo(care)
    assert _release(care, first) == [[("vE", "")]]
    second = _undo(care)
    assert _release(care, second, second, first) == [
        [("vE", "")],
        [("vE", "it was released before")],
        [("vE", "it was released before")],
    ]
    assert (_runs(care), care.ids()) == (["vE", "vE", "vE", "vr0"], ["r0", "x0"])
    assert care.compensations() == ["x0", "x0"]


@BOTH_SLOWLY
def test_event_that_an_earlier_plan_undid_is_released_by_that_plan_alone(care: Care) -> None:
    """A undoes E, B undoes F on the same object: both released start E once and F once."""
    care.fill(1)
    care.take()
    care.visit("E", "x0", "carer0")
    first = _undo(care)
    care.visit("F", "x0", "carerF")
    second = _undo(care)
    assert _release(care, second, first) == [[("vF", "")], [("vE", "")]]
    assert _release(care, first, second) == [
        [("vE", "it was released before")],
        [("vF", "it was released before")],
    ]
    assert _runs(care) == ["vE", "vE", "vF", "vF", "vr0"]
    assert care.sql("SELECT carer FROM route WHERE id = 'x0'") == [("carerF",)]


@BOTH_SLOWLY
def test_event_whose_change_came_back_by_another_plan_is_not_released(care: Care) -> None:
    """A undoes E, C leads to a snapshot that has E: E is in force already."""
    care.fill(1)
    care.take()
    care.visit("E", "x0", "carer0")
    care.take()
    first = _undo(care)
    back = _undo(care, 2)
    assert care.ids() == ["r0", "x0"]
    assert _release(care, first, back) == [[("vE", f"plan {back.name} brought its change back")], []]
    assert _runs(care) == ["vE", "vr0"]


@BOTH_SLOWLY
def test_event_that_two_plans_undid_at_once_is_released_once(care: Care) -> None:
    """Both lines are done, by one compensation: the second plan found the object so already."""
    care.fill(1)
    care.take()
    care.visit("E", "x0", "carer0")
    plans = [care.plan()[0] for _ in range(2)]
    for plan in plans:
        care.approve(plan)
        book = history_of(care.gate).rollback().book
        book.change(plan.name, lambda one: replace(one, state=PlanState.APPLYING))
    care.apply()
    assert {care.stands(plan.name).progress.done for plan in plans} == {1}
    assert _release(care, *plans) == [[("vE", "")], [("vE", "it was released before")]]
    assert (_runs(care), care.compensations()) == (["vE", "vE", "vr0"], ["x0"])


@pytest.mark.slow
def test_second_run_and_second_plan_change_nothing(doubled: Care) -> None:
    """Lines are replays; a new plan finds only what a person was asked about."""
    plan, _ = doubled.plan()
    doubled.approve(plan)
    doubled.apply()
    doubled.apply()
    second, lines = doubled.plan()

    assert doubled.compensations() == ["x0", "x1", "x2", "x4", "x5"]
    assert [id_of(one.target) for one in lines.lines] == ["x3"]
    assert second.already_right == 5


@pytest.mark.slow
def test_unticked_lines_do_not_run_and_a_conflict_may_be_ticked(doubled: Care) -> None:
    """The person's choice is what runs."""
    plan, _ = doubled.plan()
    doubled.approve(plan, unticked=(1, 2))
    doubled.apply()

    assert doubled.compensations() == ["x2", "x3", "x4", "x5"]


def test_only_fields_that_events_changed_go_back(care: Care) -> None:
    """The day that a person set stays; the carer that an event set goes back."""
    care.fill(1)
    care.take()
    care.visit("a", "r0", "wrong", new=False)
    care.sql("UPDATE route SET day = 'sunday' WHERE id = 'r0'")
    plan, lines = care.plan()
    care.approve(plan)
    care.apply()

    assert lines.lines[0].conflict is None
    assert care.sql("SELECT carer, day FROM route") == [("carer0", "sunday")]


def test_field_that_a_person_changed_since_is_a_conflict(care: Care) -> None:
    """It is named, and not run unless ticked."""
    care.fill(1)
    care.take()
    care.visit("a", "r0", "wrong", new=False)
    care.sql("UPDATE route SET carer = 'eve' WHERE id = 'r0'")
    plan, lines = care.plan()

    assert lines.lines[0].conflict == "changed since: carer"
    with pytest.raises(PlanRefused, match="no line is left to run"):
        care.approve(plan)


def test_plan_is_refused_when_the_state_moved(doubled: Care) -> None:
    """Nothing runs, not even the lines that still fit."""
    plan, _ = doubled.plan()
    doubled.approve(plan)
    doubled.sql("UPDATE route SET carer = 'eve' WHERE id = 'x0'")
    doubled.apply()

    ended = doubled.stands(plan.name)
    assert ended.state is PlanState.MOVED
    assert "1 of 5 objects changed since: x0" in ended.message
    assert doubled.compensations() == []


@pytest.mark.slow
def test_object_that_moves_while_the_plan_runs_is_left(doubled: Care) -> None:
    """The line fails with a word; the others go on."""
    plan, _ = doubled.plan()
    doubled.approve(plan)
    work = history_of(doubled.gate).rollback()
    asyncio.run(work._begin(doubled.stands(plan.name)))
    doubled.sql("UPDATE route SET carer = 'eve' WHERE id = 'x0'")
    doubled.apply()

    ended = doubled.stands(plan.name)
    assert (ended.state, ended.progress.done, ended.progress.failed) == (PlanState.APPLIED, 4, 1)
    assert "was changed since the plan was made" in ended.progress.problems[0]
    assert ended.progress.differing == 1


def test_plan_expires_and_its_hash_is_compared(url: str, tmp_path: Path) -> None:
    """A person approves exactly what was shown, within an hour."""
    clock = ManualClock()
    care = Care(url, tmp_path, clock=clock)
    care.take()
    care.fill(2)
    plan, _ = care.plan()
    book = history_of(care.gate).rollback().book

    for wrong in ("", plan.digest[:4], "0" * 64):
        with pytest.raises(PlanRefused, match="hash is not that of this plan"):
            book.approve(plan.name, wrong, "anna", "why not")
    clock.advance(3601)
    with pytest.raises(PlanRefused, match="has expired"):
        care.approve(plan)
    care.close()


def test_large_plan_needs_a_second_person(url: str, tmp_path: Path) -> None:
    """Another one, with the same lines."""
    care = Care(url, tmp_path, second_person_above=3)
    care.take()
    care.fill(5)
    plan, _ = care.plan()

    assert care.approve(plan).state is PlanState.PROPOSED
    with pytest.raises(PlanRefused, match="a second person has to"):
        care.approve(plan)
    with pytest.raises(PlanRefused, match="approved other lines"):
        care.approve(plan, "ben", unticked=(1,))
    care.apply()
    assert care.compensations() == []
    assert care.approve(plan, "ben").state is PlanState.APPROVED
    care.apply()
    assert care.ids() == []
    care.close()


@pytest.mark.slow
def test_two_operators_approve_at_once_with_one_effect(doubled: Care) -> None:
    """One yes counts; the other hears that it was too late (I20)."""
    plan, _ = doubled.plan()
    told: list[str] = []
    gate = threading.Barrier(2)

    def approve(actor: str) -> None:
        gate.wait()
        try:
            told.append(doubled.approve(plan, actor).state.name)
        except PlanRefused as error:
            told.append(str(error))

    people = [threading.Thread(target=approve, args=(name,)) for name in ("anna", "ben")]
    for one in people:
        one.start()
    for one in people:
        one.join()
    runs = [threading.Thread(target=doubled.apply) for _ in range(2)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    doubled.apply()

    assert told.count("APPROVED") == 1
    assert len(doubled.stands(plan.name).approvals) == 1
    assert doubled.compensations() == ["x0", "x1", "x2", "x4", "x5"]


def test_cancelled_plan_stops_and_what_is_done_stays(doubled: Care) -> None:
    """Also for a line that was about to run."""
    plan, lines = doubled.plan()
    doubled.approve(plan)
    work = history_of(doubled.gate).rollback()
    asyncio.run(work._begin(doubled.stands(plan.name)))
    asyncio.run(work._run(plan, lines.lines[0]))
    work.book.cancel(plan.name, "ben", "wait for the manager")
    problem, is_final = asyncio.run(work._run(plan, lines.lines[1]))
    doubled.apply()

    assert (problem, is_final) == (f"plan {plan.name} was cancelled before this line", True)
    assert doubled.stands(plan.name).state is PlanState.CANCELLED
    assert doubled.compensations() == ["x0"]
    with pytest.raises(PlanRefused, match="cancelled"):
        work.book.cancel(plan.name, "ben", "again")


def test_plan_that_the_page_asks_for_is_made_by_the_worker(doubled: Care) -> None:
    """Or it says why not."""
    book = history_of(doubled.gate).rollback().book
    asked, wrong = book.want(1, "", "anna"), book.want(9, "", "anna")
    doubled.apply()

    assert doubled.stands(asked).state is PlanState.PROPOSED
    assert doubled.stands(asked).made_by == "anna"
    assert doubled.stands(wrong).state is PlanState.FAILED
    assert "there is no snapshot '9'" in doubled.stands(wrong).message


def test_no_plan_on_incomplete_data(care: Care, tmp_path: Path) -> None:
    """A belief that is gone, an object that cannot be read, a part that is missing."""
    care.fill(2)
    care.take()
    care.fill(2, "x")
    parts = list((tmp_path / "snapshots").glob("parts/*/*"))

    other = Gate(care.url)
    other.snapshots(care.vault, signed_by=f"file:{care.key}")
    found = history_of(care.gate).taker().archive.manifest(1)
    with pytest.raises(PlanRefused, match="declares no such belief"):
        asyncio.run(history_of(other).planner().make(found, "anna"))
    other.close()
    care.sql("ALTER TABLE route RENAME COLUMN day TO weekday")
    with pytest.raises(Exception, match=r"routes|route"):
        care.plan()
    care.sql("ALTER TABLE route RENAME COLUMN weekday TO day")
    for part in parts:  # any of them, also one that no change since then touches
        part.rename(tmp_path / "away")
        with pytest.raises(Exception, match="cannot be read"):
            care.plan()
        (tmp_path / "away").rename(part)


def test_mutation_is_recorded_in_the_events_own_transaction(care: Care) -> None:
    """An event that fails leaves neither the change nor a record of it."""
    care.fill(1)
    with pytest.raises(Exception, match=r"UNIQUE|duplicate"):
        care.visit("second", "r0", "x")

    with care.gate.engine.store.look() as session:
        rows = session.mutations_since("0", 0, 10)
        (first,) = session.entries(EntryFilter(states=(State.COMMITTED,)), None, 10)
    assert [(one.name, id_of(one.target), one.before, one.is_done) for one in rows] == [
        ("route.add", "r0", None, True)
    ]
    assert rows[0].after == b'{"carer":"carer0","day":"monday","id":"r0"}'
    assert rows[0].entry_id == first.entry_id


class Elsewhere:
    """A service outside the ledger's database, with get and put by id."""

    def __init__(self, gate: Gate) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.puts: list[str] = []
        self.is_down = False
        api = gate.downstream("elsewhere", honours_key="7d")
        self.set = gate.mutation("thing.set", read=self.read, compensate=self.put, belief="things")(
            self._set
        )
        gate.belief("things")(lambda: dict(self.objects))

        @gate.handler("things", key="{id}")
        def handle(event: dict[str, Any], once: Any) -> None:
            once.effect(api, self.set, event["thing"], event["value"])
            if event.get("then"):
                raise RuntimeError("after the effect")

    def read(self, name: str) -> dict[str, Any] | None:
        if self.is_down:
            raise OSError("no connection")
        return self.objects.get(name)

    def put(self, name: str, value: dict[str, Any] | None) -> None:
        self.puts.append(name)
        self.objects.pop(name, None)
        if value is not None:
            self.objects[name] = value

    def _set(self, name: str, value: int) -> None:
        self.objects[name] = {"value": value}


@pytest.mark.filterwarnings("ignore:.*idempotency_key.*")
def test_objects_outside_the_database_go_back_too(care: Care) -> None:
    """Recorded before and after the call; an attempt that failed later keeps its record."""
    there = Elsewhere(care.gate)
    care.gate.admit_sync("things", {"id": "1", "thing": "a", "value": 1})
    care.take()
    with pytest.raises(RuntimeError):
        care.gate.admit_sync("things", {"id": "2", "thing": "a", "value": 2, "then": True})
    care.gate.admit_sync("things", {"id": "3", "thing": "b", "value": 3})
    plan, lines = care.plan()
    care.approve(plan)
    care.apply()

    assert [(id_of(one.target), one.conflict) for one in lines.lines] == [("a", None), ("b", None)]
    assert there.objects == {"a": {"value": 1}}
    assert there.puts == ["a", "b"]
    there.is_down = True
    with pytest.raises(PlanRefused, match=r"thing\.set: a cannot be read now: OSError: no connection"):
        care.plan()


@pytest.mark.filterwarnings("ignore:.*idempotency_key.*")
def test_compensation_whose_service_is_down_waits_and_runs_later(care: Care) -> None:
    """The line stays open; the plan ends with the next run."""
    there = Elsewhere(care.gate)
    care.take()
    care.gate.admit_sync("things", {"id": "1", "thing": "a", "value": 1})
    plan, lines = care.plan()
    care.approve(plan)
    work = history_of(care.gate).rollback()
    asyncio.run(work._begin(care.stands(plan.name)))
    there.is_down = True
    problem, is_final = asyncio.run(work._run(plan, lines.lines[0]))
    there.is_down = False
    care.apply()

    assert (problem, is_final) == ("OSError: no connection", False)
    assert care.stands(plan.name).progress.done == 1
    assert there.puts == ["a"]


def test_async_mutations_are_recorded_and_undone(url: str, tmp_path: Path) -> None:
    """With an async handler, an async transaction and an async belief."""
    care = Care(url, tmp_path)
    gate = care.gate

    async def get(tx: Any, route: str) -> dict[str, Any] | None:
        rows = await tx.execute("SELECT id, carer FROM route WHERE id = ?", (route,))
        return {"id": rows[0][0], "carer": rows[0][1]} if rows else None

    async def put(tx: Any, route: str, value: Any) -> None:
        await tx.execute("DELETE FROM route WHERE id = ?", (route,))

    @gate.mutation("route.async", get=get, put=put)
    async def add(tx: Any, route: str) -> None:
        await tx.execute("INSERT INTO route (id, carer, day) VALUES (?, 'c', 'd')", (route,))

    @gate.handler("async", key="{id}")
    async def handle(event: dict[str, Any], once: Any) -> None:
        async with once.commit() as tx:
            await add(tx, event["id"])

    care.take()
    asyncio.run(gate.admit("async", {"id": "a1"}))
    assert care.ids() == ["a1"]
    plan, lines = care.plan()
    care.approve(plan)
    care.apply()

    assert [one.family for one in lines.lines] == ["route.async"]
    assert care.ids() == []
    care.close()


def test_mutation_without_compensation_is_hand_work(care: Care) -> None:
    """The line has the text that an operator needs, and never runs."""

    def read(tx: Any, route: str) -> dict[str, Any] | None:
        rows = tx.execute("SELECT carer FROM route WHERE id = ?", (route,))
        return {"carer": rows[0][0]} if rows else None

    @care.gate.mutation("letter.sent", read=read)
    def send(tx: Any, route: str) -> None:
        tx.execute("UPDATE route SET carer = 'told' WHERE id = ?", (route,))

    @care.gate.handler("letters", key="{id}")
    def letter(event: dict[str, Any], once: Any) -> None:
        with once.commit() as tx:
            send(tx, event["id"])

    care.fill(1)
    care.take()
    care.gate.admit_sync("letters", {"id": "r0"})
    plan, lines = care.plan()

    assert (
        lines.lines[0].hand
        == 'no compensation: set it back to {"carer":"carer0"}, by hand in letter.sent, id r0'
    )
    assert (plan.by_hand, plan.chosen) == (1, 0)


def test_declarations_that_cannot_work_are_refused(care: Care) -> None:
    """With what is missing, before anything runs."""
    with pytest.raises(ConfigError, match=r"give read= \(and compensate=\), or get= and put="):
        care.gate.mutation("m1")(lambda name: None)
    with pytest.raises(ConfigError, match="take tx first, or none does"):
        care.gate.mutation("m2", read=lambda tx, name: None)(lambda name: None)

    async def read(name: str) -> None: ...

    with pytest.raises(ConfigError, match="are async, or none is"):
        care.gate.mutation("m3", read=read)(lambda name: None)
    with pytest.raises(ConfigError, match="is declared twice"):
        care.gate.mutation("route.add", read=read)


def test_mutation_outside_a_handler_is_just_the_function(care: Care) -> None:
    """That is a person's change: not recorded."""

    class Tx:
        execute = staticmethod(care.sql)

    care.add(Tx, "p", "eve", "monday")
    with care.gate.engine.store.look() as session:
        assert session.mutations_since("0", 0, 10) == []
    assert care.ids() == ["p"]


def test_mutation_after_the_commit_block_is_refused(care: Care) -> None:
    """Its record could not be part of the event's transaction."""

    @care.gate.handler("late", key="{id}")
    def late(event: dict[str, Any], once: Any) -> None:
        with once.commit() as tx:
            pass
        care.add(tx, "x", "y", "z")

    with pytest.raises(UsageError, match="call mutations before"):
        care.gate.admit_sync("late", {"id": "1"})


def test_change_of_a_plan_that_another_process_changed_is_refused(ledger_url: str, tmp_path: Path) -> None:
    """Where writers do not wait for each other, the version decides (I20)."""
    care, other = Care(ledger_url, tmp_path), Care(ledger_url, tmp_path)
    care.take()
    care.fill(2)
    plan, _ = care.plan()

    def meanwhile(seen: RollbackPlan) -> RollbackPlan:
        other.approve(plan, "ben")
        return replace(seen, state=PlanState.CANCELLED)

    with pytest.raises(PlanRefused, match="was changed by another operator meanwhile"):
        history_of(care.gate).rollback().book.change(plan.name, meanwhile, "anna")
    assert care.stands(plan.name).state is PlanState.APPROVED
    care.close()
    other.close()
