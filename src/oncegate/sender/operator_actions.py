"""The sender's desk: what operators do about blocked keys and dead letters, one or many.

Many is always plan, confirm, carry out with progress, cancel. A plan names the lanes and the seqs that
fitted the filter when it was made; a job acts on these and no others, in short steps. Must never touch a
seq that the plan did not show: each order names the seq it means, and the store refuses another. The lane
is compared by its name: a ledger that went back may have given its number to another one.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from enum import Enum
from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from oncegate.clock import Clock
from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.lane_operations import RetryHead, SkipHead, Steer
from oncegate.errors import UsageError
from oncegate.store import (
    DestinationState,
    HeadAnswer,
    HeadOrder,
    LaneFilter,
    LaneName,
    LaneState,
    LaneView,
    ReplayFilter,
    Replaying,
    ReplayWanted,
    Session,
    Steering,
)

PLAN_LANES_MAX: Final = 100_000  # a plan is held in memory
PAGE_LANES: Final = 500
SAMPLE_LANES: Final = 5
REASON_LENGTH_MAX: Final = 300


def new_nonce() -> int:
    """A number that tells one replay from all others."""
    return secrets.randbits(62) + 1


class LaneVerb(Enum):
    """What can be done about a lane's head."""

    RETRY = "retry"
    SKIP = "skip"

    @property
    def means(self) -> str:
        """What will happen, for people."""
        if self is LaneVerb.RETRY:
            return "the head is sent again now, with all attempts before it; the events behind it follow"
        return "the head is left out permanently and stays in the list of dead letters; the next event goes"


class LaneDecision(Struct, frozen=True):
    """Who says it, and why."""

    actor: str
    reason: str


Head = tuple[int, int, bytes]  # a lane, the seq that was seen as its head, and the mark of the lane's name


def mark_of(lane: LaneView | LaneName) -> bytes:
    """Stands for a lane's name: in a ledger that went back, another lane may have the number (I23)."""
    name = (lane.destination, lane.tenant, lane.key)
    return blake2b(msgspec.msgpack.encode(name), digest_size=8).digest()


class HeadPlan(Struct, frozen=True):
    """Whose heads a verb would be carried out on, each with the seq that was seen."""

    verb: LaneVerb
    heads: tuple[Head, ...]
    sample: tuple[LaneView, ...]
    waiting_behind: int
    is_complete: bool


class ReplayProgress(Struct, frozen=True):
    """How far a job has come. `changed` were not as planned any more."""

    total: int
    done: int = 0
    changed: int = 0
    is_cancelled: bool = False


def checked_word(word: LaneDecision) -> LaneDecision:
    """Returns a word with a reason that fits into the log, or raises UsageError."""
    reason = " ".join(word.reason.split())
    if not reason:
        raise UsageError("say why: a reason is needed, and is kept in the log")
    if not word.actor.strip():
        raise UsageError("say who: a name is needed, and is kept in the log")
    return LaneDecision(word.actor.strip()[:120], reason[:REASON_LENGTH_MAX])


def plan_heads(
    session: Session,
    verb: LaneVerb,
    wanted: LaneFilter,
    states: tuple[LaneState, ...] = (LaneState.BLOCKED,),
) -> HeadPlan:
    """Walks through all lanes of the filter that are blocked, or in these states; changes nothing."""
    blocked = replace(wanted, states=states)
    heads: list[Head] = []
    sample: list[LaneView] = []
    behind = 0
    for lane in _walk(session, blocked):
        if len(heads) == PLAN_LANES_MAX:
            return HeadPlan(verb, tuple(heads), tuple(sample), behind, is_complete=False)
        heads.append((lane.lane_id, lane.due_seq, mark_of(lane)))
        behind += lane.waiting_behind
        if len(sample) < SAMPLE_LANES:
            sample.append(lane)
    return HeadPlan(verb, tuple(heads), tuple(sample), behind, is_complete=True)


def _walk(session: Session, wanted: LaneFilter) -> Iterator[LaneView]:
    after = 0
    while page := session.lanes(wanted, after, PAGE_LANES):
        yield from page
        after = page[-1].lane_id


class OperatorActions:
    """Operators' orders to the lanes of one ledger."""

    def __init__(self, commits: GroupCommit, clock: Clock) -> None:
        self._commits = commits
        self._clock = clock

    def is_lane(self, lane_id: int, mark: bytes) -> bool:
        """Whether a number is still that of the lane with this mark."""
        with self._commits.store.look() as session:
            name = session.lane_names([lane_id]).get(lane_id)
        return name is not None and mark_of(name) == mark

    def order(self, verb: LaneVerb, lane_id: int, seq: int, word: LaneDecision) -> HeadAnswer:
        """Retries or skips one head."""
        word = checked_word(word)
        wanted = HeadOrder(lane_id, seq, word.actor, word.reason, self._clock.wall_ms())
        operation = RetryHead(wanted) if verb is LaneVerb.RETRY else SkipHead(wanted)
        return self._commits.submit(operation)

    def steer(self, destination: str, state: DestinationState, word: LaneDecision) -> bool:
        """Pauses, disables or resumes a destination; False if it is so already."""
        word = checked_word(word)
        wanted = Steering(destination, state, word.actor, word.reason, self._clock.wall_ms())
        return self._commits.submit(Steer(wanted))

    def replay(self, wanted: ReplayWanted) -> Replaying:
        """Takes one step of a replay, in a transaction of its own."""
        with self._commits.transaction() as session:
            return session.replay(wanted)

    def replay_once(self, wanted: ReplayWanted) -> Replaying | None:
        """As `replay`, for a form that may be sent twice: None if its nonce was used before."""
        same = ReplayFilter(nonce=wanted.nonce)
        with self._commits.transaction() as session:
            if session.replay_orders(same, None, 1):
                return None
            done = session.replay(wanted)
            # Refused perhaps because the same form, sent at the same time, was first.
            return None if done.refused and session.replay_orders(same, None, 1) else done

    def cancel_replay(self, nonce: int, word: LaneDecision) -> int:
        """Takes back what is not delivered yet of a replay."""
        word = checked_word(word)
        with self._commits.transaction() as session:
            return session.cancel_replay(nonce, word.actor, word.reason, self._clock.wall_ms())

    def replay_wanted(self, destination: str, word: LaneDecision, nonce: int | None = None) -> ReplayWanted:
        """A replay of everything at a destination, under a new nonce or this, for the caller to narrow."""
        word = checked_word(word)
        return ReplayWanted(
            destination, nonce or new_nonce(), word.actor, word.reason, self._clock.wall_ms()
        )


class HeadJob:
    """Carries out a plan about heads. One thread runs it; any other may read `progress` or cancel."""

    def __init__(self, desk: OperatorActions, plan: HeadPlan, word: LaneDecision) -> None:
        self.plan = plan
        self.progress = ReplayProgress(len(plan.heads))
        self._desk = desk
        self._word = checked_word(word)
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """Stops after the order under way; what is done stays done."""
        self._cancelled.set()

    def run(
        self, on_progress: Callable[[ReplayProgress], object] = lambda progress: None
    ) -> ReplayProgress:
        """Runs to the end or until it is cancelled."""
        for lane_id, seq, mark in self.plan.heads:
            if self._cancelled.is_set():
                self.progress = replace(self.progress, is_cancelled=True)
                break
            is_same = self._desk.is_lane(lane_id, mark)
            is_done = (
                is_same and self._desk.order(self.plan.verb, lane_id, seq, self._word) is HeadAnswer.DONE
            )
            before = self.progress
            self.progress = replace(
                before, done=before.done + is_done, changed=before.changed + (not is_done)
            )
            on_progress(self.progress)
        return self.progress


class ReplayJob:
    """Carries out a replay of many lanes, lane after lane; cancelling takes back what has not gone."""

    def __init__(self, desk: OperatorActions, wanted: ReplayWanted, total: int = 0) -> None:
        self.wanted = wanted
        self.total = total
        self.deliveries = 0
        self.lanes = 0
        self.refused = 0
        self.is_cancelled = False
        self.is_cancelled_elsewhere = False
        self._desk = desk
        self._cancelled = threading.Event()

    @property
    def progress(self) -> ReplayProgress:
        """How far it has come with planting, of the deliveries that were planned."""
        return ReplayProgress(self.total, self.deliveries, is_cancelled=self.is_cancelled)

    def plan(self) -> Replaying:
        """Counts what would be replayed; changes nothing."""
        total = Replaying(0, 0, 0, 0, is_end=False)
        while not total.is_end:
            step = self._desk.replay(replace(self.wanted, dry_run=True, after_lane=total.last_lane))
            total = Replaying(
                total.deliveries + step.deliveries,
                total.lanes + step.lanes,
                total.refused + step.refused,
                step.last_lane,
                step.is_end,
                total.is_cut or step.is_cut,
                sample=(total.sample + step.sample)[:SAMPLE_LANES],
            )
        return total

    def cancel(self) -> None:
        """Stops, and takes back what has not gone yet."""
        self._cancelled.set()

    def run(self, on_progress: Callable[[ReplayJob], object] = lambda job: None) -> ReplayJob:
        """Runs to the end or until it is cancelled."""
        after, is_end = self.wanted.after_lane, False
        while not is_end and not self._cancelled.is_set():
            step = self._desk.replay(replace(self.wanted, after_lane=after))
            self.deliveries += step.deliveries
            self.lanes += step.lanes
            self.refused += step.refused
            after, is_end = step.last_lane, step.is_end
            self.is_cancelled = self.is_cancelled_elsewhere = step.is_cancelled
            on_progress(self)
        if self._cancelled.is_set():
            self.is_cancelled = True
            word = LaneDecision(self.wanted.actor, f"cancelled: {self.wanted.reason}")
            self.deliveries -= self._desk.cancel_replay(self.wanted.nonce, word)
        return self
