"""What can be asked of a ledger about named documents, as values for a batch (see `operations.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from oncegate.errors import StoreBusy
from oncegate.operations import Operation
from oncegate.store import Document, DocumentChange, Session


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


class Kept(Struct, frozen=True):
    """A document, and the ledger's time before it was read."""

    document: Document
    now_ticks: int


class KeepFirst(Operation[Kept]):
    """Makes a document unless there is one; answers with the one that stands there then."""

    request: DocumentChange

    @classmethod
    def run(cls, session: Session, operations: Sequence[KeepFirst]) -> Sequence[Kept]:
        """One after the other."""
        return [operation._keep(session) for operation in operations]

    def _keep(self, session: Session) -> Kept:
        found = self.recall(session)
        if found is None:
            session.change_document(self.request)
            found = self.recall(session)
        if found is None:
            raise StoreBusy(f"{self.request.name!r} was removed while it was read; try again")
        return found

    def recall(self, session: Session) -> Kept | None:
        """Reads it."""
        now = session.now_ticks()
        found = session.document(self.request.kind, self.request.name)
        return None if found is None else Kept(found, now)
