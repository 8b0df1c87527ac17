"""Every change of state and every operator action: exactly one record each, in its own transaction (I16).

The walk goes through each transition of `model.states` and each action that an operator has, on both SQL
ledgers. Each step is one unit of the ledger: undone, it leaves neither the change nor a record; done, it
leaves the records of the table, by the named author.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.lane_operations import GiveUp, LeaseHeads
from oncegate.commit.operations import RecordProgress, Reserve, Settle
from oncegate.commit.registry_operations import ChangeDocument
from oncegate.dashboard.sessions import SessionBook
from oncegate.errors import StoreError
from oncegate.gate.codec.outcome import ERASED_OUTCOME
from oncegate.journal.rollback.plans import PlanBook, PlanLines, PlanState, RollbackLine, RollbackPlan
from oncegate.model.decisions import Verb
from oncegate.model.states import TRANSITIONS, State
from oncegate.model.surface_decisions import NOTHING_DECIDED, SurfaceMode
from oncegate.review.decisions import Decisions, EntryDecision
from oncegate.review.pairs import PairVerb, PairWord, decide_pair
from oncegate.review.second_resources import SecondVerb, SecondWord, decide_second
from oncegate.review.surface_decisions import DecidedView, decide, switched_to
from oncegate.sender.operator_actions import LaneDecision, LaneVerb, OperatorActions
from oncegate.store import (
    DestinationState,
    DocumentChange,
    EntryFilter,
    Erasure,
    Flag,
    Forgetting,
    GivenUp,
    HeadsWanted,
    LateResource,
    LogKind,
    Note,
    Outgoing,
    Policy,
    Reservation,
    Reserved,
    Settlement,
    StepRecords,
)
from oncegate.testing import Fault, Faults, ManualClock, faulty
from oncegate.wiring.ledgers import open_store

LEASE_MS = 20_000
ENDPOINT = "shop"
K = LogKind
S = State


class Ledger:
    """A ledger whose units can be undone, and the requests of the walk."""

    def __init__(self, url: str) -> None:
        self.clock, self.faults = ManualClock(), Faults()
        self.store = faulty(open_store(url, clock=self.clock), self.faults)
        self.store.connect().close()
        self.commits = GroupCommit(self.store, clock=self.clock)
        self.rulings, self.lanes = (
            Decisions(self.commits, self.clock),
            OperatorActions(self.commits, self.clock),
        )
        self.plans, self.sessions = (
            PlanBook(self.commits, self.clock),
            SessionBook(self.commits, self.clock),
        )
        self.tokens = 0

    def arrive(self, name: str, **changes: Any) -> Reserved:
        """An event arrives."""
        self.tokens += 1
        wanted: dict[str, Any] = {"attempts_max": 8, "actor": "gate/1", "fingerprint": b"same", **changes}
        key = name.encode().ljust(24, b"-")
        given = Reservation(
            key, "", "orders", name, wanted.pop("fingerprint"), b'{"id":1}', self.clock.wall_ms(), LEASE_MS,
            wanted.pop("attempts_max"), self.tokens, **wanted,
        )  # fmt: skip
        return self.commits.submit(Reserve(given))

    def end(self, claim: Reserved, state: State, **changes: Any) -> bool:
        """A claim ends."""
        given = Settlement(*claim.claim, state, self.clock.wall_ms(), "worker/1", **changes)
        return self.commits.submit(Settle(given))

    def probe(self, claim: Reserved) -> bool:
        """A downstream has answered."""
        given = StepRecords(*claim.claim, (), 1, (), "found", "worker/1")
        return self.commits.submit(RecordProgress(given))

    def stand(self, name: str, state: State) -> Reserved:
        """An entry in a state."""
        if state in (S.HELD, S.QUARANTINED):
            return self.arrive(name, **{"hold" if state is S.HELD else "quarantine": "why"})
        claim = self.arrive(name)
        if state is not S.IN_FLIGHT:
            self.end(claim, state, reason="why", outcome=b"{}" if state.is_final else None)
        return claim

    def pair(self, name: str, state: State) -> Flag:
        """Two entries with one content, the second in a state."""
        first, second = self.stand(f"{name}-1", S.COMMITTED), self.stand(f"{name}-2", state)
        return Flag(second.entry_id, first.entry_id, self.clock.wall_ms(), "scan/1")

    def flag(self, flag: Flag) -> Any:
        with self.commits.transaction() as session:
            return session.flag([flag])

    def late(self, name: str) -> int:
        """A second resource of a key; its number."""
        entry = self.stand(name, S.COMMITTED).entry_id
        with self.commits.transaction() as session:
            session.note_late([LateResource(entry, b"a" * 16, "book", "bank", "R-2", 1, "worker/1")])
            return session.second_resources(0, 100)[-1].number

    def head(self, key: str, *, is_leased: bool = True) -> Any:
        """A lane with two events; its head."""
        now_ms = self.clock.wall_ms()
        with self.commits.transaction() as session:
            session.enqueue([
                Outgoing(ENDPOINT, "", key, f"{key}-{one}", "t", b"{}", f"{one}".encode(), now_ms)
                for one in (1, 2)
            ])  # fmt: skip
            lane = session.find_lane(ENDPOINT, "", key)
        assert lane is not None
        if not is_leased:
            return lane
        heads = self.commits.submit(LeaseHeads(HeadsWanted(((ENDPOINT, 100),), LEASE_MS, 7)))
        return next(one for one in heads.deliveries if one.key == key)

    def give_up(self, head: Any, policy: Policy = Policy.BLOCK) -> Any:
        given = GivenUp(
            head.lane_id, head.seq, head.fence, head.holder, head.event_id, 1, "gone", policy, "sender/1"
        )
        return self.commits.submit(GiveUp(given))

    def plan(self, name: str) -> RollbackPlan:
        """A proposed roll-back."""
        lines = PlanLines((RollbackLine(1, "routes", '"r"', "m", b"1", None, (), ()),))
        now_ms = self.clock.wall_ms()
        plan = RollbackPlan(
            name, 1, "f" * 64, now_ms, "Ada", now_ms + 9_999, PlanState.PROPOSED, 9, lines.digest, lines=1
        )
        self.plans.propose(plan, lines)
        return plan

    def write(self, call: Callable[[Any], Any]) -> Any:
        with self.commits.transaction() as session:
            return call(session)

    def picture(self) -> list[Any]:
        """The newest entries, lanes, documents and the newest of the log as another session sees them."""
        with self.store.look(again=True) as session:
            entries = [session.detail(one.entry_id) for one in session.entries(EntryFilter(), None, 2)]
            documents = [
                session.documents(kind) for kind in ("rollback", "surface", "page-sessions", "limits")
            ]
            return [
                entries,
                documents,
                session.destinations(),
                session.log_before(None, 9, by_people=False),
            ]


WORD = LaneDecision("Ada", "why")
SEEN = DecidedView("orders", 0, NOTHING_DECIDED)
PAUSED = switched_to(NOTHING_DECIDED, SurfaceMode.PAUSED, "Ada", "why", 1)


class Step(NamedTuple):
    """What is prepared, what is done with it, and the records it leaves; `of` is the transition."""

    name: str
    prepare: Callable[[Ledger], Any]
    act: Callable[[Ledger, Any], Any]
    records: list[tuple[LogKind, str]]
    of: tuple[State | None, State] | None = None


def settled(state: State) -> Step:
    return Step(
        f"in flight to {state.label}",
        lambda ledger: ledger.arrive(f"settle-{state.label}"),
        lambda ledger, claim: ledger.end(claim, state, reason="why"),
        [(LogKind[state.name], "worker/1")],
        (S.IN_FLIGHT, state),
    )


def said(verb: Verb, before: State, after: State, kind: LogKind) -> Step:
    name = f"{verb.value}-{before.label}"
    return Step(
        f"{before.label} to {after.label} by a person",
        lambda ledger: ledger.stand(name, before).entry_id,
        lambda ledger, entry: ledger.rulings.say(entry, EntryDecision(verb, "Ada", "why")),
        [(kind, "Ada")],
        (before, after),
    )


def again(name: str, before: State, after: State, kind: LogKind, attempts_max: int) -> Step:
    """A known key arrives once more after its lease or wait."""

    def prepare(ledger: Ledger) -> None:
        ledger.stand(name, before)
        ledger.clock.advance(60)

    def act(ledger: Ledger, _: Any) -> Any:
        return ledger.arrive(name, attempts_max=attempts_max)

    return Step(f"{before.label} to {after.label}", prepare, act, [(kind, "gate/1")], (before, after))


def stopped(before: State) -> Step:
    return Step(
        f"{before.label} to quarantined by the scan",
        lambda ledger: ledger.pair(f"stop-{before.label}", before),
        lambda ledger, flag: ledger.flag(flag),
        [(K.DUPLICATE, "scan/1"), (K.DUPLICATE, "scan/1"), (K.QUARANTINED, "scan/1")],
        (before, S.QUARANTINED),
    )


def new(state: State, **parked: str) -> Step:
    kinds = [(LogKind[state.name], "gate/1")] if parked else []
    name = f"new-{state.label}"
    return Step(
        name, lambda ledger: None, lambda ledger, _: ledger.arrive(name, **parked), kinds, (None, state)
    )


def steered(state: DestinationState, kind: LogKind) -> Step:
    return Step(
        f"destination {state.label}",
        lambda ledger: ledger.head(f"steer-{state.label}", is_leased=False),
        lambda ledger, _: ledger.lanes.steer(ENDPOINT, state, WORD),
        [(kind, "Ada")],
    )


def dead(ledger: Ledger, key: str) -> Any:
    head = ledger.head(key)
    ledger.give_up(head)
    return head


def flagged(ledger: Ledger, name: str, state: State) -> int:
    flag = ledger.pair(name, state)
    ledger.flag(flag)
    return flag.entry_id


def noted(kind: LogKind) -> Step:
    """What changes nothing is a record and nothing else."""
    return Step(
        f"note {kind.name.lower()}",
        lambda ledger: None,
        lambda ledger, _: ledger.write(lambda session: session.add_notes([Note(0, kind, 1, "Ada", "why")])),
        [(kind, "Ada")],
    )


def changed(kind: LogKind) -> Step:
    change = DocumentChange("limits", kind.name, 0, b"{}", 1, "Ada", "why", kind)
    return Step(
        f"document {kind.name.lower()}",
        lambda ledger: None,
        lambda ledger, _: ledger.commits.submit(ChangeDocument(change)),
        [(kind, "Ada")],
    )


STEPS = [
    new(S.IN_FLIGHT), new(S.HELD, hold="why"), new(S.QUARANTINED, quarantine="why"),
    *(settled(state) for state in (S.COMMITTED, S.FAILED, S.RETRYABLE, S.UNKNOWN, S.HELD)),
    again("lapsed", S.IN_FLIGHT, S.IN_FLIGHT, K.RECOVERED, 8),
    again("lapsed often", S.IN_FLIGHT, S.HELD, K.HELD, 1),
    again("tried", S.RETRYABLE, S.IN_FLIGHT, K.TAKEN_UP, 8),
    again("tried often", S.RETRYABLE, S.HELD, K.HELD, 1),
    stopped(S.RETRYABLE), stopped(S.HELD),
    said(Verb.APPROVE, S.UNKNOWN, S.RETRYABLE, K.APPROVED),
    said(Verb.REJECT, S.UNKNOWN, S.FAILED, K.REJECTED),
    said(Verb.APPROVE, S.HELD, S.RETRYABLE, K.APPROVED),
    said(Verb.REJECT, S.HELD, S.FAILED, K.REJECTED),
    said(Verb.RELEASE, S.QUARANTINED, S.RETRYABLE, K.RELEASED),
    said(Verb.DISCARD, S.QUARANTINED, S.FAILED, K.DISCARDED),
    said(Verb.RETRY, S.FAILED, S.RETRYABLE, K.RUN_AGAIN),
    Step("an answer of a downstream", lambda ledger: ledger.arrive("probed"),
         lambda ledger, claim: ledger.probe(claim),
         [(K.PROBED, "worker/1")]),
    Step("another content", lambda ledger: ledger.stand("other", S.COMMITTED),
         lambda ledger, _: ledger.arrive("other", fingerprint=b"other"), [(K.CONFLICT, "gate/1")]),
    Step("a pair is meant", lambda ledger: flagged(ledger, "meant", S.COMMITTED),
         lambda ledger, entry: decide_pair(
             ledger.commits, ledger.clock, entry, PairWord(PairVerb.MEANT, "Ada", "why")),
         [(K.DISMISSED, "Ada")]),
    Step("the first of a pair is kept", lambda ledger: flagged(ledger, "kept", S.HELD),
         lambda ledger, entry: decide_pair(
             ledger.commits, ledger.clock, entry, PairWord(PairVerb.KEEP_FIRST, "Ada", "why")),
         [(K.DISCARDED, "Ada"), (K.DISMISSED, "Ada")]),
    Step("a late resource", lambda ledger: ledger.stand("late", S.COMMITTED).entry_id,
         lambda ledger, entry: ledger.write(lambda session: session.note_late(
             [LateResource(entry, b"b" * 16, "book", "bank", "R-3", 1, "worker/1")])),
         [(K.SECOND_RESOURCE, "worker/1")]),
    Step("a second resource is acknowledged", lambda ledger: ledger.late("seen"),
         lambda ledger, number: decide_second(
             ledger.commits, ledger.clock, number, SecondWord(SecondVerb.ACKNOWLEDGE, "Ada", "why")),
         [(K.SECOND_RESOURCE, "Ada")]),
    Step("a second resource is undone", lambda ledger: ledger.late("undone"),
         lambda ledger, number: decide_second(
             ledger.commits, ledger.clock, number, SecondWord(SecondVerb.UNDONE, "Ada", "why")),
         [(K.DISMISSED, "Ada")]),
    steered(DestinationState.PAUSED, K.DESTINATION_PAUSED),
    steered(DestinationState.DISABLED, K.DESTINATION_DISABLED),
    steered(DestinationState.ACTIVE, K.DESTINATION_RESUMED),
    Step("a dead letter", lambda ledger: ledger.head("dead"), lambda ledger, head: ledger.give_up(head),
         [(K.DEAD_LETTERED, "sender/1")]),
    Step("a head is tried again", lambda ledger: dead(ledger, "retried"),
         lambda ledger, head: ledger.lanes.order(LaneVerb.RETRY, head.lane_id, head.seq, WORD),
         [(K.HEAD_RETRIED, "Ada")]),
    Step("a head is skipped", lambda ledger: dead(ledger, "skipped"),
         lambda ledger, head: ledger.lanes.order(LaneVerb.SKIP, head.lane_id, head.seq, WORD),
         [(K.HEAD_SKIPPED, "Ada")]),
    Step("a replay", lambda ledger: dead(ledger, "replay"),
         lambda ledger, head: ledger.lanes.replay(ledger.lanes.replay_wanted(ENDPOINT, WORD, 98)),
         [(K.REPLAY_STARTED, "Ada")]),
    Step("a replay is cancelled", lambda ledger: None,
         lambda ledger, _: ledger.lanes.cancel_replay(98, WORD), [(K.REPLAY_CANCELLED, "Ada")]),
    Step("keys are forgotten", lambda ledger: ledger.stand("forget", S.COMMITTED).entry_id,
         lambda ledger, entry: ledger.write(lambda session: session.forget(
             Forgetting("orders", ledger.clock.wall_ms() + 1, (entry,), 1, "pruner/1"))),
         [(K.FORGOTTEN, "pruner/1")]),
    Step("an entry is erased", lambda ledger: ledger.stand("erase", S.COMMITTED).entry_id,
         lambda ledger, entry: ledger.write(lambda session: session.erase(
             Erasure((entry,), 1, "Ada", ERASED_OUTCOME, "why"))),
         [(K.ERASED, "Ada")]),
    Step("a surface is switched", lambda ledger: None,
         lambda ledger, _: decide(
             ledger.commits, ledger.clock, SEEN, PAUSED, what="paused", actor="Ada", reason="why"),
         [(K.DOCUMENT_CHANGED, "Ada")]),
    Step("sessions are ended", lambda ledger: None,
         lambda ledger, _: ledger.sessions.end_all("Bo", "Ada", "why"), [(K.SIGNED_OUT, "Ada")]),
    Step("a roll-back is asked for", lambda ledger: None,
         lambda ledger, _: ledger.plans.want(1, "f" * 64, "Ada"), [(K.PLAN_MADE, "Ada")]),
    Step("a roll-back is proposed", lambda ledger: None, lambda ledger, _: ledger.plan("proposed"),
         [(K.PLAN_MADE, "Ada")]),
    Step("lines of a roll-back are chosen", lambda ledger: ledger.plan("chosen"),
         lambda ledger, plan: ledger.plans.choose(plan.name, {1}, "Ada"), [(K.DOCUMENT_CHANGED, "Ada")]),
    Step("a roll-back is approved", lambda ledger: ledger.plan("approved"),
         lambda ledger, plan: ledger.plans.approve(plan.name, plan.digest, "Ada", "why"),
         [(K.JOB_STARTED, "Ada")]),
    Step("a roll-back is cancelled", lambda ledger: ledger.plan("cancelled"),
         lambda ledger, plan: ledger.plans.cancel(plan.name, "Ada", "why"), [(K.JOB_CANCELLED, "Ada")]),
    changed(K.WENT_BACK), changed(K.KEY_INTRODUCED),
    *map(noted, (K.REVEALED, K.REFUSED, K.SIGNED_IN, K.SIGN_IN_REFUSED, K.CONTENT_PRUNED)),
]  # fmt: skip


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    is_local = request.param == "sqlite"
    made = Ledger(f"sqlite:///{tmp_path}/l.db" if is_local else request.getfixturevalue("ledger_url"))
    yield made
    made.commits.close()


def test_the_walk_has_every_transition_and_every_kind_of_record() -> None:
    walked = {step.of for step in STEPS if step.of is not None and step.of[0] is not None}
    assert walked == {(before, after) for before, many in TRANSITIONS.items() for after in many}
    assert {kind for step in STEPS for kind, _ in step.records} == set(LogKind)


@pytest.mark.slow
def test_each_step_is_one_unit_with_its_records_and_their_author(ledger: Ledger) -> None:
    for step in STEPS:
        given = step.prepare(ledger)
        before = ledger.picture()
        ledger.faults.plan.append(Fault.UNDONE)
        try:
            step.act(ledger, given)  # an order to a lane is given once more by itself
        except StoreError:
            assert ledger.picture() == before, f"{step.name}: undone, and something stands"
            units = ledger.faults.units
            step.act(ledger, given)
            assert ledger.faults.units == units + 1, f"{step.name}: more than one transaction"
        after = ledger.picture()
        records = [one for one in after[-1][::-1] if one not in before[-1]]
        assert [(one.kind, one.actor) for one in records] == step.records, step.name
        if step.of is not None:
            (entry,) = [one for one in after[0] if one not in before[0] and one.entry.state is step.of[1]]
            assert [one for one in entry.records if one in records] or not step.records
