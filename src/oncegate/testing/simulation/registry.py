"""Named documents on the simulated ledger. Mixed into the session."""

from __future__ import annotations

from oncegate.store import Document, DocumentChange
from oncegate.testing.simulation.ledger import Ledger, Tables


class SimulatedRegistry:
    """Change, read, list. A removed document stays without a body: its versions go on counting."""

    _ledger: Ledger
    _tables: Tables

    def change_document(self, change: DocumentChange) -> bool:
        """Writes a document where its version is still the one that was seen."""
        place, documents = (change.kind, change.name), self._tables.documents
        there = self.document(*place)
        if (0 if there is None else there.version) != change.version:
            return False
        version = documents[place][0] if place in documents else 0
        self._ledger.set(documents, place, (version + 1, change.body, change.at_ms))
        if change.recorded_as is not None:
            self._ledger.add_record(0, change.recorded_as, change.at_ms, change.actor, change.note)
        return True

    def document(self, kind: str, name: str) -> Document | None:
        """Reads one document."""
        version, body, at_ms = self._tables.documents.get((kind, name), (0, None, 0))
        return None if body is None else Document(kind, name, version, body, at_ms)

    def documents(self, kind: str) -> list[Document]:
        """Reads all documents of a kind."""
        names = sorted(name for found, name in self._tables.documents if found == kind)
        return [found for name in names if (found := self.document(kind, name)) is not None]
