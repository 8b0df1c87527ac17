"""What a checker found."""

from __future__ import annotations

from msgspec import Struct


class Violation(Struct, frozen=True):
    """A promise that was broken in a run: which, who found it, and how it showed."""

    invariant: str
    checker: str
    text: str

    def __str__(self) -> str:
        return f"{self.invariant} {self.checker.replace('_', ' ')}: {self.text}"
