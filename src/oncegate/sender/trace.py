"""A journey: every entry and emitted event of the traces that an id, a key, a label or a resource names.

Reads one ledger; changes nothing. What other ledgers know of the journey, they know under the same
correlation id. Tenants may use the same correlation id: the number of hops is bounded, and the bound is
shared between them, so that no tenant's events push another's hops out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum
from typing import Final

from msgspec import DecodeError, Struct
from msgspec.structs import replace

from oncegate.gate.codec.outcome import decode_outcome
from oncegate.gate.flows.accepting import SURFACE_LANES
from oncegate.model.trace import Context, decode_context, named, trace_named, trace_of_key
from oncegate.sender.entry_search import find_entries
from oncegate.store import (
    Entry,
    EntryDetail,
    EntryFilter,
    LaneFilter,
    Session,
    StepRecord,
    StepState,
    TracedDelivery,
    TracedPublication,
)

TRACES_MAX: Final = 20  # a key may have been part of very many journeys
HOPS_MAX: Final = 500
LANES_MAX: Final = 10
NAMES_MAX: Final = 50  # by which another ledger is asked
_TRACE_LENGTH: Final = 32
EVENTS_OF_A_KEY_MAX: Final = 20  # the latest ones
FEED: Final = "feed"
_STEPS: Final = {
    StepState.STARTED: "started, not known to be done",
    StepState.CALLED: "called, not known to be done; the downstream can tell",
    StepState.DONE: "done",
    StepState.NOT_APPLIED: "certainly not done",
}


class HopKind(Enum):
    """What happened at a hop."""

    ARRIVED = "arrived"
    CALLED = "called"
    EMITTED = "emitted"
    ACCEPTED = "accepted"
    PUBLISHED = "published"


_FIRST: Final = {HopKind.ARRIVED: 0, HopKind.CALLED: 1}


class Hop(Struct, frozen=True):
    """One station: an event that came in at a surface, was accepted to run later, emitted or published.

    One that was CALLED is an effect at a downstream; its id is the key that went there, `KEY:step`.
    """

    kind: HopKind
    at_ms: int
    place: str
    tenant: str
    key: str
    seq: int | None
    id: str
    state: str
    trace_id: str | None
    correlation_id: str | None
    cause: str | None


class TraceReport(Struct, frozen=True):
    """What was found, in order of time; `is_cut` if there is more."""

    hops: tuple[Hop, ...]
    is_cut: bool


def journey(session: Session, text: str, tenant: str | None = None, *, labels: bool = True) -> TraceReport:
    """Finds the whole journey of whatever the text names; no hops if it names nothing.

    With a tenant it is that tenant's part, to the same bound. Without `labels` no part of a
    label is looked for.
    """
    named_by = [*_entries_named(session, text, tenant, labels), *_events_named(session, text, tenant)]
    starts = [hop for hop in named_by if tenant in (None, hop.tenant)]
    traces = dict.fromkeys([hop.trace_id for hop in starts if hop.trace_id is not None])
    traces |= dict.fromkeys(_names_of(text))
    others = [hop for one in list(traces)[:TRACES_MAX] for hop in _on(session, one, tenant)]
    found = _complete(session, [*starts, *others])
    return replace(found, is_cut=found.is_cut or len(traces) > TRACES_MAX)


def merged(first: TraceReport, others: Iterable[tuple[str, TraceReport]]) -> list[tuple[str, Hop]]:
    """The hops of several ledgers in order of time, each with its ledger; that of the first has no name."""
    hops = [("", hop) for hop in first.hops]
    hops += [(name, hop) for name, report in others for hop in report.hops]
    return sorted(hops, key=lambda one: _moment(one[1]))


def names_in(report: TraceReport, text: str) -> list[str]:
    """By what another ledger may know the same journey: ids that travel, then the text itself."""
    known = [
        name for hop in report.hops for name in (hop.correlation_id, _traceparent(hop.trace_id), hop.id)
    ]
    return list(dict.fromkeys([text, *(name for name in known if name)]))[:NAMES_MAX]


def _traceparent(trace_id: str | None) -> str | None:
    """A trace id as a sender's header names it."""
    is_one = trace_id is not None and len(trace_id) == _TRACE_LENGTH
    return f"00-{trace_id}-{'1' * 16}-01" if is_one else None


def journey_of(session: Session, entry: Entry, tenant: str | None = None) -> TraceReport:
    """The journey that an entry belongs to, by its trace alone, along indexes; its own tenant's hops first.

    With a tenant it is that tenant's part.
    """
    here = _arrival(session, entry)
    trace_id = here.trace_id or ""
    own = [here, *_on(session, trace_id, entry.tenant)]
    others = [] if tenant is not None else _on(session, trace_id, None)
    return _complete(session, [*own, *others], entry.tenant)


def _complete(session: Session, known: list[Hop], first: str | None = None) -> TraceReport:
    """Each hop once, with the calls that were made for what arrived, in order of time."""
    hops: dict[tuple[HopKind, str, str, int | None], Hop] = {}
    for hop in known:
        hops.setdefault((hop.kind, hop.place, hop.id, hop.seq), hop)
    arrived = [hop for hop in hops.values() if hop.kind is HopKind.ARRIVED]
    calls = [call for hop in _shared(arrived, first) for call in _calls(session, hop)]
    found = [*hops.values(), *calls]
    return TraceReport(tuple(_shared(found, first)), len(found) > HOPS_MAX)


def _shared(hops: list[Hop], first: str | None) -> list[Hop]:
    """As many hops as are shown, in order of time: each tenant's first, then each tenant's second, …

    The hops of the tenant that is `first` come before all others.
    """
    ordered, turns = sorted(hops, key=_moment), Counter[str]()
    if len(ordered) <= HOPS_MAX:
        return ordered
    ranked: list[tuple[int, Hop]] = []
    for hop in ordered:
        ranked.append((0 if hop.tenant == first else turns[hop.tenant], hop))
        turns[hop.tenant] += 1
    ranked.sort(key=lambda one: one[0])
    return sorted((hop for _, hop in ranked[:HOPS_MAX]), key=_moment)


def _moment(hop: Hop) -> tuple[int, int, int]:
    """The order of hops; in the same millisecond what comes in, what it calls, what it leads to."""
    return hop.at_ms, _FIRST.get(hop.kind, len(_FIRST)), hop.seq or 0


def _names_of(text: str) -> list[str]:
    """The traces that a text names by itself: as a correlation id, or as a traceparent."""
    by_parent = named(Context(traceparent=text)).trace_id
    return [trace_named(text), *([] if by_parent is None else [by_parent])]


def _on(session: Session, trace_id: str, tenant: str | None) -> list[Hop]:
    linked = session.linked(trace_id, HOPS_MAX, tenant)
    entries = [detail.entry for one in linked if (detail := session.detail(one))]
    began = session.entries(EntryFilter(key_prefix=trace_id), None, 2)  # where the journey began
    entries += [entry for entry in began if tenant in (None, entry.tenant)]
    hops = [_arrival(session, entry) for entry in entries]
    hops += [_emission(one) for one in session.traced(trace_id, HOPS_MAX, tenant)]
    return hops + [_publication(one) for one in session.published_on(trace_id, HOPS_MAX, tenant)]


def _entries_named(session: Session, text: str, tenant: str | None, labels: bool) -> list[Hop]:
    return [_arrival(session, entry) for entry in find_entries(session, text, tenant, labels=labels)]


def _events_named(session: Session, text: str, tenant: str | None) -> list[Hop]:
    """Emitted events by their id, else the latest of a key."""
    by_id = [_emission(one) for one in session.emitted_as(text, HOPS_MAX)]
    by_id += [_publication(one) for one in session.published_as(text, HOPS_MAX)]
    if by_id:
        return by_id
    hops: list[Hop] = []
    for lane in session.lanes(LaneFilter(tenant=tenant, key=text), 0, LANES_MAX):
        first = max(1, lane.last_seq - EVENTS_OF_A_KEY_MAX + 1)
        for view in session.deliveries(lane.lane_id, first, EVENTS_OF_A_KEY_MAX):
            same = session.emitted_as(view.event_id, LANES_MAX)
            hops += [_emission(one) for one in same if one.lane_id == lane.lane_id]
    return hops


def _arrival(session: Session, entry: Entry) -> Hop:
    link = session.link_of(entry.entry_id)
    context = Context() if link is None else decode_context(link.context)
    trace_id = trace_of_key(entry.key) if link is None else link.trace_id
    again = sum(one.times for one in session.repeats(entry.entry_id))
    state = f"{entry.state.label}, came again {again} times" if again else entry.state.label
    return Hop(
        HopKind.ARRIVED, entry.received_at_ms, entry.surface, entry.tenant, entry.label, None,
        entry.key.hex(), state.replace(" 1 times", " once"), trace_id, context.correlation_id, None,
    )  # fmt: skip


def _calls(session: Session, arrived: Hop) -> list[Hop]:
    """The effects of an entry at its downstreams, as far as they are on record."""
    found = session.entries(EntryFilter(key_prefix=arrived.id), None, 1)
    detail = session.detail(found[0].entry_id) if found else None
    steps = () if detail is None else detail.steps or _finished_steps(detail)
    return [_call(arrived, step) for step in steps if step.downstream]


def _finished_steps(detail: EntryDetail) -> tuple[StepRecord, ...]:
    """The steps that a settled entry's outcome tells of; none where what is stored is no outcome."""
    received = detail.entry.received_at_ms
    try:
        steps = decode_outcome(detail.outcome).steps
    except DecodeError:
        return ()
    return tuple(
        StepRecord(
            step.name, StepState.DONE, step.downstream, None, step.resource, received + (step.after_ms or 0)
        )
        for step in steps
    )


def _call(arrived: Hop, step: StepRecord) -> Hop:
    owns = "" if step.resource is None else f", {step.resource}"
    return Hop(
        HopKind.CALLED, step.started_at_ms or arrived.at_ms, step.downstream, arrived.tenant, arrived.key,
        None, f"{arrived.id}:{step.name}", f"{_STEPS[step.state]}{owns}", arrived.trace_id,
        arrived.correlation_id, arrived.id,
    )  # fmt: skip


def _emission(event: TracedDelivery) -> Hop:
    context = decode_context(event.context) if event.context.startswith(b'{"') else Context()
    if event.destination.startswith(SURFACE_LANES):
        kind, place = HopKind.ACCEPTED, event.destination.removeprefix(SURFACE_LANES)
    else:
        kind, place = HopKind.EMITTED, event.destination
    return Hop(
        kind, event.created_at_ms, place, event.tenant, event.key, event.seq,
        event.event_id, _fate(event), context.trace_id, context.correlation_id, context.cause,
    )  # fmt: skip


def _publication(event: TracedPublication) -> Hop:
    context = decode_context(event.context) if event.context else Context()
    return Hop(
        HopKind.PUBLISHED, event.at_ms, FEED, event.tenant, event.key, event.seq, event.event_id,
        "in the feed", context.trace_id, context.correlation_id, context.cause,
    )  # fmt: skip


def _fate(event: TracedDelivery) -> str:
    tries = f"{event.attempts} attempt{'' if event.attempts == 1 else 's'}"
    if event.is_dead:
        return f"given up after {tries}: {event.note}"
    if event.acknowledged_at_ms is not None:
        return f"delivered after {tries}"
    return "waiting" if event.seq >= event.head_seq else "skipped"
