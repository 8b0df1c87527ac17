"""Interned names: surfaces, tenants, downstreams and actors are stored once and referred to by number.

A session keeps what it has seen. Must be emptied when a transaction is undone, because a name it wrote
may have been undone with it.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from oncegate.stores.shared.unused_names import NAMES_CACHED_MAX, NUMBERS_KEPT_MS

_FIND: Final = "SELECT id, unused_since FROM oncegate_name WHERE text = ?"
_UNMARK: Final = "UPDATE oncegate_name SET unused_since = NULL WHERE id = ?"


class Names:
    """The names one session knows."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.known: dict[str, int] = {}  # read by those who ask for many; others ask `number`
        self._texts: dict[int, str] = {}
        self.kept_from_ms = self.kept_until_ms = 0

    def expire(self, now_ms: int) -> None:
        """Drops numbers that were kept for long.

        Each transaction compares its time with these two before it uses any number.
        """
        self.known.clear()
        self.kept_from_ms, self.kept_until_ms = now_ms, now_ms + NUMBERS_KEPT_MS

    def number(self, text: str) -> int:
        """Returns a name's number, writing the name if it is new."""
        known = self.known.get(text)
        return known if known is not None else self._write(text)

    def find(self, text: str) -> int | None:
        """Returns a name's number if it was ever written."""
        row = self._connection.execute(_FIND, (text,)).fetchone()
        return None if row is None else int(row[0])

    def text(self, number: int) -> str:
        """Returns the name behind a number."""
        known = self._texts.get(number)
        if known is not None:
            return known
        (text,) = self._connection.execute(
            "SELECT text FROM oncegate_name WHERE id = ?", (number,)
        ).fetchone()
        self._remember(text, number)
        return str(text)

    def forget(self) -> None:
        """Drops what is remembered, after an undone transaction."""
        self.known.clear()
        self._texts.clear()

    def _write(self, text: str) -> int:
        number, unused_since = self._connection.execute(_FIND, (text,)).fetchone() or (None, None)
        if number is None:
            cursor = self._connection.execute("INSERT INTO oncegate_name (text) VALUES (?)", (text,))
            number = int(cursor.lastrowid or 0)
        elif unused_since is not None:
            self._connection.execute(_UNMARK, (number,))
        self._remember(text, number)
        return number

    def _remember(self, text: str, number: int) -> None:
        if len(self.known) >= NAMES_CACHED_MAX:
            self.forget()
        self.known[text] = number
        self._texts[number] = text
