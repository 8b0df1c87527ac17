"""Requests about named documents, as values that a batch can hold (see `operations.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from oncegate.commit.operations import Operation
from oncegate.errors import StoreBusy
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


class ReadDocuments(Operation[list[Document]]):
    """Reads all documents of a kind: many tasks that ask at once share one connection and one answer."""

    request: str

    @classmethod
    def run(cls, session: Session, operations: Sequence[ReadDocuments]) -> Sequence[list[Document]]:
        """Reads each kind once."""
        found = {kind: session.documents(kind) for kind in {one.request for one in operations}}
        return [found[one.request] for one in operations]

    def recall(self, session: Session) -> list[Document]:
        """Reads them again."""
        return session.documents(self.request)


class StoredDocument(Struct, frozen=True):
    """A document, and the ledger's time before it was read."""

    document: Document
    now_ticks: int


class KeepFirst(Operation[StoredDocument]):
    """Makes a document unless there is one; answers with the one that stands there then."""

    request: DocumentChange

    @classmethod
    def run(cls, session: Session, operations: Sequence[KeepFirst]) -> Sequence[StoredDocument]:
        """One after the other."""
        return [operation._keep(session) for operation in operations]

    def _keep(self, session: Session) -> StoredDocument:
        found = self.recall(session)
        if found is None:
            session.change_document(self.request)
            found = self.recall(session)
        if found is None:
            raise StoreBusy(f"{self.request.name!r} was removed while it was read; try again")
        return found

    def recall(self, session: Session) -> StoredDocument | None:
        """Reads it."""
        now = session.now_ticks()
        found = session.document(self.request.kind, self.request.name)
        return None if found is None else StoredDocument(found, now)
