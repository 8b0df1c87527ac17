"""Letting events run again that a roll-back undid: under a key of their own, once for each undoing (I17).

The key that an event came under stays known, so a repeat of it stays a replay. Its kept event gets another
key, made of that key alone, and waits for the worker as an approved event does. An entry takes effect once,
so it is undone once and released once, whichever plans name it. Its next run is another entry with another
key: a plan that undoes that run releases that entry. Must never release a compensation.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from msgspec import Struct

from oncegate.clock import Clock
from oncegate.commit.group_commit import GroupCommit
from oncegate.errors import PlanRefused
from oncegate.journal.rollback.applying import ASYNC_SURFACE, KEY, SURFACE
from oncegate.journal.rollback.plans import PlanBook, PlanState, RollbackLine, RollbackPlan
from oncegate.model.decisions import Verb, check_reason
from oncegate.model.keys import derive_key
from oncegate.model.states import Decision, State
from oncegate.store import Entry, EntryDetail, LogKind, Note, Reservation, Ruling, Session

ATTEMPTS_MAX = 8
_SURFACES: Final = (SURFACE, ASYNC_SURFACE)
_RAN: Final = frozenset({PlanState.APPLYING, PlanState.APPLIED, PlanState.CANCELLED})


class ReleasedEvent(Struct, frozen=True):
    """What came of one event: the entry it runs again as, or why it does not."""

    entry_id: int
    again: int | None = None
    refused: str = ""


def again_key(key: bytes) -> bytes:
    """The key that an event runs again under, after a plan undid it: the same one for every plan."""
    return blake2b(key + b"rollback:again", digest_size=len(key)).digest()


def ran_again(session: Session, key: bytes) -> int | None:
    """The entry that an event was released as; None if it was not."""
    (found,) = session.read([again_key(key)])
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

    def _undone(self, session: Session, plan: RollbackPlan) -> dict[int, str]:
        """Every event that the plan undid, and why it may not be released; empty where it may."""
        found: dict[int, str] = {}
        lines = self._book.lines(session, plan.name).lines
        runs = {line.number: _run(session, plan.name, line) for line in lines}
        over = self._over(session, {run for run in runs.values() if run is not None})
        for line in lines:
            run = runs[line.number]
            for entry in _since_last(session, line.entries):
                why = "a line of it was not done" if run is None else ""
                for name, other in over.get(run or 0, ()):
                    if entry not in other.entries:  # it led to a state that the event was a part of
                        why = f"plan {name} brought its change back"
                found[entry] = found.get(entry) or why
        return found

    def _over(self, session: Session, runs: set[int]) -> dict[int, list[tuple[str, RollbackLine]]]:
        """By compensation, the lines of other plans that were done after it on its object."""
        found: dict[int, list[tuple[str, RollbackLine]]] = {}
        for plan in self._book.all(session):
            for line in self._book.lines(session, plan.name).lines if plan.state in _RAN else ():
                before = runs.intersection(line.entries)
                if before and _run(session, plan.name, line) is not None:
                    for run in before:
                        found.setdefault(run, []).append((plan.name, line))
        return found

    def _one(
        self, plan: RollbackPlan, entry_id: int, undone: dict[int, str], actor: str, why: str
    ) -> ReleasedEvent:
        if told := undone.get(entry_id, "this plan did not undo it"):
            return ReleasedEvent(entry_id, None, told)
        with self._commits.transaction() as session:
            seen = session.detail(entry_id)
            if seen is None or seen.body is None or seen.entry.state is not State.COMMITTED:
                return ReleasedEvent(
                    entry_id, None, "its event is not kept any more; send it under a new key"
                )
            before = ran_again(session, seen.entry.key)
            if before is not None:
                return ReleasedEvent(entry_id, before, f"it was released before, as entry {before}")
            return ReleasedEvent(entry_id, self._again(session, plan, seen, actor, why))

    def _again(self, session: Session, plan: RollbackPlan, seen: EntryDetail, actor: str, why: str) -> int:
        entry, now_ms = seen.entry, self._clock.wall_ms()
        told = f"entry {entry.entry_id} again, after roll-back {plan.name}"
        wanted = Reservation(
            again_key(entry.key), entry.tenant, entry.surface, entry.label, entry.fingerprint,
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


def line_entries(session: Session, plan: str, line: RollbackLine) -> list[Entry]:
    """The entry that a line ran as, in a list; an empty one if it did not run."""
    keys = [derive_key("", surface, KEY, (plan, str(line.number))).digest for surface in _SURFACES]
    return [one for one in session.read(keys) if one is not None]


def _run(session: Session, plan: str, line: RollbackLine) -> int | None:
    """The entry that a line was done as; None if it was not."""
    found = line_entries(session, plan, line)
    return found[0].entry_id if found and all(one.state is State.COMMITTED for one in found) else None


def _since_last(session: Session, entries: Sequence[int]) -> list[int]:
    """The events after the last compensation: an earlier one was undone by that, not by this line.

    A forgotten entry may have been a compensation, and counts as one.
    """
    kept: list[int] = []
    for number in entries:
        found = session.detail(number)
        if found is None:
            kept = []
        elif found.entry.surface not in _SURFACES:
            kept.append(number)
        elif found.entry.state is State.COMMITTED:
            kept = []
    return kept
