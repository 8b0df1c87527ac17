"""Reading snapshots: one, all, the objects of a belief, differences, and the check of the whole chain."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

from oncegate.errors import NoSuchSnapshot, SnapshotError
from oncegate.journal.keys import Verifier
from oncegate.journal.snapshots.manifest import (
    FOLDER,
    BeliefEntry,
    Manifest,
    PartEntry,
    hash_of,
    manifest_name,
    number_of,
    read_manifest,
)
from oncegate.journal.snapshots.spool import place_of
from oncegate.journal.snapshots.vault import Vault

PART_BYTES_MAX: Final = 256 * 2**20  # of one part, unpacked


class ObjectChange(Enum):
    """How an object differs between two snapshots."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


class ObjectDifference(NamedTuple):
    """One object that differs; values are canonical JSON, None where the object is absent."""

    belief: str
    id: str
    change: ObjectChange
    before: bytes | None
    after: bytes | None


class StoredManifest(NamedTuple):
    """A manifest with the hash that the next one names."""

    manifest: Manifest
    hash: str


class Archive:
    """The snapshots of one vault."""

    def __init__(self, vault: Vault, verifiers: Sequence[Verifier]) -> None:
        self.vault = vault
        self._verifiers = verifiers

    def numbers(self) -> list[int]:
        """The numbers of all snapshots, oldest first."""
        return [number_of(name) for name in self.vault.names(FOLDER)]

    def manifest(self, number: int) -> StoredManifest:
        """One snapshot whose signature is right."""
        stored = self.vault.get(manifest_name(number))
        return StoredManifest(read_manifest(stored, self._verifiers, number), hash_of(stored))

    def find(self, text: str) -> StoredManifest:
        """A snapshot by number or by the beginning of its hash; `latest` is the last one."""
        numbers = self.numbers()
        if not numbers:
            there = self.vault.address
            raise NoSuchSnapshot(
                f"no snapshot is in {there} yet; take one: oncegate snapshots take --app MODULE:GATE"
            )
        if text == "latest":
            return self.manifest(numbers[-1])
        if text.isascii() and text.isdigit() and int(text) in numbers:
            return self.manifest(int(text))
        if len(text) >= 8:
            for number in reversed(numbers):
                if (found := self.manifest(number)).hash.startswith(text):
                    return found
        raise NoSuchSnapshot(f"there is no snapshot {text[:64]!r}; see: oncegate snapshots list")

    def parts(self, belief: BeliefEntry) -> list[PartEntry]:
        """The list of a belief's parts."""
        return msgspec.json.decode(self.part(belief.index), type=list[PartEntry])

    def part(self, digest: str) -> bytes:
        """One part, unpacked and compared with its name."""
        packed = self.vault.get(part_name(digest))
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
                body = file.read(PART_BYTES_MAX + 1)
        except (OSError, EOFError):
            raise SnapshotError(f"part {digest[:16]} cannot be unpacked: it was changed") from None
        if sha256(body).hexdigest() != digest:
            raise SnapshotError(f"part {digest[:16]} has another content than its name: it was changed")
        return body

    def objects(self, belief: BeliefEntry, ids: Iterable[str] | None = None) -> Iterator[tuple[str, bytes]]:
        """The objects of a belief, or those with the given ids, as pairs of id and canonical JSON."""
        wanted = None if ids is None else set(ids)
        shift = 32 - belief.bits
        places = None if wanted is None else {place_of(one) >> shift for one in wanted}
        for part in self.parts(belief):
            if places is None or part.place in places:
                for identity, body in read_lines(self.part(part.digest)):
                    if wanted is None or identity in wanted:
                        yield identity, body

    def differences(self, before: Manifest, after: Manifest) -> Iterator[ObjectDifference]:
        """What differs between two snapshots; parts with the same hash are not read."""
        for name in sorted({*before.beliefs, *after.beliefs}):
            old, new = before.beliefs.get(name), after.beliefs.get(name)
            if old is None or new is None or old.digest != new.digest:
                yield from self._differences(name, old, new)

    def _differences(
        self, name: str, old: BeliefEntry | None, new: BeliefEntry | None
    ) -> Iterator[ObjectDifference]:
        old_parts = [] if old is None else self.parts(old)
        new_parts = [] if new is None else self.parts(new)
        same = {part.digest for part in old_parts} & {part.digest for part in new_parts}
        was = self._of(part for part in old_parts if part.digest not in same)
        now = self._of(part for part in new_parts if part.digest not in same)
        yield from compared(name, was, now)

    def _of(self, parts: Iterable[PartEntry]) -> dict[str, bytes]:
        return {one: body for part in parts for one, body in read_lines(self.part(part.digest))}

    def verify(self, *, parts: bool = True) -> Iterator[StoredManifest]:
        """Goes through the whole chain; raises SnapshotError at the first thing that is wrong."""
        previous, seen = "", set[str]()
        for expected, number in enumerate(self.numbers(), 1):
            if number != expected:
                raise SnapshotError(f"snapshot {expected} is missing; {number} follows")
            found = self.manifest(number)
            if found.manifest.previous != previous:
                raise SnapshotError(f"snapshot {number} does not follow on {number - 1}: it was exchanged")
            if parts:
                self.verify_parts(found.manifest, seen)
            previous = found.hash
            yield found

    def verify_parts(self, manifest: Manifest, seen: set[str]) -> None:
        """Reads the parts of a snapshot that are not in `seen`; a bad one raises SnapshotError."""
        for belief in manifest.beliefs.values():
            self._verify_belief(manifest.number, belief, seen)

    def _verify_belief(self, number: int, belief: BeliefEntry, seen: set[str]) -> None:
        listed = self.parts(belief)
        if (digest_of(listed), sum(part.count for part in listed)) != (belief.digest, belief.count):
            raise SnapshotError(f"snapshot {number}: the list of parts is not the one that was signed")
        for part in listed:
            if part.digest not in seen:
                if self.part(part.digest).count(b"\n") != part.count:
                    raise SnapshotError(f"snapshot {number}: part {part.digest[:16]} is incomplete")
                seen.add(part.digest)


def compared(name: str, was: dict[str, bytes], now: dict[str, bytes]) -> Iterator[ObjectDifference]:
    """What differs between two sets of objects."""
    for one in sorted(was.keys() | now.keys()):
        old, new = was.get(one), now.get(one)
        if old is None:
            yield ObjectDifference(name, one, ObjectChange.ADDED, None, new)
        elif new is None:
            yield ObjectDifference(name, one, ObjectChange.REMOVED, old, None)
        elif old != new:
            yield ObjectDifference(name, one, ObjectChange.CHANGED, old, new)


def part_name(digest: str) -> str:
    """Where a part is stored."""
    return f"parts/{digest[:2]}/{digest}.gz"


def packed(body: bytes) -> bytes:
    """A part as it is stored: the same bytes for the same content."""
    return gzip.compress(body, compresslevel=3, mtime=0)


def digest_of(parts: Iterable[PartEntry]) -> str:
    """The hash of a belief: of its parts in order, whatever their retention."""
    lines = (f"{part.place} {part.count} {part.digest}\n" for part in parts)
    return sha256("".join(lines).encode()).hexdigest()


def read_lines(body: bytes) -> Iterator[tuple[str, bytes]]:
    """The objects of a part as pairs of id and canonical JSON."""
    for line in body.splitlines():
        identity, value = msgspec.json.decode(line, type=tuple[msgspec.Raw, msgspec.Raw])
        yield bytes(identity).decode(), bytes(value)


def shown(value: bytes | None) -> Any:
    """A value as people read it; None for an object that is absent."""
    return None if value is None else msgspec.json.decode(value)
