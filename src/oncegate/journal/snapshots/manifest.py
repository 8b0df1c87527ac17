"""The manifest of a snapshot: what it holds, signed, with the hash of the manifest before it.

Stored as a signed note (`oncegate.journal.notes`): a title, one line of canonical JSON, the signatures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final

import msgspec
from msgspec import Struct

from oncegate.errors import OncegateError, SnapshotError
from oncegate.journal.keys import Signer, Verifier
from oncegate.journal.notes import open_note, sign_note
from oncegate.model.canonical import canonical_json

FOLDER: Final = "manifests"
_TITLE: Final = "oncegate snapshot v1"


class PartEntry(Struct, frozen=True, array_like=True):
    """One part in an index: its place, its objects, its hash, and the day until which it is kept."""

    place: int
    count: int
    digest: str
    until_day: int = 0


class BeliefEntry(Struct, frozen=True):
    """One belief in a manifest. `digest` is the hash of its parts; `index` names the list of them."""

    count: int
    content_duplicates: int
    bits: int
    digest: str
    index: str


class Manifest(Struct, frozen=True):
    """One snapshot. `previous` is the hash of the manifest before it, empty for the first.

    `mark` is the place in the order of mutations. `clock_back_ms` is how far the wall clock stands behind
    that of the snapshot before: the order is that of the numbers, never of the clock. `ledger_id` is
    random: one vault holds the snapshots of one ledger.
    """

    number: int
    previous: str
    taken_at: str
    wall_ms: int
    ticks_ms: int
    clock_back_ms: int
    software: str
    ledger: str
    mark: str
    config: str
    beliefs: dict[str, BeliefEntry]
    ledger_id: str
    head: str | None = None
    cause: str = ""  # what it was taken for, where not for its time

    @property
    def name(self) -> str:
        """Where it is stored."""
        return manifest_name(self.number)

    def signed(self, signers: Sequence[Signer]) -> bytes:
        """The manifest as it is stored."""
        line = canonical_json(msgspec.to_builtins(self)).decode()
        return sign_note(f"{_TITLE}\n{_ascii(line)}\n", signers).encode()


def _ascii(line: str) -> str:
    """Escapes what a note's text may not hold; JSON reads it back as it was."""
    return "".join(one if one >= " " and one != "\x7f" else f"\\u{ord(one):04x}" for one in line)


def manifest_name(number: int) -> str:
    """Where the manifest of a number is stored; names sort like numbers."""
    return f"{FOLDER}/{number:012d}"


def number_of(name: str) -> int:
    """The number in a manifest's name."""
    return int(name.rpartition("/")[2])


def hash_of(stored: bytes) -> str:
    """What the next manifest calls this one by."""
    return sha256(stored).hexdigest()


def read_manifest(stored: bytes, verifiers: Iterable[Verifier], number: int) -> Manifest:
    """Checks the signature and reads; raises SnapshotError for a manifest that cannot be trusted."""
    try:
        text = open_note(stored.decode(), verifiers).text
        title, line, _ = text.split("\n")
        found = msgspec.json.decode(line, type=Manifest)
    except OncegateError as error:
        raise SnapshotError(f"snapshot {number}: {error}") from None
    except ValueError:
        raise SnapshotError(f"snapshot {number}: the manifest cannot be read") from None
    if title != _TITLE or found.number != number:
        raise SnapshotError(f"snapshot {number}: the manifest is that of another one")
    return found
