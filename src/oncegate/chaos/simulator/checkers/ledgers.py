"""What the ledger's rows went through: fences, final states, leases, log records and business writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from oncegate.chaos.simulator.checkers.effects import named
from oncegate.chaos.simulator.evidence import Change, Evidence
from oncegate.chaos.simulator.schedule import Fate
from oncegate.chaos.simulator.surfaces import LEASE_SECONDS
from oncegate.model.states import State
from oncegate.store import LogKind

_LEASE_MS: Final = int(LEASE_SECONDS * 1000)
_CHANGING: Final = frozenset(
    {
        LogKind.COMMITTED,
        LogKind.FAILED,
        LogKind.RETRYABLE,
        LogKind.UNKNOWN,
        LogKind.HELD,
        LogKind.QUARANTINED,
    }
)


def old_fences_write_nothing(evidence: Evidence) -> Iterator[str]:
    """I4: a write with an old fence, or to an entry that is not in flight, changes nothing and says so."""
    for write in evidence.writes:
        before = write.before
        if before is not None and before.fence == write.fence and before.state is State.IN_FLIGHT:
            continue
        if write.answer or write.after is not before:
            yield f"{write.call} with fence {write.fence} at {write.at:.3f} s was taken against {before}"


def fences_grow(evidence: Evidence) -> Iterator[str]:
    """I4: every claim of a key has a larger fence than the one before."""
    for change in evidence.changes:
        before, after = change.before, change.after
        if before is None or after is None:
            continue
        is_claimed = after.token is not None and after.token != before.token
        if after.fence < before.fence or (is_claimed and after.fence <= before.fence):
            yield f"entry {after.entry_id} went from fence {before.fence} to {after.fence}"


def final_is_final(evidence: Evidence) -> Iterator[str]:
    """I9: an entry that is committed or failed never changes again, and its handler never starts again."""
    ended: dict[object, float] = {}
    for change in evidence.changes:
        if change.before is not None and change.before.state.is_final:
            yield f"entry {change.before.entry_id} changed at {change.at:.3f} s after it was final"
        if change.after is not None and change.after.state.is_final:
            ended.setdefault(evidence.intents.get(change.after.entry_id), change.at)
    for start in evidence.starts:
        # A worker that reserved before and was stalled may start late; its effects are refused.
        if start.since > ended.get(start.intent, float("inf")):
            yield f"the handler of {named(start.intent)} was begun at {start.since:.3f} s, after its end"


def passing_failures_are_not_final(evidence: Evidence) -> Iterator[str]:
    """I9: only what fails for good is recorded as failed, and it is."""
    for number, row in evidence.tables.rows.items():
        fate = evidence.fates.get(evidence.intents.get(number))
        if row.state is State.FAILED and fate is not Fate.FAILS_FOR_GOOD:
            yield f"entry {number} is recorded as failed for good, and it only failed for a while"
        if row.state is State.COMMITTED and fate is Fate.FAILS_FOR_GOOD:
            yield f"entry {number} is committed, and it failed for good"


def leases_follow_no_wall_clock(evidence: Evidence) -> Iterator[str]:
    """I15: a claim is taken over only after its lease has lasted in true time."""
    touched: dict[int, int] = {}
    for change in evidence.changes:
        row = change.after
        if row is None:
            continue
        lasted_ms = change.true_ms - touched.get(row.entry_id, 0)
        if _is_take_over(change) and lasted_ms < _LEASE_MS - 1:
            yield f"entry {row.entry_id} was taken over {lasted_ms} ms after its claim"
        touched[row.entry_id] = change.true_ms


def _is_take_over(change: Change) -> bool:
    before, after = change.before, change.after
    return (
        before is not None
        and after is not None
        and before.state is State.IN_FLIGHT
        and after.state is State.IN_FLIGHT
        and after.token != before.token
    )


def one_record_for_a_change(evidence: Evidence) -> Iterator[str]:
    """I16: each end of a claim has exactly one record in the log."""
    ended: Counter[tuple[int, int]] = Counter()
    for change in evidence.changes:
        row = change.after
        if row is not None and row.state is not State.IN_FLIGHT and _is_end(change):
            ended[row.entry_id, row.state.value] += 1
    told = Counter((r.entry_id, r.kind.value) for r in evidence.tables.log.values() if r.kind in _CHANGING)
    for place in sorted(ended.keys() | told.keys()):
        if ended[place] != told[place]:
            yield f"entry {place[0]}: {ended[place]} changes to state {place[1]}, {told[place]} records"


def _is_end(change: Change) -> bool:
    before, after = change.before, change.after
    return before is None or (after is not None and before.state is not after.state)


def one_booking_for_a_commit(evidence: Evidence) -> Iterator[str]:
    """I16, A5: a committed entry and its business write are there together or not at all."""
    booked = {str(row[0]) for row in evidence.tables.business["bookings"]}
    for number, row in evidence.tables.rows.items():
        intent = evidence.intents.get(number)
        if intent is None or intent.surface == "pay":
            continue
        name = "/".join((intent.surface, intent.tenant, *intent.ident))
        if (row.state is State.COMMITTED) != (name in booked):
            where = "there" if name in booked else "not there"
            yield f"{named(intent)} is {row.state.label} and its booking is {where}"
