"""What this process declares about a surface: one text for every reservation, which grows as steps are met.

A step is declared from the second event on: before its first call in a process it leaves a record instead.
So a first attempt at a repeatable downstream needs no write of its own (I24).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from oncegate.model.declarations import (
    OPAQUE_STEP,
    TEXT_LENGTH_MAX,
    Declaration,
    DeclaredDownstream,
    HandlerKind,
    encode,
    pattern_of,
)

if TYPE_CHECKING:
    from oncegate.gate.surface import Downstream


class Declared(Struct, frozen=True):
    """A declaration as reservations carry it. Must never change: claims rely on it."""

    kind: HandlerKind
    text: str
    steps: dict[str, Downstream]

    def covers(self, step: str, downstream: Downstream) -> bool:
        """Whether a call of this step, at this downstream, may go without a record of its own."""
        found = self.steps.get(step)
        return (self.steps.get(pattern_of(step)) if found is None else found) is downstream


class Declaring:
    """The declaration of one surface in this process."""

    __slots__ = ("named_after_functions", "now")

    def __init__(self, kind: HandlerKind, opaque_at: Downstream) -> None:
        self.now = _declared(kind, {OPAQUE_STEP: opaque_at} if kind is HandlerKind.OPAQUE else {})
        self.named_after_functions: set[str] = set()

    def learn(self, step: str, downstream: Downstream) -> None:
        """Declares a step for later reservations; one too many goes on leaving records."""
        pattern, known = pattern_of(step), self.now
        if pattern in known.steps:
            return
        learnt = _declared(known.kind, {**known.steps, pattern: downstream})
        if len(learnt.text) <= TEXT_LENGTH_MAX:
            self.now = learnt


def _declared(kind: HandlerKind, steps: dict[str, Downstream]) -> Declared:
    places: dict[str, DeclaredDownstream] = {}
    for step, downstream in steps.items():
        known = places.get(downstream.name)
        places[downstream.name] = DeclaredDownstream(
            downstream.capability, (step,) if known is None else (*known.steps, step)
        )
    return Declared(kind, encode(Declaration(kind, places)), steps)
