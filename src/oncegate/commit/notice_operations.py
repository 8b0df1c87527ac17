"""Requests about notices, as values that a batch can hold (see `operations.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from oncegate.commit.operations import Operation
from oncegate.store import Posting, Session


class PostNotice(Operation[bool]):
    """Puts a notice up. Read back by its body."""

    request: Posting

    @classmethod
    def run(cls, session: Session, operations: Sequence[PostNotice]) -> Sequence[bool]:
        """Posts one after the other."""
        return [session.post(operation.request) for operation in operations]

    def recall(self, session: Session) -> bool | None:
        """Looks whether our words stand there."""
        wanted = self.request
        found = session.notices(wanted.kind, wanted.name)
        is_ours = any(one.writer == wanted.writer and one.body == wanted.body for one in found)
        return True if is_ours else None
