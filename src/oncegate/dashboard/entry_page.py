"""One entry: what is known, its history on one line of time, and its content on request."""

from __future__ import annotations

from typing import Any

import msgspec
from markupsafe import Markup
from msgspec import Struct

from oncegate.dashboard.commands import trace_command
from oncegate.dashboard.fields import declared, masked
from oncegate.dashboard.rendering import as_text
from oncegate.dashboard.request_context import NotHere, PageResponse, RequestContext, Tools
from oncegate.dashboard.waiting_page import card_of
from oncegate.gate.codec.outcome import Outcome, decode_outcome
from oncegate.model.states import State
from oncegate.review.effect_timeline import Start, moment, storyline
from oncegate.review.lease_history import reserved, tenures
from oncegate.review.wording import happened, meaning, told
from oncegate.sender.trace import TraceReport, journey_of
from oncegate.store import (
    Entry,
    EntryDetail,
    Facet,
    LogKind,
    LogRecord,
    Repeat,
    Session,
    StepRecord,
    offers,
)


class HistoryLine(Struct, frozen=True):
    """One line of an entry's history. `tone` is good, bad, person or plain.

    `until_ms` ends the time in which it was, where its own moment is not on record.
    """

    at_ms: int
    what: str
    by: str = ""
    note: str = ""
    tone: str = "plain"
    until_ms: int | None = None


_TONES = {
    LogKind.COMMITTED: "good",
    LogKind.FAILED: "bad",
    LogKind.UNKNOWN: "bad",
    LogKind.QUARANTINED: "bad",
    LogKind.HELD: "bad",
    LogKind.CONFLICT: "bad",
}


def entry_page(tools: Tools, session: Session, visit: RequestContext) -> PageResponse:
    """Everything about one entry but its content."""
    seen = find_entry(session, visit)
    return PageResponse("entry.html", entry_values(tools, session, seen, visit))


def find_entry(session: Session, visit: RequestContext) -> EntryDetail:
    """The entry in the path; another tenant's is not there, as an unknown one is not."""
    number = visit.number("entry")
    seen = session.detail(number)
    if seen is None or visit.tenant not in (None, seen.entry.tenant):
        raise NotHere(f"there is no entry {number}")
    return seen


def entry_values(
    tools: Tools, session: Session, seen: EntryDetail, visit: RequestContext
) -> dict[str, Any]:
    """What the template needs, for who sees one tenant or all; `content` is there only after a reveal."""
    outcome, is_lapsed = outcome_of(seen), _is_lapsed(seen.entry, session)
    has_stats = offers(session, Facet.STATS)
    found = journey_of(session, seen.entry, visit.tenant) if has_stats else TraceReport((), is_cut=False)
    repeats = session.repeats(seen.entry.entry_id) if has_stats else []
    return {
        "title": f"Entry {seen.entry.entry_id}",
        "seen": seen,
        "entry": seen.entry,
        "meaning": meaning(seen, is_lapsed=is_lapsed),
        "tenures": tenures(seen.entry, seen.records, is_lapsed=is_lapsed),
        "moments": history(seen, outcome, repeats),
        "steps": _steps(tools, seen, outcome),
        "resource": outcome.resource,
        "error": outcome.error,
        "promise": _promise(tools, seen),
        "card": card_of(session, seen, masked(declared(tools, seen), visit.visitor)),
        "hops": found.hops,
        "is_cut": found.is_cut,
        "trace_command": trace_command(seen.entry.key.hex()),
        "content": None,
        "State": State,
    }


def _is_lapsed(entry: Entry, session: Session) -> bool:
    return entry.state is State.IN_FLIGHT and (entry.lease_until_ticks or 0) <= session.now_ticks()


def history(seen: EntryDetail, outcome: Outcome, repeats: list[Repeat]) -> list[HistoryLine]:
    """First arrival, first claim, repeats with their class, starts and every record, in order of time."""
    moments = [HistoryLine(seen.entry.received_at_ms, "first received")]
    claim = reserved(seen.entry, seen.records)
    if claim:
        moments.append(HistoryLine(seen.entry.received_at_ms, "reserved", note=claim))
    moments += [_repeated(repeat) for repeat in repeats]
    moments += [
        _started(one) if isinstance(one, Start) else _recorded(one) for one in storyline(seen, outcome)
    ]
    return sorted(moments, key=lambda moment: moment.at_ms)


def _repeated(repeat: Repeat) -> HistoryLine:
    times = "once" if repeat.times == 1 else f"{repeat.times} times"
    what = f"received again {times}: {repeat.kind.label.replace('_', ' ')} ({repeat.kind.harm.value})"
    tone = "bad" if repeat.kind.is_sender_bug else "plain"
    return HistoryLine(repeat.first_at_ms, what, "", f"{repeat.evidence}. {repeat.kind.advice}", tone)


def _started(start: Start) -> HistoryLine:
    return HistoryLine(start.at_ms, start.what, note=start.note, until_ms=start.until_ms)


def _recorded(record: LogRecord) -> HistoryLine:
    tone = "person" if record.kind > LogKind.FORGOTTEN else _TONES.get(record.kind, "plain")
    return HistoryLine(record.at_ms, happened(record.kind), record.actor, told(record), tone)


def outcome_of(seen: EntryDetail) -> Outcome:
    """The outcome document, or an empty one where what is stored cannot be read as one."""
    try:
        return decode_outcome(seen.outcome)
    except msgspec.DecodeError:
        return Outcome()


class Step(Struct, frozen=True):
    """One step as people see it; `promise` is what holds at its downstream, where the page knows."""

    name: str
    state: str
    downstream: str
    resource: str
    promise: str
    started_at_ms: int | None


def _steps(tools: Tools, seen: EntryDetail, outcome: Outcome) -> list[Step]:
    """Those on record, else those the outcome carries."""
    promises = {one.name: one.promise.value for one in tools.downstreams()}
    received_ms = seen.entry.received_at_ms
    found = [(s.name, _state_of(s), s.downstream, s.resource, s.started_at_ms) for s in seen.steps]
    found = found or [
        (s.name, "done", s.downstream, s.resource, moment(received_ms, s.after_ms)) for s in outcome.steps
    ]
    return [
        Step(name, state, downstream, resource or "", promises.get(downstream, ""), started_at_ms)
        for name, state, downstream, resource, started_at_ms in found
    ]


def _state_of(step: StepRecord) -> str:
    return step.state.name.lower().replace("_", " ")


def _promise(tools: Tools, seen: EntryDetail) -> str:
    """What can be promised of this surface, where the page belongs to the gate that has it."""
    name = seen.entry.surface
    return next((surface.promise for surface in tools.surfaces() if surface.name == name), "")


class ContentView(Struct, frozen=True):
    """What an entry holds: the event, what came of it, and what its steps returned."""

    title: str
    text: Markup


def contents_of(seen: EntryDetail) -> list[ContentView]:
    """All bodies of an entry as text."""
    found = [("event", seen.body), ("outcome", bytes(outcome_of(seen).value) or None)]
    found += [(f"result of step {step.name}", step.result) for step in seen.steps]
    return [ContentView(title, as_text(pretty(body))) for title, body in found if body is not None]


def pretty(body: bytes) -> list[str]:
    """A stored body as lines; numbers and text stay as they were sent."""
    try:
        formatted = msgspec.json.format(body, indent=2)
    except msgspec.DecodeError:
        formatted = body
    return formatted.decode("utf-8", "replace").split("\n")
