"""Forks and open connections: connections are closed before a fork and opened again after it.

Neither process may go on with a connection that both have. Must never make a fork fail.
"""

from __future__ import annotations

import os
from typing import Final, Protocol
from weakref import WeakSet


class ForkAware(Protocol):
    """Holds connections of a process, known by its number."""

    pid: int

    def before_fork(self) -> bool:
        """Closes them; tells whether it could."""

    def after_fork_in_parent(self) -> None:
        """Goes on."""

    def after_fork_in_child(self) -> None:
        """Starts again."""


class Process:
    """The process this is, known without asking the system each time."""

    pid = os.getpid()


here: Final = Process()
holders: Final[WeakSet[ForkAware]] = WeakSet()
_paused: Final[list[ForkAware]] = []


def _before_fork() -> None:
    mine = [holder for holder in holders if holder.pid == os.getpid()]
    _paused.extend(holder for holder in mine if holder.before_fork())


def _after_fork_in_parent() -> None:
    while _paused:
        _paused.pop().after_fork_in_parent()


def _after_fork_in_child() -> None:
    here.pid = os.getpid()
    while _paused:
        _paused.pop().after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
