"""Surfaces that observe, or are paused: what an arrival gets there instead of being admitted (F1).

An observed handler runs for every arrival. A thread notes the key beside it, so that the ledger never
delays, changes or stops what the handler does: an arrival that cannot be noted is counted and told of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Struct

from oncegate.commit.operations import ReadEntry
from oncegate.errors import EventNotStorable, InputRefused
from oncegate.gate.admission import Admission, Verdict
from oncegate.gate.codec.callable_info import callee_of
from oncegate.gate.codec.outcome import Outcome, encode_outcome
from oncegate.gate.codec.reading import Reader
from oncegate.gate.driver.requests import Flow, Invoke, Pause, Where
from oncegate.gate.flows.conflicts import known_body
from oncegate.gate.flows.identity import identify_flow
from oncegate.gate.flows.key_injection import with_key
from oncegate.gate.flows.observation_recorder import ObservationRecorder
from oncegate.gate.flows.observed_once import AsyncObservedOnce, ObservedOnce
from oncegate.gate.runtime.context import GateContext
from oncegate.gate.surface import Surface
from oncegate.model.declarations import OPAQUE_STEP
from oncegate.model.differences import differing
from oncegate.model.identity import with_former_keys
from oncegate.model.keys import Key
from oncegate.model.surface import Arrival, read_arrival, unfit
from oncegate.model.surface_decisions import SurfaceMode
from oncegate.model.trace import Context
from oncegate.store import Entry, Joined, What

PAUSED_SECONDS: Final = 30.0  # when an arrival comes again
REST_SECONDS: Final = 5.0  # when a worker looks again


def _paused(surface: Surface, key: Key, wait_seconds: float) -> Admission:
    reason = f"surface {surface.name} is {surface.mode.value}; nothing was run"
    return Admission(
        Verdict.BUSY, key.text, reason=reason, retry_after_seconds=wait_seconds, is_paused=True
    )


def resting(surface: Surface, key: Key) -> Admission | None:
    """What recovery and accepted events get where the surface is not on: they wait until it is."""
    return None if surface.mode is SurfaceMode.ON else _paused(surface, key, REST_SECONDS)


class SwitchedCall(Struct, frozen=True):
    """An event at a surface about which people decided. `read` makes of it what the handler takes."""

    surface: Surface
    event: Any
    tenant: str | None
    joined: Joined | None
    context: Context | None
    read: Reader | None
    actor: str | None = None


Look = Callable[..., Admission | Flow[Admission]]


def switched_flow(
    gate: GateContext, recorder: ObservationRecorder, call: SwitchedCall, look: Look
) -> Flow[Admission]:
    """Admits an event at a surface that observes, is paused or ignores a field; `look` admits others."""
    surface, same = call.surface, None
    if surface.mode is SurfaceMode.OBSERVE:
        recorder.start(surface)
        if not recorder.must_wait:
            return (yield from _observe_flow(gate, recorder, call))
        while recorder.must_wait:
            yield Pause(0.01)
    else:
        arrival = read_arrival(surface.rule, call.event, call.tenant, gate.clock.wall_ms())
        if surface.mode is SurfaceMode.PAUSED:
            gate.sightings.count(surface.rule, What.PAUSED)
            return _paused(surface, arrival.key, PAUSED_SECONDS)
        same = yield from _same_content_flow(gate, surface, arrival, call)
    found = look(
        surface.name,
        call.event,
        call.tenant,
        call.joined,
        call.context,
        read=call.read,
        actor=call.actor,
        same=same,
    )
    return found if isinstance(found, Admission) else (yield from found)


def _observe_flow(gate: GateContext, recorder: ObservationRecorder, call: SwitchedCall) -> Flow[Admission]:
    """Runs the handler as without a gate."""
    surface = call.surface
    arrival, given = _read(gate, recorder, call)
    noted = None if arrival is None else recorder.began(surface, arrival)
    key = Key(gate.new_token().to_bytes(24, signed=True)) if arrival is None else arrival.key
    once = (AsyncObservedOnce if surface.is_async else ObservedOnce)(key, call.context)
    try:
        value = yield _request(surface, given, once, key)
    except BaseException:
        recorder.ended(noted, succeeded=False)
        raise
    recorder.ended(noted, succeeded=True, outcome=_outcome(recorder, surface, value, once))
    return Admission(Verdict.RUN, key.text, value, resource=once.resource)


def _read(
    gate: GateContext, recorder: ObservationRecorder, call: SwitchedCall
) -> tuple[Arrival | None, Any]:
    """The arrival, None where it has no key, and what the handler takes."""
    arrival: Arrival | None = None
    rule, given = call.surface.rule, call.event
    try:
        arrival = read_arrival(rule, call.event, call.tenant, gate.clock.wall_ms())
    except EventNotStorable as error:
        recorder.unrecorded(call.surface, f"it would be refused: {error}")
    read = call.read or call.surface.reader
    if read is not None:
        try:
            given = read(call.event)
        except InputRefused as refused:
            arrival = None if arrival is None else unfit(arrival, refused)
    return arrival, given


def _request(surface: Surface, given: Any, once: ObservedOnce, key: Key) -> Invoke:
    if surface.takes_once:
        return Invoke(surface.handler, (given, once), is_async=surface.is_async)
    callee = callee_of(surface.handler)
    _, arguments, keywords = with_key(callee.key_parameters, (given,), {}, key.step(OPAQUE_STEP))
    return Invoke(surface.handler, arguments, keywords, is_async=callee.is_async)


def _outcome(
    recorder: ObservationRecorder, surface: Surface, value: Any, once: ObservedOnce
) -> bytes | None:
    try:
        return encode_outcome(Outcome(msgspec.Raw(surface.codec.encode(value)), once.resource))
    except Exception as error:  # noqa: BLE001  a value that cannot be stored is no failure here
        recorder.tell(surface, f"results are not recorded: {error}")
        return None


def _same_content_flow(
    gate: GateContext, surface: Surface, arrival: Arrival, call: SwitchedCall
) -> Flow[bytes]:
    """The content to reserve with: the known one, where both are the same without the ignored fields.

    What is known was recorded before a person decided to ignore a field, and so with that field.
    """
    rule, plan = surface.rule, gate.plans.get(surface.name)
    if plan is None or gate.clock.ticks_ms() >= plan.recheck_at_ticks_ms:
        plan = yield from identify_flow(gate, surface, call.joined)
    if not plan.is_plain:
        arrival = with_former_keys(plan, rule, arrival, call.event, call.tenant)
    for key in (arrival.key.digest, *arrival.also):
        entry: Entry | None = yield ReadEntry(key)
        if entry is None or entry.fingerprint == arrival.fingerprint:
            continue
        body = yield Invoke(known_body, (gate, entry.entry_id), where=Where.STATEMENT)
        if differing(body, arrival.body, ignore=rule.fingerprint_ignore, places=rule.places) == []:
            return entry.fingerprint
    return arrival.fingerprint
