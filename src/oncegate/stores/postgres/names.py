"""Interned names on PostgreSQL: looked up once a session, written by the first process that needs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from oncegate.stores.shared.unused_names import NAMES_CACHED_MAX, NUMBERS_KEPT_MS

_FIND: Final = "SELECT id, text, unused_since IS NULL FROM oncegate_name WHERE text = ANY(%s)"
# A name that is marked as unused is in use again from here on.
_WRITE: Final = """
INSERT INTO oncegate_name AS name (text) SELECT unnest(%s::text[])
ON CONFLICT (text) DO UPDATE SET unused_since = NULL, unused_xact = NULL WHERE name.unused_since IS NOT NULL
"""
_READ: Final = "SELECT id, text FROM oncegate_name WHERE id = ANY(%s)"

Query = Callable[[str, tuple[Any, ...]], list[tuple[Any, ...]]]


class Names:
    """The names one session knows. Emptied when a transaction is undone.

    `write` keeps new names out of long transactions: others who need the same name would wait for them.
    """

    def __init__(self, query: Query, write: Query | None = None) -> None:
        self._query = query
        self._write = write or query
        self._numbers: dict[str, int] = {}
        self._texts: dict[int, str] = {}
        self._kept_since_ms: int | None = None

    def expire(self, now_ms: int) -> None:
        """Drops numbers that were kept for long; asked before each transaction."""
        if self._kept_since_ms is None or not 0 <= now_ms - self._kept_since_ms < NUMBERS_KEPT_MS:
            self._numbers.clear()
            self._kept_since_ms = now_ms

    def learn(self, texts: Iterable[str]) -> dict[str, int]:
        """Returns a mapping that has a number for each text, writing those that are new."""
        wanted = set(texts)
        if not wanted <= self._numbers.keys():
            self._make_room(len(wanted))
            self._look_up(sorted(wanted))
            missing = sorted(wanted - self._numbers.keys())
            if missing:
                self._write(_WRITE, (missing,))
                self._look_up(missing)
        return self._numbers

    def maybe(self, text: str | None) -> int | None:
        """Returns the number of a text that may be absent, writing it if it is new."""
        return None if text is None else self.learn((text,))[text]

    def find(self, text: str) -> int | None:
        """Returns a name's number if it was ever written."""
        if text in self._numbers:
            return self._numbers[text]
        self._make_room(1)
        return self._look_up([text]).get(text)

    def texts(self, numbers: Iterable[int]) -> dict[int, str]:
        """Returns a mapping that has the text behind each number."""
        wanted = set(numbers)
        if not wanted <= self._texts.keys():
            self._make_room(len(wanted))
            self._remember(self._query(_READ, (list(wanted),)))
        return self._texts

    def forget(self) -> None:
        """Drops what is remembered, after an undone transaction."""
        self._numbers.clear()
        self._texts.clear()

    def _make_room(self, coming: int) -> None:
        """Forgets before anything is looked up, never in between: what is asked for must be there."""
        if len(self._numbers) + coming > NAMES_CACHED_MAX:
            self.forget()

    def _look_up(self, texts: list[str]) -> dict[str, int]:
        """Finds numbers, and remembers those of names that are not marked as unused."""
        rows = self._query(_FIND, (texts,))
        self._remember([(number, text) for number, text, is_kept in rows if is_kept])
        return {text: number for number, text, _ in rows}

    def _remember(self, rows: list[tuple[Any, ...]]) -> None:
        for number, text in rows:
            self._numbers[text] = number
            self._texts[number] = text
