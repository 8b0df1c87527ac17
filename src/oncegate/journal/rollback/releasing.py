"""Letting events run again that a roll-back undid: under a key of their own, once for each plan (I17).

The key that an event came under stays known, so a repeat of it stays a replay. Its kept event gets another
key, made of that key and the plan, and waits for the worker as an approved event does.
"""

from __future__ import annotations

from hashlib import blake2b

from msgspec import Struct

from oncegate.clock import Clock
from oncegate.commit.group_commit import GroupCommit
from oncegate.errors import PlanRefused
from oncegate.journal.rollback.applying import ASYNC_SURFACE, KEY, SURFACE
from oncegate.journal.rollback.plans import PlanBook, PlanState, RollbackPlan
from oncegate.model.decisions import Verb, check_reason
from oncegate.model.keys import derive_key
from oncegate.model.states import Decision, State
from oncegate.store import EntryDetail, LogKind, Note, Reservation, Ruling, Session

ATTEMPTS_MAX = 8


class ReleasedEvent(Struct, frozen=True):
    """What came of one event: the entry it runs again as, or why it does not."""

    entry_id: int
    again: int | None = None
    refused: str = ""


def again_key(key: bytes, plan: str) -> bytes:
    """The key that an event runs again under, after a plan undid it."""
    return blake2b(key + b"rollback:" + plan.encode(), digest_size=len(key)).digest()


def ran_again(session: Session, key: bytes, plan: str) -> int | None:
    """The entry that an event of this plan was released as; None if it was not."""
    (found,) = session.read([again_key(key, plan)])
    return None if found is None else found.entry_id


class Releasing:
    """Releases events of one applied plan."""

    def __init__(self, commits: GroupCommit, clock: Clock) -> None:
        self._commits, self._clock = commits, clock
        self._book = PlanBook(commits, clock)

    def release(self, name: str, entries: list[int] | None, actor: str, reason: str) -> list[ReleasedEvent]:
        """Releases these events, or all whose lines were done; each in a transaction of its own."""
        why = check_reason(reason)
        with self._commits.store.look(again=True) as session:
            plan = self._book.read(session, name)
            if plan.state is not PlanState.APPLIED:
                raise PlanRefused(
                    f"plan {name} is {plan.state.value}; only events of an applied one are released"
                )
            undone = self._undone(session, plan)
        asked = list(undone) if entries is None else entries
        return [self._one(plan, entry, undone, actor, why) for entry in asked]

    def _undone(self, session: Session, plan: RollbackPlan) -> dict[int, bool]:
        """Every event behind the plan, and whether all of its lines were done."""
        found: dict[int, bool] = {}
        for line in self._book.lines(session, plan.name).lines:
            keys = [
                derive_key("", surface, KEY, (plan.name, str(line.number))).digest
                for surface in (SURFACE, ASYNC_SURFACE)
            ]
            states = {one.state for one in session.read(keys) if one is not None}
            for entry in line.entries:
                found[entry] = found.get(entry, True) and states == {State.COMMITTED}
        return found

    def _one(
        self, plan: RollbackPlan, entry_id: int, undone: dict[int, bool], actor: str, why: str
    ) -> ReleasedEvent:
        if not undone.get(entry_id):
            told = "a line of it was not done" if entry_id in undone else "it is not behind this plan"
            return ReleasedEvent(entry_id, None, told)
        with self._commits.transaction() as session:
            seen = session.detail(entry_id)
            if seen is None or seen.body is None or seen.entry.state is not State.COMMITTED:
                return ReleasedEvent(
                    entry_id, None, "its event is not kept any more; send it under a new key"
                )
            before = ran_again(session, seen.entry.key, plan.name)
            if before is not None:
                return ReleasedEvent(entry_id, before, f"it was released before, as entry {before}")
            return ReleasedEvent(entry_id, self._again(session, plan, seen, actor, why))

    def _again(self, session: Session, plan: RollbackPlan, seen: EntryDetail, actor: str, why: str) -> int:
        entry, now_ms = seen.entry, self._clock.wall_ms()
        told = f"entry {entry.entry_id} again, after roll-back {plan.name}"
        wanted = Reservation(
            again_key(entry.key, plan.name), entry.tenant, entry.surface, entry.label, entry.fingerprint,
            seen.body or b"", now_ms, 0, ATTEMPTS_MAX, 0, actor=actor, hold=told,
        )  # fmt: skip
        (kept,) = session.reserve([wanted])
        if kept.decision is not Decision.HOLD:
            raise PlanRefused(f"entry {entry.entry_id} is being released by another operator; look again")
        held = session.detail(kept.entry_id)
        assert held is not None
        ruling = Ruling(
            kept.entry_id, held.entry.fence, wanted.key, Verb.APPROVE, actor, why, f"{told}: {why}", now_ms
        )
        (answer,) = session.rule([ruling])
        assert answer.done
        note = f"roll-back {plan.name}: runs again as entry {kept.entry_id}; {why}"[:300]
        session.add_notes([Note(entry.entry_id, LogKind.JOB_STARTED, now_ms, actor, note)])
        return kept.entry_id
