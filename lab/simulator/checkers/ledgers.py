"""What the ledger's rows went through: fences, final states, leases, log records and business writes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from lab.simulator.checkers.effects import named
from lab.simulator.evidence import Change, Evidence
from lab.simulator.schedule import Fate
from lab.simulator.surfaces import ATTEMPTS_MAX, LEASE_SECONDS
from oncegate.model.states import State
from oncegate.store import LogKind
from oncegate.testing.simulation.ledger import Row

_GIVEN_UP: Final = re.compile(r"gave up after \d+ attempts")
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
    """I4, I23: a write for another claim, or to what is not in flight, changes nothing and says so."""
    for write in evidence.writes:
        before = write.before
        if before is not None and _claim_of(before) == write.claim and before.state is State.IN_FLIGHT:
            continue
        if write.answer or write.after is not before:
            yield f"{write.call} with fence {write.claim[0]} at {write.at:.3f} s was taken against {before}"


def _claim_of(row: Row) -> tuple[int, int | None]:
    return row.fence, row.token


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


def waits_are_obeyed(evidence: Evidence) -> Iterator[str]:
    """I26: a failed attempt is made again only when its wait is over, in the ledger's own time."""
    for change in evidence.changes:
        before, after = change.before, change.after
        if before is None or after is None or before.state is not State.RETRYABLE:
            continue
        if after.state is not State.IN_FLIGHT:
            continue
        early_ms = (before.retry_at_ticks or 0) - ((after.lease_until_ticks or 0) - _LEASE_MS)
        if early_ms > 0:
            yield f"entry {after.entry_id} was tried again {early_ms} ms before its time"


def retries_end_by_time(evidence: Evidence) -> Iterator[str]:
    """I26: no event is given up before its attempts fill the horizon, however quickly it came again."""
    for change in evidence.changes:
        before, after = change.before, change.after
        if before is None or after is None or after.state is not State.HELD:
            continue
        if _GIVEN_UP.match(after.reason or "") and before.attempt < ATTEMPTS_MAX:
            yield f"entry {after.entry_id} was given up after {before.attempt} of {ATTEMPTS_MAX} attempts"


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


def writes_are_their_own(evidence: Evidence) -> Iterator[str]:
    """I22: each invoice has the number that its own event counted, and only what stands was counted."""
    numbers = [row[-1] for row in evidence.tables.business["invoices"]]
    for number, times in sorted(Counter(numbers).items()):
        if times > 1:
            yield f"{times} invoices have the number {number}"
    counted = len(evidence.tables.business["numbers"])
    if counted != len(numbers):
        yield f"{counted} invoices were counted, and {len(numbers)} are there"


def neighbours_are_not_touched(evidence: Evidence) -> Iterator[str]:
    """I25: where nothing fails but single events of a batch, all others end at their first attempt."""
    for number, row in evidence.tables.rows.items() if evidence.is_faultless else ():
        intent = evidence.intents.get(number)
        if intent is None or intent.surface != "invoice":
            continue  # the others may have to wait for a slow handler that writes
        if evidence.fates.get(intent) is Fate.SUCCEEDS and row.attempt > 1:
            yield f"{named(intent)} needed {row.attempt} attempts, and nothing was wrong with it"


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
