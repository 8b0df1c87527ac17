"""A log record as a leaf of the tree: canonical JSON (RFC 8785), with commitments in the place of content.

A commitment is a hash under a salt that only the ledger can make. Content that is erased leaves its
commitment, so the leaf and every proof stay as they are.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.json import encode

from oncegate.journal.tree import leaf_hash
from oncegate.store import EntryBodies, LogKind, LogRecord
from oncegate.store.sealing import ERASED_NOTE

NONE: Final = bytes(32)  # no content
WITH_EVENT: Final = frozenset({
    LogKind.COMMITTED, LogKind.FAILED, LogKind.RETRYABLE, LogKind.UNKNOWN, LogKind.HELD,
    LogKind.QUARANTINED,
})  # fmt: skip
WITH_OUTCOME: Final = frozenset({LogKind.COMMITTED, LogKind.FAILED})
_NAMES: Final = {kind: kind.name.lower() for kind in LogKind}


class Leaf(Struct, frozen=True, gc=False):
    """What is hashed of a record. Its fields stand in the order of RFC 8785; bytes are in base64."""

    actor: str
    at: int  # milliseconds since 1970
    entry: int
    kind: str
    note: bytes | None
    outcome: bytes | None
    payload: bytes | None
    position: str
    v: int = 1


class Commitments(NamedTuple):
    """What a record says of content: the hashes of event and outcome, or zeros."""

    payload: bytes = NONE
    outcome: bytes = NONE


class Salts:
    """Makes the salt of each record from a secret of the ledger."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def of(self, position: int) -> bytes:
        """The salt of one record; it tells nothing of another's."""
        return hmac.digest(self._secret, str(position).encode(), "sha256")[:16]

    def note(self, record: LogRecord) -> bytes | None:
        """The commitment to a record's note, whether its text is there or erased."""
        note = record.note
        if note is None:
            return None
        if note.startswith(ERASED_NOTE):
            try:
                return base64.b64decode(note[len(ERASED_NOTE) :], validate=True)
            except ValueError:
                pass  # no commitment, so a text as any other
        return commitment(self.of(record.position), b"n", note.encode("utf-8", "surrogatepass"))

    def content(self, record: LogRecord, found: EntryBodies | None) -> Commitments:
        """The commitments to event and outcome, as far as the ledger has them."""
        if found is None:
            return Commitments()
        salt = self.of(record.position)
        outcome = found.outcome if record.kind in WITH_OUTCOME else None
        return Commitments(
            NONE if found.body is None else commitment(salt, b"p", found.body),
            NONE if outcome is None else commitment(salt, b"o", outcome),
        )

    def leaf(self, record: LogRecord, content: Commitments) -> bytes:
        """The canonical bytes of a record."""
        return encode(
            Leaf(
                record.actor,
                record.at_ms,
                record.entry_id,
                _NAMES[record.kind],
                self.note(record),
                None if content.outcome == NONE else content.outcome,
                None if content.payload == NONE else content.payload,
                str(record.position),
            )
        )

    def leaf_hash(self, record: LogRecord, content: Commitments) -> bytes:
        """The hash of a record's leaf."""
        return leaf_hash(self.leaf(record, content))


def commitment(salt: bytes, kind: bytes, content: bytes) -> bytes:
    """The hash that stands for content in a leaf."""
    return sha256(salt + kind + content).digest()


def erased_note(salts: Salts, record: LogRecord) -> str | None:
    """What takes the place of a note; None where there is nothing to remove."""
    if record.note is None or record.note.startswith(ERASED_NOTE):
        return None
    return ERASED_NOTE + base64.b64encode(salts.note(record) or NONE).decode()


def with_events(records: Iterable[LogRecord]) -> Iterator[int]:
    """The entries whose content records are about."""
    return (record.entry_id for record in records if record.entry_id > 0 and record.kind in WITH_EVENT)
