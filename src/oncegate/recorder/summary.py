"""What is in a recording, counted: events, repeats by class, answers. Pure."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from oncegate.clock import from_wall_ms
from oncegate.model.repeats import LATE_AFTER_MS, OrderedRun, RepeatClass, classify
from oncegate.model.states import Decision
from oncegate.model.timestamps import format_timestamp
from oncegate.recorder.reading import began_ms
from oncegate.recorder.recording import ArrivalLine, Recording


class Summary(Struct, frozen=True):
    """What is in a recording."""

    arrivals: int
    events: int
    without_payload: int
    repeats: dict[str, int]
    verdicts: dict[str, int]
    first_at: str
    last_at: str

    def document(self) -> dict[str, Any]:
        """The summary for programs."""
        return asdict(self)


def summarise(recording: Recording) -> Summary:
    """Counts a recording, and classifies its repeats as the gate would."""
    start = began_ms(recording)
    moments = [one.at_ms for one in recording.arrivals] or [0]
    verdicts: dict[str, int] = {}
    for answer in recording.answers.values():
        told = answer.verdict or f"raised {answer.error}"
        verdicts[told] = verdicts.get(told, 0) + 1
    return Summary(
        arrivals=len(recording.arrivals),
        events=len({one.event for one in recording.arrivals}),
        without_payload=sum(not one.has_payload for one in recording.arrivals),
        repeats=_repeats(recording),
        verdicts=dict(sorted(verdicts.items())),
        first_at=format_timestamp(from_wall_ms(start + min(moments))),
        last_at=format_timestamp(from_wall_ms(start + max(moments))),
    )


def _repeats(recording: Recording) -> dict[str, int]:
    counts: dict[str, int] = {}
    first: dict[str, ArrivalLine] = {}
    runs: dict[str, OrderedRun] = {}
    for one in recording.arrivals:
        known = first.setdefault(one.event, one)
        run = runs.get(one.surface, OrderedRun())
        if known is one:
            runs[one.surface] = run.after_fresh()
            continue
        kind, runs[one.surface] = _class_of(recording, one, known, run)
        counts[kind] = counts.get(kind, 0) + 1
    return dict(sorted(counts.items()))


def _class_of(
    recording: Recording, one: ArrivalLine, first: ArrivalLine, run: OrderedRun
) -> tuple[str, OrderedRun]:
    """What the ledger said it was, or else what it looks like."""
    answer = recording.answers.get(one.n)
    if answer is not None and answer.repeat is not None:
        return answer.repeat, run
    if one.content != first.content:
        return RepeatClass.CONFLICT.label, run
    is_busy = answer is not None and answer.verdict == Decision.BUSY.value
    run = run.with_repeat(first.n, first.at_ms)
    decision = Decision.BUSY if is_busy else Decision.REPLAY
    return classify(decision, one.at_ms - first.at_ms, run, LATE_AFTER_MS).kind.label, run
