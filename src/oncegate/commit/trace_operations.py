"""Requests about traces, as values that a batch can hold (see `operations.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from oncegate.commit.operations import Operation
from oncegate.store import Session, TraceLink


class Link(Operation[bool]):
    """Keeps an entry's place in a journey. Writing it twice changes nothing."""

    request: TraceLink

    @classmethod
    def run(cls, session: Session, operations: Sequence[Link]) -> Sequence[bool]:
        """Keeps many."""
        session.link([operation.request for operation in operations])
        return [True] * len(operations)

    def recall(self, session: Session) -> bool | None:
        """Looks whether it is there."""
        return True if session.link_of(self.request.entry_id) is not None else None


class FindLink(Operation[TraceLink | None]):
    """Finds an entry's place in a journey, for an attempt that did not bring the context itself."""

    request: int

    @classmethod
    def run(cls, session: Session, operations: Sequence[FindLink]) -> Sequence[TraceLink | None]:
        """Finds many."""
        return [session.link_of(operation.request) for operation in operations]

    def recall(self, session: Session) -> TraceLink | None:
        """Reads again."""
        return session.link_of(self.request)
