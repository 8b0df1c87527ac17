"""A log record as a leaf of the tree: canonical JSON (RFC 8785), with commitments in the place of content.

A commitment is a hash under a salt that only the ledger can make. Content that is erased leaves its
commitment, so the leaf and every proof stay as they are.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b, sha256
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.json import encode

from oncegate.store import EntryBodies, LogKind, LogRecord
from oncegate.store.sealing import ERASED_NOTE

NONE: Final = bytes(32)  # no content
ROW: Final = struct.Struct("32s32s32s24s")  # a leaf's hash, its two commitments, the record's position
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
        return blake2b(b"%d" % position, key=self._secret, digest_size=16).digest()

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

    def content(self, record: LogRecord, found: EntryBodies) -> Commitments:
        """The commitments to event and outcome, as far as the ledger has them."""
        salt = self.of(record.position)
        body, outcome = found.body, found.outcome if record.kind in WITH_OUTCOME else None
        return Commitments(
            NONE if body is None else sha256(salt + b"p" + body).digest(),
            NONE if outcome is None else sha256(salt + b"o" + outcome).digest(),
        )

    def rows(self, records: Iterable[LogRecord], found: Mapping[int, EntryBodies]) -> list[bytes]:
        """Records as their tiles have them: `content` and `leaf_hash` of each, in one loop for speed."""
        rows: list[bytes] = []
        for record in records:
            kind, position = record.kind, record.position
            bodies = found.get(record.entry_id) if kind in WITH_EVENT else None
            payload = outcome = None
            if bodies is not None:
                salt = blake2b(b"%d" % position, key=self._secret, digest_size=16).digest()
                if bodies.body is not None:
                    payload = sha256(salt + b"p" + bodies.body).digest()
                if bodies.outcome is not None and kind in WITH_OUTCOME:
                    outcome = sha256(salt + b"o" + bodies.outcome).digest()
            note = None if record.note is None else self.note(record)
            leaf = encode(
                Leaf(
                    record.actor, record.at_ms, record.entry_id, _NAMES[kind], note, outcome, payload,
                    str(position),
                )
            )  # fmt: skip
            hashed = sha256(b"\0" + leaf).digest()
            rows.append(ROW.pack(hashed, payload or NONE, outcome or NONE, position.to_bytes(24, "big")))
        return rows

    def leaf(self, record: LogRecord, content: Commitments) -> bytes:
        """The canonical bytes of a record."""
        return encode(
            Leaf(
                record.actor,
                record.at_ms,
                record.entry_id,
                _NAMES[record.kind],
                None if record.note is None else self.note(record),
                None if content.outcome == NONE else content.outcome,
                None if content.payload == NONE else content.payload,
                str(record.position),
            )
        )

    def leaf_hash(self, record: LogRecord, content: Commitments) -> bytes:
        """The hash of a record's leaf."""
        return sha256(b"\0" + self.leaf(record, content)).digest()


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
