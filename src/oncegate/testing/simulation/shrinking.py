"""Delta debugging: leaves out of a failing list whatever it does not need to fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")
TRIES_MAX: Final = 400


def shrink(items: tuple[T, ...], fails: Callable[[tuple[T, ...]], bool]) -> tuple[T, ...]:
    """The smallest list found by leaving out ever smaller parts; within a bounded number of tries."""
    parts, tries_left = 2, TRIES_MAX
    while len(items) > 1 and tries_left > 0:
        smaller = None
        for rest in _without_a_part(items, parts):
            tries_left -= 1
            if fails(rest):
                smaller = rest
                break
        if smaller is not None:
            items, parts = smaller, max(2, parts - 1)
        elif parts < len(items):
            parts = min(len(items), parts * 2)
        else:
            break
    return items


def _without_a_part(items: tuple[T, ...], parts: int) -> list[tuple[T, ...]]:
    size = -(-len(items) // parts)
    return [items[:start] + items[start + size :] for start in range(0, len(items), size)]
