"""Broken recoveries: what a new version does not know of the old one, and waits without an end."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from lab.broken_gates.broken_gate import BrokenGate
from lab.simulator.workload import DEPLOYED
from oncegate.model.states import Decision
from oncegate.store import Reservation, Reserved, StepRecord, StepState
from oncegate.testing.simulation.ledger import Row
from oncegate.testing.simulation.store import SimulatedSession


class OldVersionForgotten(BrokenGate):
    """The recovery that goes by what the new version declares.

    A function was renamed between the crash and the recovery. The ledger does not say what the old version
    may have called, so the new one calls it by its new name, and under a new key the downstream acts again.
    """

    caught_as = ("I1",)
    surfaces = DEPLOYED[:1]

    class session_type(SimulatedSession):  # noqa: N801
        def take_over(self, row: Row, item: Reservation, decision: Decision, now: int) -> Reserved:
            taken = super().take_over(row, item, decision, now)
            told = tuple(step for step in taken.steps if step.state is not StepState.CALLED)
            return replace(taken, declared=item.declared, steps=told)


class WaitBegunAgain(BrokenGate):
    """The wait that begins again with every look.

    A request may still be under way, so its step waits. The wait counts from the last attempt, and every
    attempt calls the step before it again: the first downstream is called for ever, and nothing ends.
    """

    caught_as = ("I26",)
    surfaces = DEPLOYED[1:]

    class session_type(SimulatedSession):  # noqa: N801
        def write_steps(self, entry: int, steps: Iterable[StepRecord]) -> None:
            super().write_steps(entry, [replace(step, last_call_ticks=None) for step in steps])
