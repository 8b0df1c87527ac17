"""The registry: small named documents that belong to a ledger, such as the endpoints of the sender.

What a document holds is its owner's business; the store keeps bytes. Every change names who and why, is
made against the version that was seen, and leaves one log record in the same transaction.
"""

from __future__ import annotations

from typing import Final, Protocol

from msgspec import Struct

from oncegate.store.log import LogKind

JOURNAL_KIND: Final = "journal"  # how far the log is sealed; signals read whether that is overdue
SNAPSHOTS_KIND: Final = "snapshots"  # one document, `timeline`; signals read whether one is overdue
ENDPOINT_KIND: Final = "endpoint"  # documents of the sender; the feed reads who follows


class Document(Struct, frozen=True):
    """A document as it stands. `version` counts its changes, from 1, and never goes back."""

    kind: str
    name: str
    version: int
    body: bytes
    changed_at_ms: int


class DocumentChange(Struct, frozen=True):
    """Asks to write or, without a body, remove a document that has `version` now; 0 means a new one.

    `note` is what the log says, under the kind `recorded_as`; it must hold no secret. Without a kind there
    is no record: for a document that a program makes without a person's decision.
    """

    kind: str
    name: str
    version: int
    body: bytes | None
    at_ms: int
    actor: str
    note: str
    recorded_as: LogKind | None = LogKind.DOCUMENT_CHANGED


class Registry(Protocol):
    """Named documents of several kinds."""

    def change_document(self, change: DocumentChange) -> bool:
        """Writes a document, with one log record; False and no record where its version is another.

        A document that was removed and made again goes on counting, so that no version means two things.
        """

    def document(self, kind: str, name: str) -> Document | None:
        """Reads one document."""

    def documents(self, kind: str) -> list[Document]:
        """Reads all documents of a kind, by name."""
