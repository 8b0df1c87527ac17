"""Roll-back plans as they are kept in the ledger: what is proposed, who approved it, how far it has come.

A plan is two documents: a short one that changes, and its lines, which never do. Every change is made
against the version that was seen, so that of two operators only one has an effect (I20).
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Callable, Collection
from enum import Enum
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from oncegate.clock import Clock
from oncegate.commit.group_commit import GroupCommit
from oncegate.errors import PlanRefused
from oncegate.model.decisions import check_reason
from oncegate.store import DocumentChange, LogKind, Session

KIND: Final = "rollback"
LINES: Final = "rollback lines"
LEFT_SHOWN_MAX: Final = 200


class PlanState(Enum):
    """Where a plan stands; the values are words for people."""

    WANTED = "being made"
    FAILED = "could not be made"
    PROPOSED = "waits for approval"
    APPROVED = "approved"
    APPLYING = "being applied"
    APPLIED = "applied"
    MOVED = "refused: the state moved"
    CANCELLED = "cancelled"


ENDED: Final = frozenset({PlanState.FAILED, PlanState.APPLIED, PlanState.MOVED, PlanState.CANCELLED})


class RollbackLine(Struct, frozen=True):
    """One object of a plan: its live value, the value it shall have, and why.

    Values are canonical JSON; None where the object does not, or shall not, exist. `conflict` says that a
    person or another program changed the object since. `hand` is the text for work that no declared
    compensation does.
    """

    number: int
    family: str  # the belief, or the mutation where it names none
    target: str
    mutation: str
    live: bytes | None
    to: bytes | None
    why: tuple[str, ...]
    entries: tuple[int, ...]
    conflict: str | None = None
    hand: str | None = None


class LeftAlone(Struct, frozen=True):
    """An object that differs from the snapshot without a recorded mutation."""

    family: str
    target: str
    change: str


class PlanLines(Struct, frozen=True):
    """What never changes in a plan."""

    lines: tuple[RollbackLine, ...]
    left_alone: tuple[LeftAlone, ...] = ()

    @property
    def digest(self) -> str:
        """What a person approves."""
        return sha256(msgspec.msgpack.encode(self)).hexdigest()


class PlanApproval(Struct, frozen=True):
    """One person's yes."""

    actor: str
    at_ms: int
    reason: str


class PlanProgress(Struct, frozen=True):
    """How far a plan has come. `waiting` lines are tried again; `problems` has the first of what failed."""

    done: int = 0
    failed: int = 0
    waiting: int = 0
    problems: tuple[str, ...] = ()
    differing: int | None = None  # lines whose object is not as planned at the end; None: not checked yet
    sealed: int | None = None  # the snapshot that was taken at the end


class RollbackPlan(Struct, frozen=True):
    """A plan as it stands."""

    name: str
    snapshot: int
    snapshot_hash: str
    made_at_ms: int
    made_by: str
    expires_at_ms: int
    state: PlanState
    second_above: int
    digest: str = ""
    lines: int = 0
    conflicts: int = 0
    by_hand: int = 0
    already_right: int = 0
    left_alone: int = 0
    mutations: int = 0
    unticked: tuple[int, ...] = ()
    approvals: tuple[PlanApproval, ...] = ()
    message: str = ""
    progress: PlanProgress = PlanProgress()

    @property
    def chosen(self) -> int:
        """How many lines are to be run."""
        return self.lines - self.by_hand - len(self.unticked)

    @property
    def people_needed(self) -> int:
        """How many people must say yes."""
        return 2 if self.chosen > self.second_above else 1

    def approved(
        self, digest: str, approval: PlanApproval, unticked: tuple[int, ...] | None
    ) -> RollbackPlan:
        """The plan with one more yes; raises PlanRefused where it may not be given."""
        self._check(digest, approval.at_ms)
        if self.approvals:
            if self.approvals[0].actor == approval.actor:
                raise PlanRefused(f"{approval.actor} approved it already; a second person has to")
            if unticked is not None and unticked != self.unticked:
                raise PlanRefused("the first person approved other lines; approve the same ones")
        plan = self if self.approvals or unticked is None else replace(self, unticked=unticked)
        if plan.chosen <= 0:
            raise PlanRefused("no line is left to run; tick one, or cancel the plan")
        approvals = (*plan.approvals, approval)
        is_enough = len(approvals) >= plan.people_needed
        state = PlanState.APPROVED if is_enough else PlanState.PROPOSED
        return replace(plan, approvals=approvals, state=state)

    def _check(self, digest: str, now_ms: int) -> None:
        if self.state is not PlanState.PROPOSED:
            by = f" by {self.approvals[-1].actor}" if self.approvals else ""
            raise PlanRefused(f"plan {self.name} is {self.state.value}{by}; nothing was changed")
        if now_ms >= self.expires_at_ms:
            raise PlanRefused(f"plan {self.name} has expired; make a new one: the state may have moved")
        if not digest or not self.digest.startswith(digest) or len(digest) < 12:
            raise PlanRefused("the hash is not that of this plan; look at the plan again")


class _Told(NamedTuple):
    actor: str
    kind: LogKind | None
    note: str


class PlanBook:
    """The plans of one ledger."""

    def __init__(self, commits: GroupCommit, clock: Clock) -> None:
        self._commits = commits
        self._clock = clock

    def all(self, session: Session) -> list[RollbackPlan]:
        """Every plan, newest first."""
        found = [_plan(document.body) for document in session.documents(KIND)]
        return sorted(found, key=lambda plan: (plan.made_at_ms, plan.name), reverse=True)

    def read(self, session: Session, name: str) -> RollbackPlan:
        """One plan."""
        found = session.document(KIND, name)
        if found is None:
            raise PlanRefused(f"there is no roll-back plan {name[:40]!r}; see: oncegate rollback list")
        return _plan(found.body)

    def lines(self, session: Session, name: str) -> PlanLines:
        """The lines of a plan."""
        found = session.document(LINES, name)
        if found is None:
            return PlanLines(())
        return msgspec.msgpack.decode(zlib.decompress(found.body), type=PlanLines)

    def want(self, snapshot: int, digest: str, actor: str) -> str:
        """Asks the worker to make a plan; returns its name."""
        now_ms = self._clock.wall_ms()
        plan = RollbackPlan(
            secrets.token_hex(4), snapshot, digest, now_ms, actor, now_ms, PlanState.WANTED, 0
        )
        with self._commits.transaction() as session:
            told = _Told(actor, LogKind.PLAN_MADE, f"asked for, to snapshot {snapshot}")
            self._write(session, plan, 0, told)
        return plan.name

    def propose(self, plan: RollbackPlan, lines: PlanLines) -> None:
        """Keeps a plan with its lines; in the place of one that was asked for."""
        body = zlib.compress(msgspec.msgpack.encode(lines), 1)
        told = f"{plan.chosen} lines to snapshot {plan.snapshot}, hash {plan.digest[:16]}"
        with self._commits.transaction() as session:
            asked = session.document(KIND, plan.name)
            if asked is not None and _plan(asked.body).state is not PlanState.WANTED:
                raise PlanRefused(f"plan {plan.name} was made or cancelled meanwhile")
            change = DocumentChange(LINES, plan.name, 0, body, plan.made_at_ms, plan.made_by, "", None)
            session.change_document(change)
            version = 0 if asked is None else asked.version
            self._write(session, plan, version, _Told(plan.made_by, LogKind.PLAN_MADE, told))

    def approve(
        self, name: str, digest: str, actor: str, reason: str, unticked: tuple[int, ...] | None = None
    ) -> RollbackPlan:
        """One person's yes to exactly this plan, less the lines that are unticked."""
        approval = PlanApproval(actor, self._clock.wall_ms(), check_reason(reason))
        with self._commits.store.look(again=True) as session:
            lines = self.lines(session, name).lines
        known = {line.number for line in lines if line.hand is None}
        numbers = None if unticked is None else tuple(sorted(known & set(unticked)))

        def change(plan: RollbackPlan) -> RollbackPlan:
            return plan.approved(digest, approval, numbers)

        told = f"approved, hash {digest[:16]}: {approval.reason}"
        return self.change(name, change, actor, LogKind.JOB_STARTED, told)

    def choose(self, name: str, unticked: Collection[int], actor: str) -> RollbackPlan:
        """Leaves these lines out, before the first yes; the journal says which."""
        left_out = tuple(sorted(unticked))

        def change(plan: RollbackPlan) -> RollbackPlan:
            if plan.state is not PlanState.PROPOSED or plan.approvals:
                raise PlanRefused("the plan was approved or ended meanwhile; its lines are fixed")
            return replace(plan, unticked=left_out)

        told = f"lines left out: {', '.join(map(str, left_out)) or 'none'}"
        return self.change(name, change, actor, LogKind.DOCUMENT_CHANGED, told)

    def cancel(self, name: str, actor: str, reason: str) -> RollbackPlan:
        """Ends a plan; what is done stays done."""
        why = check_reason(reason)

        def change(plan: RollbackPlan) -> RollbackPlan:
            if plan.state in ENDED:
                raise PlanRefused(f"plan {name} is {plan.state.value}; nothing was changed")
            return replace(plan, state=PlanState.CANCELLED, message=f"cancelled by {actor}: {why}")

        return self.change(name, change, actor, LogKind.JOB_CANCELLED, f"cancelled: {why}")

    def change(
        self,
        name: str,
        change: Callable[[RollbackPlan], RollbackPlan],
        actor: str = "worker",
        recorded_as: LogKind | None = None,
        note: str = "",
    ) -> RollbackPlan:
        """Changes a plan, once: another change meanwhile is refused."""
        with self._commits.transaction() as session:
            found = session.document(KIND, name)
            if found is None:
                raise PlanRefused(f"there is no roll-back plan {name[:40]!r}")
            plan = change(_plan(found.body))
            self._write(session, plan, found.version, _Told(actor, recorded_as, note))
        return plan

    def _write(self, session: Session, plan: RollbackPlan, version: int, told: _Told) -> None:
        note, now_ms = f"roll-back {plan.name}: {told.note}"[:300], self._clock.wall_ms()
        body = msgspec.json.encode(plan)
        wanted = DocumentChange(KIND, plan.name, version, body, now_ms, told.actor, note, told.kind)
        if not session.change_document(wanted):
            raise PlanRefused(f"plan {plan.name} was changed by another operator meanwhile; look again")


def _plan(body: bytes) -> RollbackPlan:
    return msgspec.json.decode(body, type=RollbackPlan)
