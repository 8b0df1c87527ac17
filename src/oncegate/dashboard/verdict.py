"""The verdict of the page Now: one line of facts, and whether it is green, amber, red or grey. Pure.

Green is said only of what was observed: events arrived within the hour, and a worker reports. What is
silent or unknown is grey, and calls that fail are amber before their signal is raised. Must never be calmer
than the worst signal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from oncegate.dashboard.facts import fact
from oncegate.dashboard.rendering import counted
from oncegate.lanes.circuit_status import DOWNSTREAM, observed
from oncegate.model.states import State
from oncegate.signals import definitions as d
from oncegate.signals.alerts import Signal
from oncegate.signals.definition import Definition, Level
from oncegate.signals.snapshot import HOUR, Counts, Snapshot
from oncegate.store import Waiting, What

GREY: Final = "unknown"
WAITING: Final = (State.UNKNOWN, State.HELD, State.QUARANTINED)
FACTS_MAX: Final = 4
RESUMES: Final = "Events for it wait and resume by themselves when it is back."
# Signals that the facts speak about in words of their own.
_SPOKEN: Final = frozenset(
    {
        d.DOUBLED, d.QUARANTINES, d.WAITING, d.OVERDUE, d.DEADLINE, d.LANES_BLOCKED, d.LANE_BLOCKED_AGE,
        d.CIRCUIT_OPEN, d.ARRIVALS_STOPPED, d.WORKER_ABSENT,
    }
)  # fmt: skip
STUCK: Final = (
    d.LANES_BLOCKED, d.LANE_BLOCKED_AGE, d.DELIVERY_AGE, d.CIRCUIT_OPEN, d.IN_FLIGHT_AGE, d.LAPSED
)  # fmt: skip
FOR_YOU: Final = (d.QUARANTINES, d.WAITING, d.OVERDUE, d.DEADLINE, d.TWO_RESOURCES)
ARRIVING: Final = (d.ARRIVALS_STOPPED, d.REPEATS_HIGH, d.REPEATS_ZERO, d.SENDER_BUGS)
_KINDS: Final = {"approval": "approvals", "in_doubt": "in doubt", "two_resources": "with two resources"}


class PageVerdict(Struct, frozen=True):
    """`tone` is ok, ticket, page or unknown (grey); `since_ms` the first sign of what is wrong."""

    tone: str
    headline: str
    more: str = ""
    since_ms: int | None = None


class VerdictSummary(Struct, frozen=True):
    """One of the four tiles."""

    title: str
    tone: str
    value: int
    detail: str
    link: str


def verdict_of(signals: Sequence[Signal], snapshot: Snapshot) -> PageVerdict:
    """What is said at the top of the page."""
    level = _worst(signals)
    if level > Level.OK:
        first, *others = _facts(signals, snapshot)
        more = _listed(others[: FACTS_MAX - 1])
        return PageVerdict(
            level.label, f"{first}.", f"{more}." if more else "", first_sign(signals, snapshot)
        )
    below = [text for _, text in _doubled_or_waiting((), snapshot)]
    if below:
        return PageVerdict(
            GREY, f"{_listed(below)}.", "No signal is raised, because limits were set higher."
        )
    failing = [_failing(snapshot, name) for name in sorted(snapshot.circuits)]
    if failing:
        told = capital(_listed(failing))
        return PageVerdict(Level.TICKET.label, f"{told}.", RESUMES, first_sign(signals, snapshot))
    doubts = list(_unobserved(snapshot))
    if doubts:
        return PageVerdict(
            GREY, f"{doubts[0]}.", " ".join([*(f"{one}." for one in doubts[1:]), "Nothing waits."])
        )
    counts = last_hour(snapshot)
    new = counted(counts.of(What.FRESH), "new event")
    repeats = counted(counts.repeats, "repeat")
    was = "was" if counts.repeats == 1 else "were"
    return PageVerdict(
        "ok", f"{new} in the last hour.", f"{repeats} {was} absorbed. Nothing waits for a person."
    )


def last_hour(snapshot: Snapshot) -> Counts:
    """What all surfaces counted in the last hour."""
    found = Counts()
    for surface in snapshot.surfaces:
        found = found.plus(snapshot.counts(HOUR, surface))
    return found


def _unobserved(snapshot: Snapshot) -> Iterator[str]:
    """Why nothing can be said to be well although no signal is raised."""
    if not snapshot.surfaces:
        yield "Nothing has been seen yet"
        return
    if not last_hour(snapshot).arrivals:
        yield "Nothing has arrived for an hour or more"
    if all(worker.is_silent for worker in snapshot.workers):
        yield "No worker reports, so what a crash interrupts waits for the next delivery"


def _doubled_or_waiting(raised: Sequence[Signal], snapshot: Snapshot) -> Iterator[tuple[Level, str]]:
    """What is never green, whatever limits say."""
    doubled = sum(one.count for one in snapshot.doubled)
    if doubled:
        yield _level(raised, [d.DOUBLED]), f"{counted(doubled, 'change')} ran twice"
    seconds = sum(one.findings for one in snapshot.second_counts)
    if seconds:
        found = counted(seconds, "second resource")
        yield _level(raised, [d.TWO_RESOURCES, d.TARGETS]), f"{found} of a key or target"
    count = sum(one.count for one in open_ones(snapshot))
    if count:
        waits = "waits" if count == 1 else "wait"
        yield _level(raised, FOR_YOU), f"{counted(count, 'event')} {waits} for you"


def _facts(signals: Sequence[Signal], snapshot: Snapshot) -> list[str]:
    """What is wrong, in words, the worst first: things that happened, then what waits, then the rest."""
    raised = [one for one in signals if one.level > Level.OK]
    found = list(_doubled_or_waiting(raised, snapshot))
    found += [
        (one.level, _failing(snapshot, one.surface)) for one in raised if one.definition is d.CIRCUIT_OPEN
    ]
    blocked = sum(one.blocked for one in snapshot.destinations)
    if blocked:
        verb = "is" if blocked == 1 else "are"
        found.append((_level(raised, STUCK), f"{counted(blocked, 'key')} {verb} blocked"))
    stopped = [one for one in raised if one.definition is d.ARRIVALS_STOPPED]
    found += [(one.level, f"nothing arrives at {one.surface}") for one in stopped]
    absent = [one for one in raised if one.definition is d.WORKER_ABSENT]
    if absent:
        found.append((_worst(absent), f"no worker looks after {_listed([one.surface for one in absent])}"))
    for definition in dict.fromkeys(one.definition for one in raised if one.definition not in _SPOKEN):
        alike = [one for one in raised if one.definition is definition]
        places = _listed([one.surface for one in alike if one.surface])
        where = f" at {places}" if places else ""
        found.append((_worst(alike), fact(definition, max(one.value for one in alike), where)))
    found.sort(key=lambda one: -one[0])
    texts = [text for _, text in found]
    return [capital(texts[0]), *texts[1:]]


def _failing(snapshot: Snapshot, name: str) -> str:
    """What was seen of a destination or downstream that fails as a whole."""
    circuit, place = snapshot.circuits.get(name), name.removeprefix(DOWNSTREAM)
    return f"calls to {place} fail" + ("" if circuit is None else f" ({observed(circuit)})")


def _level(raised: Iterable[Signal], definitions: Iterable[Definition]) -> Level:
    names = {one.name for one in definitions}
    return _worst(one for one in raised if one.definition.name in names)


def _worst(signals: Iterable[Signal]) -> Level:
    """The highest level among signals that are raised; OK where none is."""
    return max((one.level for one in signals if one.level > Level.OK), default=Level.OK)


def capital(text: str) -> str:
    """The same as the beginning of a sentence."""
    return f"{text[:1].upper()}{text[1:]}"


def _listed(texts: Sequence[str]) -> str:
    """Texts as one list: "a, b and c"."""
    if len(texts) < 2:
        return "".join(texts)
    return f"{', '.join(texts[:-1])} and {texts[-1]}"


def open_ones(snapshot: Snapshot) -> list[Waiting]:
    """What waits for a person."""
    return [one for one in snapshot.waiting if one.state in WAITING]


def first_sign(signals: Iterable[Signal], snapshot: Snapshot) -> int | None:
    """Since when something is wrong, as far as the ledger knows: the oldest of what is open."""
    raised = {one.definition.name for one in signals if one.level > Level.OK}
    moments: list[int | None] = [one.oldest_at_ms for one in snapshot.doubled]
    moments += [one.oldest_at_ms for one in snapshot.second_counts]
    moments += (
        [one.oldest_at_ms for one in open_ones(snapshot)] if raised & {x.name for x in FOR_YOU} else []
    )
    moments += [one.oldest_blocked_at_ms for one in snapshot.destinations]
    moments += [one.since_ms for one in snapshot.circuits.values()]
    return min((one for one in moments if one is not None), default=None)


def summaries_of(signals: Sequence[Signal], snapshot: Snapshot, *, compares: bool) -> list[VerdictSummary]:
    """The four tiles. `compares` tells whether contents are compared at all."""
    raised = [one for one in signals if one.level > Level.OK]
    return [
        _doubled(raised, snapshot, compares),
        _stuck(raised, snapshot),
        _for_you(raised, snapshot),
        _arriving(raised, snapshot),
    ]


def _doubled(raised: list[Signal], snapshot: Snapshot, compares: bool) -> VerdictSummary:
    pairs = sum(one.count for one in snapshot.doubled)
    seconds = sum(one.findings for one in snapshot.second_counts)
    count, tone = pairs + seconds, _level(raised, [d.DOUBLED, d.TWO_RESOURCES, d.TARGETS]).label
    if not count and not compares:
        return VerdictSummary(
            "Doubled", GREY, 0, "no surface says what its events change: not compared", ""
        )
    parts = [f"{counted(pairs, 'change')} ran under two keys"] if pairs else []
    parts += [counted(seconds, "second resource")] if seconds else []
    detail = " · ".join(parts) + "; not decided" if parts else "no open pair both ran"
    if _level(raised, [d.SCAN_BEHIND]) > Level.OK:
        tone, detail = (GREY if not count else tone), f"{detail}; the scan is behind"
    link = "/doubled" if pairs else "/resources" if seconds else ""
    return VerdictSummary("Doubled", tone, count, detail, link)


def _stuck(raised: list[Signal], snapshot: Snapshot) -> VerdictSummary:
    blocked = sum(one.blocked for one in snapshot.destinations)
    lapsed = sum(one.lapsed for one in snapshot.waiting)
    events = sum(one.events for one in snapshot.destinations)
    parts = [counted(blocked, "key") + " blocked"] if blocked else []
    parts += [counted(events, "event") + " not delivered"] if events else []
    parts += [_failing(snapshot, name) for name in sorted(snapshot.circuits)]
    parts += [counted(lapsed, "claim") + " whose lease is over"] if lapsed else []
    tone = max(_level(raised, STUCK), Level.TICKET if snapshot.circuits else Level.OK).label
    again = sum(one.count for one in snapshot.waiting if one.state is State.RETRYABLE)
    parts += [counted(again, "event") + " to be tried again"] if again else []
    stuck = blocked + lapsed or (events + again if snapshot.circuits else 0)
    return VerdictSummary("Stuck", tone, stuck, " · ".join(parts) or "nothing is blocked", "/lanes")


def _for_you(raised: list[Signal], snapshot: Snapshot) -> VerdictSummary:
    counts: dict[str, int] = {}
    for one in open_ones(snapshot):
        name = "quarantined" if one.state is State.QUARANTINED else _KINDS.get(one.reason, one.state.label)
        counts[name] = counts.get(name, 0) + one.count
    parts = [f"{count} {name}" for name, count in sorted(counts.items(), key=lambda item: -item[1])]
    late = _level(raised, [d.OVERDUE, d.DEADLINE]) > Level.OK
    detail = " · ".join([*parts, *(["overdue"] if late else [])]) or "nothing waits"
    return VerdictSummary(
        "Waiting for you", _level(raised, FOR_YOU).label, sum(counts.values()), detail, "/waiting"
    )


def _arriving(raised: list[Signal], snapshot: Snapshot) -> VerdictSummary:
    counts = last_hour(snapshot)
    tone = _level(raised, ARRIVING).label if counts.arrivals or _level(raised, ARRIVING) else GREY
    past = [sum(one.arrivals for one in day.values()) for day in snapshot.past.get(HOUR, ())]
    known = [one for one in past if one]
    usual = f" · usual at this hour: {sum(known) // len(known)}" if known else ""
    asked = f" · {counted(counts.retries, 'retry', 'retries')} asked for" if counts.retries else ""
    stopped = counts.of(What.QUARANTINED) + counts.of(What.HELD)
    asked += f" · {stopped} held or quarantined" if stopped else ""
    detail = f"{counts.of(What.FRESH)} new · {counted(counts.repeats, 'repeat')} absorbed{asked}{usual}"
    return VerdictSummary("Arrived in the last hour", tone, counts.arrivals, detail, "/entries")
