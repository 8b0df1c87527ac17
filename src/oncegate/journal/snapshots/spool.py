"""The spool: objects of one belief, sorted by the hash of their id in a temporary file, cut into parts.

An object stays in its part as long as the number of parts is the same, so that a small change changes few
parts. Memory is bounded by the page cache of the temporary database.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Final, Self

from msgspec import Struct

from oncegate.errors import SnapshotError
from oncegate.journal.snapshots.beliefs import BeliefObject, id_of

PER_PART: Final = 256  # objects on average
BITS_MAX: Final = 16
_INSERT: Final = "INSERT INTO object (place, id, body, content) VALUES (?, ?, ?, ?)"
_SORTED: Final = "SELECT place, id, body FROM object ORDER BY place, id"
_DOUBLED: Final = "SELECT id FROM object GROUP BY place, id HAVING count(*) > 1 LIMIT 1"
_SAME: Final = (
    "SELECT coalesce(sum(n - 1), 0) FROM (SELECT count(*) AS n FROM object GROUP BY content HAVING n > 1)"
)


class SpooledPart(Struct, frozen=True):
    """One part: its place, how many objects it has, and their lines."""

    place: int
    count: int
    body: bytes

    @property
    def digest(self) -> str:
        """What the part is called by."""
        return sha256(self.body).hexdigest()


class Spool:
    """Takes objects in any order; gives parts in one."""

    def __init__(self) -> None:
        # Used by one thread at a time, but not always the same one.
        self._file = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self._file.execute("PRAGMA journal_mode = OFF")
        self._file.execute("PRAGMA cache_size = -8192")  # 8 MB; more goes to disk
        self._file.execute("CREATE TABLE object (place INTEGER, id TEXT, body BLOB, content BLOB)")
        self.count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, objects: Iterable[BeliefObject]) -> None:
        """Adds objects."""
        rows = [(place_of(one.id), one.id, one.body, one.content) for one in objects]
        self._file.execute("BEGIN")
        self._file.executemany(_INSERT, rows)
        self._file.execute("COMMIT")
        self.count += len(rows)

    def check(self, belief: str) -> None:
        """Raises SnapshotError where two objects have one id."""
        self._file.execute("CREATE INDEX by_place ON object (place, id)")
        found = self._file.execute(_DOUBLED).fetchone()
        if found is not None:
            raise SnapshotError(f"belief {belief}: two objects have the id {id_of(found[0])!r}")

    def content_duplicates(self) -> int:
        """How many objects have the content of another one."""
        return int(self._file.execute(_SAME).fetchone()[0])

    @property
    def bits(self) -> int:
        """How many bits of the hash name a part."""
        return min(BITS_MAX, max(0, (self.count // PER_PART).bit_length()))

    def parts(self, bits: int | None = None) -> Iterator[SpooledPart]:
        """The parts that have objects, in order."""
        shift = 32 - (self.bits if bits is None else bits)
        lines: list[bytes] = []
        place = -1
        for at, identity, body in self._file.execute(_SORTED):
            if at >> shift != place:
                if lines:
                    yield SpooledPart(place, len(lines), b"".join(lines))
                place, lines = at >> shift, []
            lines.append(b"[%b,%b]\n" % (identity.encode(), body))
        if lines:
            yield SpooledPart(place, len(lines), b"".join(lines))

    def holders(self, contents: set[bytes]) -> dict[bytes, list[str]]:
        """The ids of objects by content, for the contents that are asked for."""
        found: dict[bytes, list[str]] = {}
        for content, identity in self._file.execute("SELECT content, id FROM object ORDER BY place, id"):
            if content in contents:
                found.setdefault(content, []).append(identity)
        return found


def place_of(identity: str) -> int:
    """Where an object belongs: 32 bits of the hash of its id."""
    return int.from_bytes(sha256(identity.encode()).digest()[:4], "big")
