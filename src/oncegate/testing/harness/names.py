"""Finds the functions that a handler calls by their names, and replaces them for the time of a trial."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CellType
from typing import Any

Wrap = Callable[[Callable[..., Any], str], Callable[..., Any]]


@contextmanager
def replaced(handler: Callable[..., Any], names: list[str], wrap: Wrap) -> Iterator[set[str]]:
    """Replaces what the handler calls by these names, where its module or closure has such a function."""
    places = [(name, place) for name in names if (place := _place(handler, name)) is not None]
    before = [(place, place.get()) for _, place in places]
    try:
        for name, place in places:
            place.put(wrap(place.get(), name))
        yield {name for name, _ in places}
    finally:
        for place, value in before:
            place.put(value)


class _Global:
    def __init__(self, names: dict[str, Any], name: str) -> None:
        self._names, self._name = names, name

    def get(self) -> Any:
        return self._names[self._name]

    def put(self, value: Any) -> None:
        self._names[self._name] = value


class _Cell:
    def __init__(self, cell: CellType) -> None:
        self._cell = cell

    def get(self) -> Any:
        return self._cell.cell_contents

    def put(self, value: Any) -> None:
        self._cell.cell_contents = value


def _place(handler: Any, name: str) -> _Global | _Cell | None:
    code, names = getattr(handler, "__code__", None), getattr(handler, "__globals__", {})
    if code is None:
        return None
    if name in code.co_freevars:
        cell = _Cell(handler.__closure__[code.co_freevars.index(name)])
        return cell if callable(cell.get()) else None
    return _Global(names, name) if callable(names.get(name)) else None
