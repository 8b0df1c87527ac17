"""What a flow may ask of whoever drives it, besides operations on the ledger.

Flows (admit, effect, settle) are generators without any I/O of their own: they yield one of these or an
`Operation`, and are resumed with the answer. That is why threads and tasks share one copy of the logic.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from enum import Enum
from typing import Any, Final, TypeAlias, TypeVar

from msgspec import Struct

from oncegate.errors import UsageError

T = TypeVar("T")
Flow: TypeAlias = Generator[Any, Any, T]


class NotCalled(UsageError):
    """A function could not be called at all: certainly nothing happened."""


class Where(Enum):
    """Which threads a plain function may take when a task asks for it.

    Kept apart so that handlers waiting for their turn to write cannot starve the one whose turn it is.
    """

    CALL = "call"
    TURN = "turn"
    STATEMENT = "statement"
    HERE = "here"  # none: the calling thread or task itself, for what a user's own connection is part of


_CALL: Final = Where.CALL


class Invoke(Struct, frozen=True):
    """Call this: a user's function, or something of ours that blocks."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    keywords: dict[str, Any] = {}
    where: Where = _CALL


class Pause(Struct, frozen=True):
    """Wait this long."""

    seconds: float
