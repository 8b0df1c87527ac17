"""Accepting: an event is stored in its lane and answered; its handler runs later, when its turn has come.

The delivery in the lane is what was accepted, one durable write. The entry comes to be when the handler is
run, through the same gate and under the same key as inline: what is in the lane twice, or delivered twice,
is still run once. An entry exists only for the head of a lane, so that taking it up again, by whomever,
never overtakes anything.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final
from urllib.parse import quote

import msgspec
from msgspec import Struct

from oncegate.commit.lane_operations import CountWaiting, Enqueue
from oncegate.commit.operations import ReadEntry
from oncegate.errors import BadOutgoing, ConfigError, InputRefused
from oncegate.gate.admission import Admission, Verdict
from oncegate.gate.driver.requests import Flow
from oncegate.gate.flows.admit import ClaimAttempt, admit_flow, reservation_of
from oncegate.gate.flows.conflicts import conflict_flow
from oncegate.gate.runtime.context import GateContext
from oncegate.model.content import ContentMark
from oncegate.model.keys import Key
from oncegate.model.states import State
from oncegate.model.surface import Arrival
from oncegate.model.template import KeyTemplate
from oncegate.model.trace import Context, named
from oncegate.store import Delivery, Entry, Outgoing, Placed, Placing, What

BACKLOG_SECONDS: Final = 5.0  # when to come again where a lane is full
SURFACE_LANES: Final = "surface:"  # how the names of accepting surfaces' destinations begin
_UNDER_WAY: Final = frozenset({State.IN_FLIGHT, State.RETRYABLE})


class _Note(Struct, frozen=True, omit_defaults=True):
    """What an arrival has beside its body, kept with the delivery.

    `trace_id` stands first where there is one, because the ledgers' index of journeys reads it from there.
    """

    trace_id: str | None = None
    digest: bytes = b""
    label: str = ""
    fingerprint: bytes = b""
    content: ContentMark | None = None
    context: Context | None = None
    actor: str | None = None


def lane_of(mode: str, lane: str | None, key: KeyTemplate, allow: Collection[str]) -> KeyTemplate | None:
    """The template of an accepting surface's lanes; without one of its own each key is a lane."""
    if mode not in ("inline", "accept", "observe"):
        raise ConfigError(f"mode={mode!r} cannot be used; choose inline, accept or observe")
    if mode != "accept":
        if lane is not None:
            raise ConfigError("lane= is for events that are accepted first; say mode='accept' too")
        return None
    return key if lane is None else KeyTemplate.parse(lane, allow_transport=allow)


def destination_of(surface: str) -> str:
    """The name of the lanes' destination that stands for a surface."""
    return f"{SURFACE_LANES}{surface}"


def accept_flow(gate: GateContext, attempt: ClaimAttempt, lane: KeyTemplate) -> Flow[Admission]:
    """Stores an event in its lane; one that is known or must not run is answered as inline."""
    arrival = attempt.arrival
    if gate.cache.get(arrival.key.digest) is not None:
        return (yield from admit_flow(gate, attempt))
    entry: Entry | None = yield ReadEntry(arrival.key.digest)
    for key in arrival.also:
        entry = entry or (yield ReadEntry(key))
    if _is_answered_inline(entry, arrival):
        return (yield from admit_flow(gate, attempt))
    try:
        place = _lane_key(lane, arrival)
        outgoing = _outgoing(gate, attempt, place)
    except (InputRefused, BadOutgoing) as refused:
        reason = f"{refused.reason}: {refused}" if isinstance(refused, InputRefused) else f"{refused}"
        unplaced = msgspec.structs.replace(arrival, quarantine=f"lane_input: {reason}")
        return (yield from admit_flow(gate, msgspec.structs.replace(attempt, arrival=unplaced)))
    if not (yield from _has_room(gate, outgoing.destination)):
        return _backlogged(arrival, f"about {gate.backlog.most} events wait for {attempt.surface.name}")
    placed: Placed = yield Enqueue(outgoing)
    if placed.placing is Placing.FULL:
        return _backlogged(arrival, f"{outgoing.backlog_max} events wait in its lane")
    if placed.placing is Placing.CONFLICT:
        gate.sightings.count(attempt.surface.rule, What.CONFLICT)
        wanted = msgspec.structs.replace(reservation_of(gate, attempt), also=())
        return (yield from conflict_flow(gate, attempt.surface, wanted, None, attempt.context))
    for bell in gate.bells:
        bell()
    return Admission(Verdict.ACCEPTED, arrival.key.text)


def _has_room(gate: GateContext, destination: str) -> Flow[bool]:
    """Whether a surface takes one more; counts what waits there when it is time to."""
    if gate.backlog.must_count(destination, gate.clock.ticks_ms()):
        waiting: int = yield CountWaiting(destination)
        gate.backlog.counted(destination, waiting, gate.clock.ticks_ms())
    return gate.backlog.takes_one(destination)


def _backlogged(arrival: Arrival, what: str) -> Admission:
    reason = f"{what} already; this one was not stored"
    return Admission(Verdict.BUSY, arrival.key.text, reason=reason, retry_after_seconds=BACKLOG_SECONDS)


def _is_answered_inline(entry: Entry | None, arrival: Arrival) -> bool:
    if entry is None:
        return arrival.quarantine is not None
    return entry.fingerprint != arrival.fingerprint or entry.state not in _UNDER_WAY


def _lane_key(lane: KeyTemplate, arrival: Arrival) -> str:
    parts = lane.derive(msgspec.json.decode(arrival.body)).parts
    return "/".join(quote(part, safe=" :@+=,") for part in parts)


def _outgoing(gate: GateContext, attempt: ClaimAttempt, place: str) -> Outgoing:
    arrival, name = attempt.arrival, attempt.surface.name
    context = None if attempt.context is None else named(attempt.context)
    note = _Note(
        None if context is None else context.trace_id,
        arrival.key.digest, arrival.label, arrival.fingerprint, arrival.content, context, arrival.actor,
    )  # fmt: skip
    return Outgoing(
        destination_of(name), arrival.tenant, place, arrival.key.text, name, arrival.body,
        arrival.fingerprint, gate.clock.wall_ms(), msgspec.json.encode(note),
    )  # fmt: skip


def accepted_arrival(delivery: Delivery) -> tuple[Arrival, Context | None]:
    """The arrival that was accepted, under the key it had then, and the context that it came with.

    Its time was judged then, too.
    """
    note = msgspec.json.decode(delivery.context, type=_Note)
    key, body = Key(note.digest), delivery.payload
    arrival = Arrival(
        key, delivery.tenant, note.label, note.fingerprint, body, None, note.content, actor=note.actor
    )
    return arrival, note.context
