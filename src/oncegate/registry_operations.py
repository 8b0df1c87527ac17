"""What can be asked of a ledger about named documents, as values for a batch (see `operations.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from oncegate.operations import Operation
from oncegate.store import DocumentChange, Session


class ChangeDocument(Operation[bool]):
    """Writes or removes a document. Read back by the version it would have now."""

    request: DocumentChange

    @classmethod
    def run(cls, session: Session, operations: Sequence[ChangeDocument]) -> Sequence[bool]:
        """Changes one after the other."""
        return [session.change_document(operation.request) for operation in operations]

    def recall(self, session: Session) -> bool | None:
        """Looks whether our body stands there, written after the version we saw."""
        wanted = self.request
        found = session.document(wanted.kind, wanted.name)
        if wanted.body is None:
            return True if found is None else None
        is_ours = found is not None and found.version > wanted.version and found.body == wanted.body
        return True if is_ours else None
