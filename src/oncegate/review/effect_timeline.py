"""When an entry's effects were started, as far as the ledger knows.

Told from what is written anyway: a step's record and the outcome carry the moment of the call. Ahead of a
call something is written only where it cannot be repeated. So an attempt that crashed may have started an
effect without a word of it; then this tells between which moments it was, and never guesses one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from oncegate.gate.codec.outcome import Outcome
from oncegate.model.declarations import OPAQUE_STEP
from oncegate.review.lease_history import ENDS, tenures
from oncegate.review.wording import happened
from oncegate.store import CLAIM_KINDS, EntryDetail, LogKind, LogRecord, StepState

STARTED: Final = "effect started"
MAY_HAVE_STARTED: Final = "effect may have started"
_CLAIMS: Final = frozenset(CLAIM_KINDS.values())
_FOR_GOOD: Final = frozenset({happened(LogKind.COMMITTED), happened(LogKind.FAILED)})


class Start(Struct, frozen=True):
    """A call of a downstream, made at `at_ms`; if not `is_exact`, after that and before `until_ms`.

    `step` and `downstream` are empty where it was not recorded which call it was. `is_certain` is False for
    an attempt of which nothing is on record. None as `until_ms` is a time that is not over. `was_denied`
    says that it is known to have changed nothing.
    """

    at_ms: int
    step: str = ""
    downstream: str = ""
    is_exact: bool = True
    is_certain: bool = True
    until_ms: int | None = None
    was_denied: bool = False

    @property
    def what(self) -> str:
        """What happened, for people."""
        return STARTED if self.is_certain else MAY_HAVE_STARTED

    @property
    def note(self) -> str:
        """Which call it was, and what is not known of it, for people."""
        where = f"{self.step} at {self.downstream}" if self.step else "a call of the handler, not a step"
        if self.was_denied:
            where += "; it did not happen"
        if self.is_exact:
            return where
        if self.is_certain:
            return f"{where}; the moment is not on record, it was later than this"
        return "nothing is on record; if a downstream was called, it was later than this"


def starts(seen: EntryDetail, outcome: Outcome) -> list[Start]:
    """All that is known of when this entry's effects were started, the first one first."""
    exact, untimed = _recorded(seen, outcome)
    silent = _silent(seen, exact)
    if untimed:
        since_ms, until_ms = _between(seen, silent)
        silent = [Start(since_ms, *names, is_exact=False, until_ms=until_ms) for names in untimed]
    return sorted([*exact, *silent], key=lambda start: start.at_ms)


def storyline(seen: EntryDetail, outcome: Outcome) -> list[LogRecord | Start]:
    """An entry's records with the starts of its effects between them, in the order in which it all was."""
    told: list[LogRecord | Start] = []
    waiting = [(_place(seen, start), start) for start in starts(seen, outcome)]
    for place, record in enumerate([*seen.records, None]):
        told += [start for before, start in waiting if before == place]
        told += [] if record is None else [record]
    return told


def _recorded(seen: EntryDetail, outcome: Outcome) -> tuple[list[Start], list[tuple[str, str]]]:
    """Calls whose moment is written down, and the names of those that lack it.

    A failed entry keeps its steps: the call that its outcome tells of without a name may be one of them.
    """
    received_ms = seen.entry.received_at_ms
    calls = [(step.name, step.downstream, step.started_at_ms) for step in seen.steps]
    if not calls:
        calls = [(step.name, step.downstream, moment(received_ms, step.after_ms)) for step in outcome.steps]
    unnamed_ms = moment(received_ms, outcome.after_ms)
    if unnamed_ms is not None and unnamed_ms not in [at_ms for _, _, at_ms in calls]:
        calls = [call for call in calls if (call[0], call[2]) != (OPAQUE_STEP, None)]
        calls.append(("", "", unnamed_ms))
    denied = {step.name for step in seen.steps if step.state is StepState.NOT_APPLIED}
    exact = [
        Start(at_ms, name, downstream, was_denied=name in denied)
        for name, downstream, at_ms in calls
        if at_ms is not None
    ]
    lacking = [(name, downstream) for name, downstream, at_ms in calls if at_ms is None]
    return exact, [names for names in lacking if names[0] not in denied]


def moment(received_ms: int, after_ms: int | None) -> int | None:
    """A moment that an outcome keeps, as wall time."""
    return None if after_ms is None else received_ms + after_ms


def _silent(seen: EntryDetail, exact: Sequence[Start]) -> list[Start]:
    """One for each attempt that may have called without a word of it. A final outcome tells of its own."""
    held = [
        (one.since_ms, one)
        for one in tenures(seen.entry, seen.records, is_lapsed=False)
        if one.since_ms is not None
    ]
    told = {sum(since_ms <= start.at_ms for since_ms, _ in held) - 1 for start in exact}
    return [
        Start(since_ms, is_exact=False, is_certain=False, until_ms=one.until_ms)
        for place, (since_ms, one) in enumerate(held)
        if place not in told and one.ended not in _FOR_GOOD
    ]


def _between(seen: EntryDetail, silent: Sequence[Start]) -> tuple[int, int | None]:
    """The time in which a call without a moment was made."""
    if silent:
        return silent[0].at_ms, silent[-1].until_ms
    return seen.entry.received_at_ms, seen.entry.settled_at_ms


def _place(seen: EntryDetail, start: Start) -> int:
    """Where among the records a start belongs: after its claim, before what came of that."""
    if not start.is_exact and start.at_ms == seen.entry.received_at_ms:
        return 0
    before = [record for record in seen.records if record.at_ms <= start.at_ms]
    claims = [place for place, record in enumerate(before, 1) if record.kind in _CLAIMS]
    place = claims[-1] if claims else 0
    while start.is_exact and place < len(before) and before[place].kind not in ENDS:
        place += 1
    return place
