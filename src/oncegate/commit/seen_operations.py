"""Requests about what processes have seen, as values that a batch can hold (see `operations.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from oncegate.commit.operations import Operation
from oncegate.store import Met, Seen, Session


class Meet(Operation[Met]):
    """Brings what was seen and asks who saw the same."""

    request: Seen

    @classmethod
    def run(cls, session: Session, operations: Sequence[Meet]) -> Sequence[Met]:
        """One after the other."""
        return [session.meet(operation.request) for operation in operations]

    def recall(self, session: Session) -> Met:
        """Taken for done, with nothing found: a second of comparisons is lost, and nothing said twice."""
        return Met((None,) * len(self.request.contents))
