"""What a flow may ask of its driver, besides operations on the ledger.

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


class ThreadCall:
    """A call that a thread makes for a task, and the callback for its end if the task waits no more."""

    __slots__ = ("_call", "_told", "_unbegun", "_untold", "has_ended", "value")

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self.has_ended = False
        self._unbegun = [None]  # taken out by the thread that begins, or by the task that gives up
        self._told: Callable[[ThreadCall], None] | None = None
        self._untold = [None]  # taken out by whoever tells; thread and task may both be about to
        self.value: Any = NO_VALUE

    def __call__(self) -> Any:
        """Makes the call, in the thread, unless its task gave up before."""
        if self.take_start():
            return self._run()
        return NO_VALUE

    def take_start(self) -> bool:
        """Takes the one right to start the call. The task that gets it has given the call up."""
        try:
            self._unbegun.pop()
        except IndexError:
            return False
        return True

    def _run(self) -> Any:
        try:
            self.value = value = self._call()
        finally:
            self.has_ended = True
            self._tell()
        return value

    def when_ended(self, told: Callable[[ThreadCall], None]) -> None:
        """Tells of its end, in the thread, or at once if it has ended."""
        self._told = told
        if self.has_ended:
            self._tell()

    def _tell(self) -> None:
        if self._told is None:
            return
        try:
            self._untold.pop()
        except IndexError:
            return
        self._told(self)


NO_VALUE: Final = object()  # the call has not returned, or raised


class Invoke(Struct, eq=False):
    """Call this: a user's function, or something of ours that blocks.

    `left` is the thread's call, if it goes on after the task that asked for it was cancelled. `is_async`
    is None where it is not known yet: the caller of the function finds out.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    keywords: dict[str, Any] = {}
    where: Where = _CALL
    left: ThreadCall | None = None
    is_async: bool | None = None


class Pause(Struct, frozen=True):
    """Wait this long."""

    seconds: float
