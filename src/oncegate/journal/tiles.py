"""The sealed tree in the ledger: documents of 256 rows, and of 256 hashes above them.

A row is the hash of a leaf, its two commitments and the position of its record. Rows outlive entries and
events, so every proof can be made for as long as the ledger is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from msgspec import Struct
from msgspec.json import decode, encode

from oncegate.errors import StoreCorrupt
from oncegate.journal.leaves import ROW, Commitments
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

    def _body(self, level: int, number: int) -> bytes:
        found = self._read(level, number)
        return b"" if found is None else found.body

    def hashes(self, number: int) -> bytes:
        """The hashes of the leaves of a tile, up to the tree's size; they follow each other."""
        rows = self.raw(number * WIDTH, WIDTH)
        return b"".join([rows[i : i + HASH_BYTES] for i in range(0, len(rows), ROW.size)])

    def raw(self, index: int, count: int) -> bytes:
        """Rows from an index on, up to the tree's size, as their tiles have them."""
        end, parts = min(index + count, self.size), []
        while index < end:
            number, first = divmod(index, WIDTH)
            last = min(WIDTH, first + end - index)
            parts.append(self._body(0, number)[first * ROW.size : last * ROW.size])
            index += last - first
        return b"".join(parts)

    def row(self, index: int) -> SealedRow | None:
        """One sealed row; None behind the end, and where its tile is cut short."""
        packed = self.raw(index, 1)
        if len(packed) != ROW.size:
            return None
        leaf, payload, outcome, position = ROW.unpack(packed)
        return SealedRow(leaf, Commitments(payload, outcome), int.from_bytes(position, "big"))

    def subtree(self, height: int, number: int) -> bytes:
        """The hash of a full subtree of 2**height leaves."""
        return self._subtree(height, number)

    def _make_subtree(self, height: int, number: int) -> bytes:
        level, rest = divmod(height, 8)
        tile, first = divmod(number << rest, WIDTH)
        if level == 0:
            rows = self._body(0, tile)[first * ROW.size : (first + (1 << rest)) * ROW.size]
            wanted = b"".join([rows[i : i + HASH_BYTES] for i in range(0, len(rows), ROW.size)])
        else:
            wanted = self._body(level, tile)[first * HASH_BYTES : (first + (1 << rest)) * HASH_BYTES]
        if len(wanted) != HASH_BYTES << rest:
            raise StoreCorrupt(f"the journal's tile {tile_name(level, tile)} is cut short")
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

    def index_of(self, position: int, newest: int) -> int | None:
        """Where the record at a position is in the tree, whose newest row is at `newest`.

        Positions grow with the tree, mostly by steady steps: the first guesses are by proportion.
        """
        low, high, guesses = 0, self.size, 3  # it is at or after low, and before high
        least, most = 0, newest
        while low < high:
            middle = (low + high) // 2
            if guesses and least < position <= most:
                guesses -= 1
                middle = low + (high - low) * (position - least) // (most - least + 1)
            row = self.row(min(middle, high - 1))
            if row is None:
                raise StoreCorrupt(f"the journal's tile {tile_name(0, middle // WIDTH)} is cut short")
            if row.position == position:
                return middle
            if row.position < position:
                low, least = middle + 1, row.position
            else:
                high, most = middle, row.position
        return None

    def appended(self, rows: Sequence[bytes]) -> dict[tuple[int, int], tuple[int, bytes]]:
        """The tiles that change with more rows: their version now, and their new body."""
        changed: dict[tuple[int, int], tuple[int, bytes]] = {}
        level, at, step = 0, self.size, ROW.size
        parts = list(rows)
        while parts:
            roots: list[bytes] = []
            for start, end in _tile_parts(at, len(parts)):
                number = (at + start) // WIDTH
                found = self._read(level, number)
                kept = b"" if found is None else found.body[: (at + start) % WIDTH * step]
                body = kept + b"".join(parts[start:end])
                changed[level, number] = (0 if found is None else found.version, body)
                if (at + end) % WIDTH == 0:
                    roots.append(
                        full_root(b"".join([body[i : i + HASH_BYTES] for i in range(0, len(body), step)]))
                    )
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
