"""Broken batches: what events that are committed together do to each other."""

from __future__ import annotations

from lab.broken_gates.broken_gate import BrokenGate
from lab.simulator.workload import BATCHED
from oncegate.errors import StoreRejected, StoreUnavailable
from oncegate.store import Statement
from oncegate.testing.simulation.store import SimulatedSession


class StatementByStatement(BrokenGate):
    """The batch that runs all first statements, then all second ones.

    Equal texts meet, and the batch is quick. Every event counts one up, and then every event reads the
    same number: two customers have the same invoice.
    """

    caught_as = ("I22",)
    surfaces = BATCHED

    class session_type(SimulatedSession):  # noqa: N801
        def _run_writes(self, batches: list[tuple[Statement, ...]]) -> None:
            for place in range(max(map(len, batches), default=0)):
                for batch in batches:
                    for sql, parameters in batch[place : place + 1]:
                        self.execute(sql, parameters)


class RefusalTakenForAnOutage(BrokenGate):
    """The refused statement that is taken for a lost connection.

    The server says no to one event's statement, and the error's code looks like trouble with the server. So
    every event in the batch gets an error that the store is away, and waits for a person.
    """

    caught_as = ("I25",)
    surfaces = BATCHED

    class session_type(SimulatedSession):  # noqa: N801
        def _run_writes(self, batches: list[tuple[Statement, ...]]) -> None:
            try:
                super()._run_writes(batches)
            except StoreRejected as error:
                raise StoreUnavailable("the connection was lost") from error
