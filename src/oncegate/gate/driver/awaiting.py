"""What async handlers await. A forgotten `await` is reported before any outcome is recorded.

A coroutine that is never awaited runs nothing, and Python only prints a warning. An outcome recorded after
that would say that an effect, a step or a write was done which never began. Keeps names, never the work
itself: a task that is destroyed must go at once, and not at the next garbage collection.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeAlias, TypeVar

from oncegate.errors import UsageError
from oncegate.gate.driver.requests import Flow

T = TypeVar("T")
Given: TypeAlias = list[list[str]]  # what has not ended: what it is called, and what is to be said of it

_NOT_BEGUN = "was not awaited, so nothing of it was run: write `await {what}`"
_NOT_ENDED = "has not ended yet: await it before the handler returns or commits"


def give(given: Given, what: str, flow: Flow[T]) -> Flow[T]:
    """Hands work to a handler, and keeps in mind that it did, until the work has ended."""
    entry = [what, _NOT_BEGUN]
    given.append(entry)
    return _kept_in_mind(given, entry, flow)


def _kept_in_mind(given: Given, entry: list[str], flow: Flow[T]) -> Flow[T]:
    entry[1] = _NOT_ENDED
    try:
        return (yield from flow)
    finally:
        _forget(given, entry)


def give_statement(given: Given, what: str, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
    """The same for one statement of a transaction."""
    entry = [what, _NOT_BEGUN]
    given.append(entry)
    return _run(given, entry, work)


async def _run(given: Given, entry: list[str], work: Coroutine[Any, Any, T]) -> T:
    entry[1] = _NOT_ENDED
    try:
        return await work
    finally:
        _forget(given, entry)


def _forget(given: Given, entry: list[str]) -> None:
    for place, one in enumerate(given):
        if one is entry:
            del given[place]
            return


def check_ended(given: Given) -> None:
    """Raises UsageError unless everything that was given to await has ended."""
    for what, told in given:
        raise UsageError(f"{what} {told.format(what=what)}")
