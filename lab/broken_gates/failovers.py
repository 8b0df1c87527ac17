"""Broken failovers: a ledger that goes back in time under living workers."""

from __future__ import annotations

from lab.broken_gates.broken_gate import BrokenGate
from lab.simulator.worker import TrueFace, Worker
from lab.simulator.workload import LOSING
from oncegate.testing.simulation.claims import Acting
from oncegate.testing.simulation.ledger import Row
from oncegate.testing.simulation.store import SimulatedSession


class NumbersGivenOutAgain(BrokenGate):
    """The claim that is named by its numbers only.

    A standby is promoted without the last commits, and gives their numbers out again. A worker from before
    settles its entry and fence, which are another event's by now: that event gets a stranger's outcome and
    never runs.
    """

    caught_as = ("I4", "I2")
    surfaces = LOSING

    class session_type(SimulatedSession):  # noqa: N801
        def is_held(self, row: Row, item: Acting) -> bool:
            return row.fence == item.fence


class FailoverUnnoticed(BrokenGate):
    """The worker that does not notice another ledger.

    It reconnects after a failover as after any lost connection. What it settled is lost, and it keeps that
    to itself: an acknowledged event is nowhere, and one that comes again has its effect twice.
    """

    caught_as = ("I1", "I2")
    surfaces = LOSING

    class face_type(TrueFace):  # noqa: N801
        def __init__(self, worker: Worker) -> None:
            super().__init__(worker)
            worker.store.incarnations.detach(self.gate.engine._restorer)
