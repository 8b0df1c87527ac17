"""What async handlers are given to await: a forgotten `await` is told before any outcome is recorded.

A coroutine that nobody awaits runs nothing, and Python only prints a warning. An outcome recorded after
that would say that an effect, a step or a write was done which never began.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from inspect import CORO_CREATED, getcoroutinestate
from typing import Any, TypeAlias, TypeVar

from oncegate.errors import UsageError

T = TypeVar("T")
Given: TypeAlias = list[tuple[str, Coroutine[Any, Any, Any]]]  # what it is called, and what is awaited


def give(given: Given, what: str, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
    """Hands work to a handler, and keeps in mind that it did, until the work has ended."""
    if given and _has_ended(given[-1][1]):
        given.pop()
    given.append((what, work))
    return work


def check_ended(given: Given) -> None:
    """Raises UsageError unless everything that was given to await has ended."""
    for what, work in given:
        if not _has_ended(work):
            raise _not_ended(what, work)


def _has_ended(work: Coroutine[Any, Any, Any]) -> bool:
    return getattr(work, "cr_frame", None) is None


def _not_ended(what: str, work: Coroutine[Any, Any, Any]) -> UsageError:
    if getcoroutinestate(work) != CORO_CREATED or _is_scheduled(work):
        return UsageError(f"{what} has not ended yet: await it before the handler returns or commits")
    work.close()  # or Python warns of it besides
    return UsageError(f"{what} was not awaited, so nothing of it was run: write `await {what}`")


def _is_scheduled(work: Coroutine[Any, Any, Any]) -> bool:
    """Whether a task of this loop is about to run it."""
    try:
        return any(task.get_coro() is work for task in asyncio.all_tasks())
    except RuntimeError:
        return False
