"""What acting on many things has in common on the command line: the question before, Ctrl-C during."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

from oncegate.cli.output import tell
from oncegate.errors import ConfigError


class Cancels(Protocol):
    """A job that can be asked to stop."""

    def cancel(self) -> None:
        """Stops soon; what is done stays done."""


def is_confirmed(count: int) -> bool:
    """Asks for the count, which nobody types by accident."""
    if not sys.stdin.isatty():
        raise ConfigError("nobody can be asked here; nothing was changed. Confirm with --yes")
    tell(f"type {count} to go on:")
    return sys.stdin.readline().strip() == str(count)


class Tenths:
    """Tells how far a job has come, about every tenth of the way and not at its end."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._told = 0

    def tell(self, done: int) -> None:
        """Tells it if it is time."""
        if done < self._total and (done - self._told) * 10 >= self._total:
            self._told = done
            tell(f"{done:,} of {self._total:,}")


@contextmanager
def cancelling(job: Cancels) -> Iterator[None]:
    """Ctrl-C asks the job to stop; a second one ends the command at once."""

    def cancel(signum: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        job.cancel()
        tell("stopping after this batch")

    before = signal.signal(signal.SIGINT, cancel)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
