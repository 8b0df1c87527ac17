"""Another content under a known key: refused, and kept for a person where its surface says so (I7, I2).

The first reservation has decided and logged the conflict; a second one, off the way of every other event,
keeps what came under a key of its own, made of the known key and the content. So the same other content is
the same entry however often it comes, and its release is one more event with its own `Idempotency-Key`.
A crash between the two reservations keeps nothing, and nothing was answered either: the sender tries again
and conflicts again. Must never run anything.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from oncegate.commit.operations import ReadEntry, Settle
from oncegate.commit.review_operations import Keep, ReadNamesakes
from oncegate.gate.admission import Admission, Verdict
from oncegate.gate.driver.requests import Flow, Invoke, Where
from oncegate.gate.flows.parking import room_flow
from oncegate.gate.runtime.context import GateContext
from oncegate.gate.runtime.not_run_log import NotRunLine
from oncegate.gate.runtime.tracing import link_parked_flow
from oncegate.gate.surface import Surface
from oncegate.model.conflicts import KEPT_MAX, reason_of
from oncegate.model.differences import differing, names_text
from oncegate.model.keys import Key, conflict_prefix, derive_conflict_key
from oncegate.model.states import State
from oncegate.model.surface import OnConflict
from oncegate.model.trace import Context
from oncegate.store import Entry, Joined, Reservation, Reserved, Settlement

WAITS: Final = "what came is kept and waits for a person"
DECIDED: Final = "what came was kept before, and a person has decided about it"
FULL: Final = f"{KEPT_MAX} other contents are kept under this key already; this one was not"


def conflict_flow(
    gate: GateContext,
    surface: Surface,
    wanted: Reservation,
    entry_id: int | None,
    context: Context | None = None,
) -> Flow[Admission]:
    """Answers a conflict with `entry_id`, or with an event in its lane where there is no entry yet."""
    key = Key(wanted.key)
    known: Entry | None = None if entry_id is None else (yield ReadEntry(wanted.key))
    first_ms = None if known is None else known.received_at_ms
    if not gate.has_review:
        return _told(gate, wanted, None, first_ms)
    body: bytes | None = None
    if known is not None:
        body = yield Invoke(known_body, (gate, known.entry_id), where=Where.STATEMENT)
    differs = _differs(gate, surface, wanted, body)
    if surface.rule.on_conflict is OnConflict.REFUSE:
        return _told(gate, wanted, None, first_ms, differs)
    namesakes: list[Entry] = yield ReadNamesakes((conflict_prefix(key), KEPT_MAX))
    answer = _told_already(wanted, namesakes)
    if answer is None:
        kept = _kept_as(wanted, entry_id, differs)
        yield from room_flow(gate, surface, kept)
        reserved: Reserved | None = yield Keep((kept, conflict_prefix(key), KEPT_MAX))
        if reserved is None:
            return _told(gate, wanted, FULL, first_ms, differs)
        yield from return_claim(gate, reserved)
        if context is not None:
            yield from link_parked_flow(gate, reserved.entry_id, context)
        answer = WAITS
    return _told(gate, wanted, answer, first_ms, differs)


class Difference(Struct, frozen=True):
    """In which fields a content differs from the known one, and how that is said."""

    names: tuple[str, ...] = ()
    text: str | None = None


_NOT_KNOWN: Final = Difference()


def known_body(gate: GateContext, entry_id: int) -> bytes | None:
    """The event of an entry, read beside what is being written."""
    with gate.commits.store.look() as session:
        known = session.detail(entry_id)
    return None if known is None else known.body


def _differs(gate: GateContext, surface: Surface, wanted: Reservation, known: bytes | None) -> Difference:
    """What differs, by name; and what to write where it differs in event after event."""
    rule = surface.rule
    names = differing(known, wanted.body, ignore=rule.fingerprint_ignore, places=rule.places)
    if not names:
        return _NOT_KNOWN
    hint = gate.volatile.note(surface.name, names, wanted.key)
    text = f"differs in: {names_text(names)}"
    return Difference(tuple(names), text if hint is None else f"{text} ({hint})")


def _told(
    gate: GateContext,
    wanted: Reservation,
    reason: str | None,
    first_ms: int | None,
    differs: Difference = _NOT_KNOWN,
) -> Admission:
    """The answer, and its line in the log."""
    why = reason or "another content under a known key; it was not kept"
    why = why if differs.text is None else f"{why}; {differs.text}"
    gate.sightings.why.note(
        NotRunLine("conflict", wanted.surface, wanted.key, wanted.label, why, first_ms or 0)
    )
    return Admission(
        Verdict.CONFLICT,
        Key(wanted.key).text,
        reason=reason,
        first_seen_ms=first_ms,
        is_kept=reason in (WAITS, DECIDED),
        differs=differs.names,
        difference=differs.text,
    )


def joined_conflict_flow(
    gate: GateContext, surface: Surface, wanted: Reservation, entry_id: int, joined: Joined
) -> Flow[Admission]:
    """The same in the caller's own transaction: what is kept is kept if they commit it."""
    key = Key(wanted.key)
    namesakes, first_ms = yield Invoke(_look, (gate, key), where=Where.STATEMENT)
    body = yield Invoke(known_body, (gate, entry_id), where=Where.STATEMENT)
    differs = _differs(gate, surface, wanted, body)
    if surface.rule.on_conflict is OnConflict.REFUSE:
        return _told(gate, wanted, None, first_ms, differs)
    answer = _told_already(wanted, namesakes)
    if answer is None:
        yield Invoke(joined.reserve_one, (_kept_as(wanted, entry_id, differs),), where=Where.HERE)
        answer = WAITS
    return _told(gate, wanted, answer, first_ms, differs)


def _look(gate: GateContext, key: Key) -> tuple[list[Entry], int | None]:
    """Beside the caller's transaction, which may hold the only lock for writing."""
    with gate.commits.store.look() as session:
        (known,) = session.read([key.digest])
        namesakes = ReadNamesakes((conflict_prefix(key), KEPT_MAX)).recall(session)
    return namesakes, None if known is None else known.received_at_ms


def _told_already(wanted: Reservation, namesakes: list[Entry]) -> str | None:
    """What to answer where nothing is to be kept: this content is there already, or too many others are."""
    same = [entry for entry in namesakes if entry.fingerprint == wanted.fingerprint]
    if same:
        return WAITS if same[0].state is State.QUARANTINED else DECIDED
    return FULL if len(namesakes) >= KEPT_MAX else None


def _kept_as(wanted: Reservation, entry_id: int | None, differs: Difference) -> Reservation:
    known = Key(wanted.key)
    return replace(
        wanted,
        key=derive_conflict_key(known, wanted.fingerprint).digest,
        quarantine=reason_of(known, entry_id, wanted.quarantine, differs.text),
    )


def return_claim(gate: GateContext, reserved: Reserved) -> Flow[None]:
    """Another process kept the same content and a person has released it: that run is not ours."""
    if not reserved.decision.claims:
        return
    at_ms, reason = gate.clock.wall_ms(), "released; runs with the next round of a reconciler"
    yield Settle(
        Settlement(
            *reserved.claim, State.RETRYABLE, at_ms, gate.actor, reason=reason,
            attempts_given_back=1, last_call_ticks=reserved.lapsed_at_ticks or None,
        )
    )  # fmt: skip
