"""What a gate does about a ledger that went back in time.

Called by the store while it opens a connection, before anything else of this process uses that ledger. The
gate forgets, loses its claims, and writes down what it knows. An event that this process settled, and that
the ledger has no more, may have had its effect: it becomes an entry that waits for a person, so that a
redelivery does not run it again. Where every downstream it called honours the key or can be asked, recovery
settles it instead. Must never run anything.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast

from msgspec import Struct
from msgspec.structs import replace

from oncegate.clock import from_wall_ms
from oncegate.gate.flows.recovery import THIS_DATABASE
from oncegate.gate.runtime.claim import Claim
from oncegate.gate.runtime.context import GateContext
from oncegate.gate.runtime.recent import Settled
from oncegate.gate.surface import Downstream, Surface
from oncegate.model.states import Decision, State
from oncegate.model.surface import Arrival
from oncegate.model.timestamps import format_timestamp
from oncegate.store import (
    ClaimId,
    ClaimSession,
    DocumentChange,
    Entry,
    LogKind,
    Renewal,
    Reservation,
    Session,
    Settlement,
    StepRecord,
    StepRecords,
    StepState,
)
from oncegate.store.incarnations import ARRIVED, GONE, WENT_BACK, IncarnationChange, home_in

REASON: Final = "the ledger went back"  # how the reason of every entry begins that is written down again
READ_AT_ONCE: Final = 500
COMPARED: Final = 16  # newest settlements that a new connection must show
_LOG: Final = logging.getLogger("oncegate.restored")

Reserving = Callable[[GateContext, Surface, Arrival], Reservation]


class RestoreFindings(Struct):
    """What became of the events that a process remembers."""

    compared: int = 0
    held: list[Settled] = []
    recovering: list[Settled] = []
    again: list[Settled] = []
    undone: list[Settled] = []

    @property
    def lost(self) -> list[Settled]:
        """All that the ledger no longer has, or has again under a new entry."""
        return [*self.held, *self.recovering, *self.again, *self.undone]


class Restorer:
    """The memory of one gate, as the store sees it."""

    def __init__(
        self, gate: GateContext, downstreams: Mapping[str, Downstream], reserving: Reserving
    ) -> None:
        self._gate = gate
        self._downstreams = downstreams
        self._reserving = reserving

    def forget(self) -> None:
        """Answers nothing more from memory; claims are looked at by `restore`."""
        self._gate.cache.clear()
        self._gate.value_follows.clear()

    def misses(self, session: ClaimSession) -> bool:
        """Whether one of the newest settlements is not there."""
        owns = _owner(session)
        mine = [one for one in self._gate.recent.all() if owns(one.reserved.key)]
        newest = [one for one in mine[-COMPARED:] if self._is_kept(one)]
        if not newest:
            return False
        with session.unit():
            return any(_is_missing(session, one, entry) for one, entry in _entries(session, newest))

    def restore(self, session: ClaimSession, change: IncarnationChange) -> None:
        """Loses the claims that the ledger does not have, and writes down the events that it lost."""
        gate = self._gate
        owns = _owner(session)
        claims = [claim for claim in gate.leases.claims() if owns(claim.reserved.key)]
        newest = {one.reserved.key: one for one in gate.recent.all() if owns(one.reserved.key)}
        settled = [one for one in newest.values() if self._is_kept(one)]
        gate.crashpoints.hit("restore.before")
        with session.unit():
            found = self._compare(session, settled, claims)
            if found.lost:
                self._write(session, found, change)
        gate.crashpoints.hit("restore.after")
        gate.recent.drop(owns)
        _tell(found, change, is_listed=gate.has_review)

    def _is_kept(self, one: Settled) -> bool:
        """Whether the ledger must still have it: pruning has not come near it."""
        kept_ms = one.surface.rule.retention_of(one.arrival.tenant).total_seconds() * 500
        return self._gate.clock.wall_ms() - one.at_ms < kept_ms

    def _compare(
        self, session: ClaimSession, settled: list[Settled], claims: list[Claim]
    ) -> RestoreFindings:
        found = RestoreFindings(compared=len(settled) + len(claims))
        alive = [self._as_settled(claim) for claim in claims]
        for claim, (one, entry) in zip(claims, _entries(session, alive), strict=True):
            if entry is not None and _is_held(one, entry):
                self._go_on(session, claim)
                continue
            claim.lost = True
            if entry is not None and _is_written_down(one, entry):
                continue
            if _is_moved(session, one, entry):
                continue
            if not claim.surface.takes_once or claim.called:
                self._sort(found, replace(one, steps=tuple(claim.steps.values())), entry)
        known = {one.reserved.key for one in found.lost}
        for one, entry in _entries(session, [one for one in settled if one.reserved.key not in known]):
            if _is_missing(session, one, entry):
                self._sort(found, one, entry)
            elif entry is not None and entry.state is State.IN_FLIGHT and _is_held(one, entry):
                self._record_steps(session, one.reserved.claim, one.steps)
        return found

    def _go_on(self, session: ClaimSession, claim: Claim) -> None:
        """This ledger has the very claim. What was recorded for it since may be lost."""
        session.renew([Renewal(*claim.id, claim.surface.rule.lease_ms)])
        self._record_steps(session, claim.id, tuple(claim.steps.values()))

    def _record_steps(self, session: ClaimSession, claim: ClaimId, steps: tuple[StepRecord, ...]) -> None:
        """Recovery must know of every call. Steps that only wrote are lost with what they wrote."""
        calls = tuple(step for step in steps if step.downstream != THIS_DATABASE)
        if calls:
            session.progress(
                [StepRecords(*claim, calls, self._gate.clock.wall_ms(), actor=self._gate.actor)]
            )

    def _as_settled(self, claim: Claim) -> Settled:
        now_ms = self._gate.clock.wall_ms()
        return Settled(
            claim.surface, claim.arrival, claim.reserved, State.IN_FLIGHT, now_ms, claim.resource, ()
        )

    def _sort(self, found: RestoreFindings, one: Settled, entry: Entry | None) -> None:
        if entry is not None:
            found.again.append(one)
        elif one.surface.same_database:
            found.undone.append(one)  # its writes are lost with its record: it may simply run again
        elif self._can_recover(one):
            found.recovering.append(one)
        else:
            found.held.append(one)

    def _can_recover(self, one: Settled) -> bool:
        """Whether a second attempt calls nothing twice, by what the downstreams of its steps can do."""
        if not one.surface.takes_once or not one.steps or one.state is State.FAILED:
            return False
        known = self._downstreams
        return all(
            step.downstream in known and not known[step.downstream].is_unrepeatable for step in one.steps
        )

    def _write(self, session: ClaimSession, found: RestoreFindings, change: IncarnationChange) -> None:
        gate, at_ms = self._gate, self._gate.clock.wall_ms()
        for one in found.held[:]:
            wanted = replace(self._wanted(one), hold=_reason(one))
            if session.reserve([wanted])[0].decision is not Decision.HOLD:
                _move(one, found.held, found.again)  # it came again in this very moment
        for one in found.recovering[:]:
            (answer,) = session.reserve([replace(self._wanted(one), hold=None)])
            if answer.decision is not Decision.RUN:
                _move(one, found.recovering, found.again)
                continue
            session.settle(
                [
                    Settlement(
                        *answer.claim, State.RETRYABLE, at_ms, gate.actor, reason=_reason(one),
                        steps=_started(one),
                    )
                ]
            )  # fmt: skip
        if not gate.has_review:
            return
        body = json.dumps(_incident(found, change, at_ms)).encode()
        name = f"{at_ms}-{gate.new_token():016x}"
        note = summary(found, change)
        cast("Session", session).change_document(
            DocumentChange(WENT_BACK, name, 0, body, at_ms, gate.actor, note, LogKind.WENT_BACK)
        )

    def _wanted(self, one: Settled) -> Reservation:
        received_at_ms = one.reserved.received_at_ms or one.at_ms
        wanted = self._reserving(self._gate, one.surface, one.arrival)
        return replace(
            wanted, key=one.reserved.key, also=(), received_at_ms=received_at_ms, quarantine=None
        )


def _move(one: Settled, here: list[Settled], there: list[Settled]) -> None:
    here.remove(one)
    there.append(one)


def _entries(session: ClaimSession, wanted: list[Settled]) -> Iterator[tuple[Settled, Entry | None]]:
    for start in range(0, len(wanted), READ_AT_ONCE):
        part = wanted[start : start + READ_AT_ONCE]
        yield from zip(part, session.read([one.reserved.key for one in part]), strict=True)


def _is_held(one: Settled, entry: Entry) -> bool:
    return (entry.token, entry.fence) == (one.reserved.token, one.reserved.fence)


def _is_lost(one: Settled, entry: Entry | None) -> bool:
    """Whether a settlement is not there; an entry in flight under its claim recovers as after a crash."""
    if entry is None:
        return True
    if _is_written_down(one, entry):
        return False
    return not _is_held(one, entry) and (one.state is State.COMMITTED or not _is_moved_on(one, entry))


def _is_missing(session: ClaimSession, one: Settled, entry: Entry | None) -> bool:
    """Whether a settlement is lost, and was not moved by `oncegate reshard`."""
    return _is_lost(one, entry) and not _is_moved(session, one, entry)


def _is_moved(session: ClaimSession, one: Settled, entry: Entry | None) -> bool:
    """Whether a key has left this ledger, or came from another one: its entry has a new number then.

    Asked after the entry was read, so that a key that leaves in between counts as moved.
    """
    home = home_in(session, one.reserved.key)
    if entry is None or home is None:
        return home in (ARRIVED, GONE)
    was = one.reserved
    if entry.entry_id == was.entry_id or entry.received_at_ms != was.received_at_ms:
        return False
    # A token names one attempt; an attempt that has failed leaves none.
    ended = one.state not in (State.COMMITTED, State.IN_FLIGHT)
    return entry.token == was.token or (ended and entry.token is None)


def _is_written_down(one: Settled, entry: Entry) -> bool:
    """Whether this process wrote it down before, and did not hear of the commit."""
    reason = entry.reason or ""
    return reason.startswith(REASON) and entry.received_at_ms == (one.reserved.received_at_ms or one.at_ms)


def _is_moved_on(one: Settled, entry: Entry) -> bool:
    """Whether the entry is the one that was settled, and has changed since: its number is the same."""
    was = one.reserved
    if entry.entry_id != was.entry_id or entry.fence != was.fence:
        return entry.entry_id == was.entry_id and entry.fence > was.fence
    # An attempt that has failed leaves no token; another event under this number came at another time.
    return entry.token is None and entry.received_at_ms == was.received_at_ms


def _started(one: Settled) -> tuple[StepRecord, ...]:
    """What was done, as something that may have been done: each downstream is asked, or given the key."""
    return tuple(replace(step, state=StepState.STARTED, result=None, resource=None) for step in one.steps)


def _reason(one: Settled) -> str:
    at = format_timestamp(from_wall_ms(one.at_ms))
    what = "was in flight" if one.state is State.IN_FLIGHT else f"had {one.state.label}"
    resource = "" if one.resource is None else f", resource {one.resource[:80]}"
    return f"{REASON}: this event {what} at {at}{resource}; its record was lost, its effect may stand"


def _incident(found: RestoreFindings, change: IncarnationChange, at_ms: int) -> dict[str, Any]:
    lost = found.lost
    return {
        "at_ms": at_ms,
        "since_ms": min(one.at_ms for one in lost),
        "before": list(change.before),
        "after": list(change.after),
        "compared": found.compared,
        "held": [_shown(one) for one in found.held],
        "recovering": [_shown(one) for one in found.recovering],
        "ran_again": [_shown(one) for one in found.again],
        "undone": len(found.undone),
    }


def _shown(one: Settled) -> dict[str, Any]:
    return {
        "key": one.reserved.key.hex(),
        "surface": one.surface.name,
        "tenant": one.arrival.tenant,
        "label": one.arrival.label,
        "fingerprint": one.arrival.fingerprint.hex(),
        "resource": one.resource,
        "state": one.state.label,
        "at_ms": one.at_ms,
    }


def summary(found: RestoreFindings, change: IncarnationChange) -> str:
    """What the journal and the log say of it."""
    if not found.lost:
        return (
            f"the ledger is another incarnation now ({change.before.identity} at {change.before.position},"
            f" now {change.after.identity} at {change.after.position});"
            f" nothing of {found.compared} events that this process remembers is missing"
        )
    since = format_timestamp(from_wall_ms(min(one.at_ms for one in found.lost)))
    return (
        f"the ledger went back; effects since {since} are in doubt. Of {found.compared} events that this"
        f" process remembers {len(found.lost)} are missing: {len(found.held)} wait for a person,"
        f" {len(found.recovering)} are recovered by their downstreams, {len(found.again)} came again,"
        f" {len(found.undone)} were undone with their writes. Was {change.before.identity} at"
        f" {change.before.position}, is {change.after.identity} at {change.after.position}"
    )


def _tell(found: RestoreFindings, change: IncarnationChange, *, is_listed: bool) -> None:
    level = logging.CRITICAL if found.lost else logging.WARNING
    next_step = "; see `oncegate restored list`" if found.lost and is_listed else ""
    _LOG.log(level, "%s%s", summary(found, change), next_step)


def _owner(session: ClaimSession) -> Callable[[bytes], bool]:
    """Which keys a session can be asked about: all, or those of one shard."""
    owns: Callable[[bytes], bool] | None = getattr(session, "owns", None)
    return owns or (lambda key: True)
