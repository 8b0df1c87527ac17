"""Requests about changes of users' objects, as values that a batch can hold (see `operations.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from oncegate.commit.operations import Operation
from oncegate.store import Mutated, Session


class NoteMutation(Operation[bool]):
    """Notes a change. After a doubtful commit it is noted again: a second row says the same."""

    request: Mutated

    @classmethod
    def run(cls, session: Session, operations: Sequence[NoteMutation]) -> Sequence[bool]:
        """Notes one after the other."""
        for operation in operations:
            session.note_mutation(operation.request)
        return [True] * len(operations)

    def recall(self, session: Session) -> bool | None:
        """Not looked for: the caller's event is tried again, and notes it again."""
        return None
