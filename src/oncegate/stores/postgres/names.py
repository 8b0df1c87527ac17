"""Interned names on PostgreSQL: looked up once a session, written by whoever comes first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

NAMES_CACHED_MAX: Final = 4_096
_FIND: Final = "SELECT id, text FROM oncegate_name WHERE text = ANY(%s)"
_WRITE: Final = "INSERT INTO oncegate_name (text) SELECT unnest(%s::text[]) ON CONFLICT (text) DO NOTHING"
_READ: Final = "SELECT id, text FROM oncegate_name WHERE id = ANY(%s)"

Query = Callable[[str, tuple[Any, ...]], list[tuple[Any, ...]]]


class Names:
    """The names one session knows. Emptied when a transaction is undone."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._numbers: dict[str, int] = {}
        self._texts: dict[int, str] = {}

    def learn(self, texts: Iterable[str]) -> dict[str, int]:
        """Returns a mapping that has a number for each text, writing those that are new."""
        unknown = sorted({text for text in texts if text not in self._numbers})
        if unknown:
            self._remember(self._query(_FIND, (unknown,)))
            missing = [text for text in unknown if text not in self._numbers]
            if missing:
                self._query(_WRITE, (missing,))
                self._remember(self._query(_FIND, (missing,)))
        return self._numbers

    def find(self, text: str) -> int | None:
        """Returns a name's number if it was ever written."""
        if text not in self._numbers:
            self._remember(self._query(_FIND, ([text],)))
        return self._numbers.get(text)

    def texts(self, numbers: Iterable[int]) -> dict[int, str]:
        """Returns a mapping that has the text behind each number."""
        unknown = list({number for number in numbers if number not in self._texts})
        if unknown:
            self._remember(self._query(_READ, (unknown,)))
        return self._texts

    def forget(self) -> None:
        """Drops what is remembered, after an undone transaction."""
        self._numbers.clear()
        self._texts.clear()

    def _remember(self, rows: list[tuple[Any, ...]]) -> None:
        if len(self._numbers) + len(rows) > NAMES_CACHED_MAX:
            self.forget()
        for number, text in rows:
            self._numbers[text] = number
            self._texts[number] = text
