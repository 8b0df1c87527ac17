"""The sealed tree in the ledger: documents of 256 rows, and of 256 hashes above them.

A row is the hash of a leaf, its two commitments and the position of its record. Rows outlive entries and
events, so every proof can be made for as long as the ledger is there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from msgspec import Struct
from msgspec.json import decode, encode

from oncegate.errors import StoreCorrupt
from oncegate.journal.leaves import Commitments
from oncegate.journal.tree import (
    consistency_path,
    full_root,
    inclusion_path,
    range_hash,
)
from oncegate.store import Document, DocumentChange
from oncegate.store.registry import JOURNAL_KIND

WIDTH: Final = 256
HASH_BYTES: Final = 32
_ROW: Final = struct.Struct("32s32s32s24s")
JOURNAL: Final = JOURNAL_KIND
TILE: Final = "journal-tile"
HEAD: Final = "journal-head"
STATE: Final = "state"
SECRET: Final = "secret"
PUBLISHED: Final = "published"


class SealedRow(NamedTuple):
    """A sealed record: the hash of its leaf, its commitments, and where the record is."""

    leaf: bytes
    content: Commitments
    position: int

    def packed(self) -> bytes:
        """The row as bytes."""
        return _ROW.pack(self.leaf, *self.content, self.position.to_bytes(24, "big"))


class SealState(Struct, frozen=True, omit_defaults=True):
    """How far the log is sealed, the newest signed head, and the keys that were introduced."""

    origin: str
    size: int = 0
    position: int = 0
    at_ms: int = 0
    every_ms: int = 0
    head: str = ""
    keys: tuple[str, ...] = ()  # the verifier keys it began with
    introductions: tuple[str, ...] = ()


class ReadsDocuments(Protocol):
    """The part of a session that tiles are read by."""

    def document(self, kind: str, name: str) -> Document | None:
        """Reads one document."""


def tile_name(level: int, number: int) -> str:
    """The name of a tile's document."""
    return f"{level}/{number:012d}"


def head_name(size: int) -> str:
    """The name of a head's document; names are in the order of sizes."""
    return f"{size:020d}"


def read_state(session: ReadsDocuments) -> tuple[SealState | None, int]:
    """How far the log is sealed, and the version of the document that says so."""
    found = session.document(JOURNAL, STATE)
    return (None, 0) if found is None else (decode(found.body, type=SealState), found.version)


class Tiles:
    """Reads the tree of a ledger, keeping what it has read."""

    def __init__(self, session: ReadsDocuments, size: int) -> None:
        self._session, self.size = session, size
        self._read = lru_cache(maxsize=64)(self._document)
        self._subtree = lru_cache(maxsize=4096)(self._make_subtree)

    def _document(self, level: int, number: int) -> Document | None:
        return self._session.document(TILE, tile_name(level, number))

    def hashes(self, level: int, number: int) -> list[bytes]:
        """The hashes of a tile."""
        found = self._read(level, number)
        body = b"" if found is None else found.body
        step = _ROW.size if level == 0 else HASH_BYTES
        return [body[i : i + HASH_BYTES] for i in range(0, len(body), step)]

    def rows(self, number: int) -> list[SealedRow]:
        """The rows of a tile of leaves, up to the tree's size."""
        found = self._read(0, number)
        body = b"" if found is None else found.body
        whole = body[: len(body) - len(body) % _ROW.size]
        rows = [
            SealedRow(leaf, Commitments(payload, outcome), int.from_bytes(position, "big"))
            for leaf, payload, outcome, position in _ROW.iter_unpack(whole)
        ]
        return rows[: max(0, self.size - number * WIDTH)]

    def all_rows(self) -> Iterator[SealedRow]:
        """Every sealed row, in order."""
        for number in range(-(-self.size // WIDTH)):
            yield from self.rows(number)

    def subtree(self, height: int, number: int) -> bytes:
        """The hash of a full subtree of 2**height leaves."""
        return self._subtree(height, number)

    def _make_subtree(self, height: int, number: int) -> bytes:
        level, rest = divmod(height, 8)
        first = number << rest
        tile = self.hashes(level, first // WIDTH)
        wanted = tile[first % WIDTH : first % WIDTH + (1 << rest)]
        if len(wanted) != 1 << rest:
            raise StoreCorrupt(f"the journal's tile {tile_name(level, first // WIDTH)} is cut short")
        return full_root(wanted)

    def root(self, size: int | None = None) -> bytes:
        """The root of the tree, or of its beginning."""
        return range_hash(self.subtree, 0, self.size if size is None else size)

    def inclusion(self, index: int, size: int) -> list[bytes]:
        """The proof for one leaf."""
        return inclusion_path(self.subtree, index, size)

    def consistency(self, old: int, new: int) -> list[bytes]:
        """The proof for two sizes."""
        return consistency_path(self.subtree, old, new)

    def index_of(self, position: int) -> int | None:
        """Where the record at a position is in the tree: positions grow with it."""
        low, high = 0, -(-self.size // WIDTH)
        while high - low > 1:
            middle = (low + high) // 2
            found = self._read(0, middle)
            first = b"" if found is None else found.body[_ROW.size - 24 : _ROW.size]
            is_before = bool(first) and int.from_bytes(first, "big") <= position
            low, high = (middle, high) if is_before else (low, middle)
        for place, row in enumerate(self.rows(low)):
            if row.position == position:
                return low * WIDTH + place
        return None

    def appended(self, rows: Sequence[SealedRow]) -> dict[tuple[int, int], tuple[int, bytes]]:
        """The tiles that change with more rows: their version now, and their new body."""
        changed: dict[tuple[int, int], tuple[int, bytes]] = {}
        level, at, step = 0, self.size, _ROW.size
        parts = [row.packed() for row in rows]
        while parts:
            roots: list[bytes] = []
            for start, end in _tile_parts(at, len(parts)):
                number = (at + start) // WIDTH
                found = self._read(level, number)
                kept = b"" if found is None else found.body[: (at + start) % WIDTH * step]
                body = kept + b"".join(parts[start:end])
                changed[level, number] = (0 if found is None else found.version, body)
                if (at + end) % WIDTH == 0:
                    roots.append(full_root([body[i : i + HASH_BYTES] for i in range(0, len(body), step)]))
            parts, at, level, step = roots, at // WIDTH, level + 1, HASH_BYTES
        return changed


def _tile_parts(at: int, count: int) -> Iterator[tuple[int, int]]:
    """Which of `count` new items go into one tile each, if `at` items are there."""
    start = 0
    while start < count:
        end = min(count, start + WIDTH - (at + start) % WIDTH)
        yield start, end
        start = end


def tile_changes(
    changed: dict[tuple[int, int], tuple[int, bytes]], at_ms: int, actor: str
) -> Iterator[DocumentChange]:
    """The changes of documents that write tiles."""
    for (level, number), (version, body) in changed.items():
        yield DocumentChange(TILE, tile_name(level, number), version, body, at_ms, actor, "", None)


def state_change(state: SealState, version: int, actor: str) -> DocumentChange:
    """The change of the document that says how far the log is sealed."""
    return DocumentChange(JOURNAL, STATE, version, encode(state), state.at_ms, actor, "", None)
