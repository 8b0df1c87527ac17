"""The storm's verdict and how it is shown: a table for people, a document for programs.

Must never compute a number of its own: `evidence.py` counts, this file compares and lays out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from oncegate.demo.storm.evidence import LATE_CANCELLATION_EUR, Count
from oncegate.demo.storm.story import StormFault, Story

LABEL_WIDTH: Final = 40
COLUMN_WIDTH: Final = 18


@dataclass(frozen=True, slots=True)
class StormResult:
    """Both runs in numbers, and everything about them that is not as it must be."""

    seed: int
    workers: int
    seconds: float
    ledger: str
    without_gate: Count
    with_gate: Count
    problems: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether the gate kept every promise, and the fault that it guards against really showed."""
        return not self.problems


def find_problems(story: Story, without_gate: Count, with_gate: Count) -> Iterator[str]:
    """Say what is wrong with the runs; nothing if the demo shows what it should."""
    containers = len(story.events)
    yield from _find_missing_faults("without the gate", story, without_gate)
    yield from _find_missing_faults("with the gate", story, with_gate)
    if without_gate.slots <= containers:
        yield f"without the gate only {without_gate.slots} slots were claimed: the fault did not show"
    for name, found, wanted in (
        ("slots", with_gate.slots, containers),
        ("bookings", with_gate.bookings, containers),
        ("ghost slots", with_gate.ghost_slots, 0),
        ("double slots", with_gate.double_slots, 0),
        ("containers without a booking", with_gate.containers_without_booking, 0),
    ):
        if found != wanted:
            yield f"with the gate there are {found} {name} instead of {wanted}"
    yield from _find_unrecovered(story, with_gate)


def _find_missing_faults(run: str, story: Story, count: Count) -> Iterator[str]:
    """A run in which the trouble did not happen proves nothing."""
    for name, found, wanted in (
        ("deliveries", count.deliveries, story.deliveries),
        ("kills", count.killed, story.faults(StormFault.KILL)),
        ("errors", count.errors, story.faults(StormFault.ERROR)),
    ):
        if found < wanted:
            yield f"{run} there were only {found} of {wanted} {name}"


def _find_unrecovered(story: Story, count: Count) -> Iterator[str]:
    recoveries = count.recoveries
    if recoveries is None:
        yield "the ledger of the gated run was not read"
        return
    if recoveries.unfinished:
        yield f"{recoveries.unfinished} keys in the ledger have no outcome"
    if recoveries.total < count.killed:
        yield f"only {recoveries.total} of {count.killed} crashes were recovered"
    if recoveries.by_reconciler < story.lost:
        yield f"only {recoveries.by_reconciler} of {story.lost} lost messages were reconciled"


def format_table(result: StormResult) -> str:
    """The table for people."""
    lines = [_line("", "without the gate", "with the gate")]
    lines.append("-" * len(lines[0]))
    both = (result.without_gate, result.with_gate)
    lines += [_line(label, *map(show, both)) for label, show in _rows()]
    return "\n".join(lines)


def _rows() -> Iterator[tuple[str, Callable[[Count], str]]]:
    yield "deliveries", lambda count: str(count.deliveries)
    yield "slots claimed", lambda count: str(count.slots)
    yield "bookings", lambda count: str(count.bookings)
    yield "ghost slots (no booking)", lambda count: str(count.ghost_slots)
    yield "double slots (container has one already)", lambda count: str(count.double_slots)
    yield "containers without a booking", lambda count: str(count.containers_without_booking)
    yield f"late cancellations, EUR {LATE_CANCELLATION_EUR} each", _euros
    yield "booking writes that failed", lambda count: str(count.errors)
    yield "crashes (workers killed by SIGKILL)", lambda count: str(count.killed)
    yield "  finished by a redelivery", lambda count: _recovered(count, "by_redelivery")
    yield "  reconciled", lambda count: _recovered(count, "by_reconciler")


def _euros(count: Count) -> str:
    return f"EUR {count.late_cancellations_eur:,}"


def _recovered(count: Count, how: str) -> str:
    return "-" if count.recoveries is None else str(getattr(count.recoveries, how))


def _line(label: str, without: str, gated: str) -> str:
    return f"{label:<{LABEL_WIDTH}}{without:>{COLUMN_WIDTH}}{gated:>{COLUMN_WIDTH}}"


def as_document(result: StormResult) -> dict[str, Any]:
    """The document for programs."""
    return {"passed": result.passed, **dataclasses.asdict(result)}
