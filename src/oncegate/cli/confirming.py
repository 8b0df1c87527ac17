"""What acting on many things has in common on the command line: the question before, Ctrl-C during."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final, Protocol

from oncegate.cli.output import tell
from oncegate.errors import ConfigError

BAR_WIDTH: Final = 30
CLEAR_LINE: Final = "\r\x1b[2K"


class Cancels(Protocol):
    """A job that can be asked to stop."""

    def cancel(self) -> None:
        """Stops soon; what is done stays done."""


def is_confirmed(count: int) -> bool:
    """Asks for the count, which is not typed by accident."""
    if not sys.stdin.isatty():
        raise ConfigError("there is no terminal to ask on; nothing was changed. Confirm with --yes")
    tell(f"type {count} to go on:")
    return sys.stdin.readline().strip() == str(count)


class ProgressBar:
    """How far a job has come: a bar that is drawn over on a terminal, and nothing in a pipe."""

    def __init__(self, total: int, what: str = "") -> None:
        self._total, self._what = max(1, total), what
        self._is_live = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._drawn = ""

    def tell(self, done: int) -> None:
        """Draws the bar if it looks different; at the end it takes the bar away."""
        line = "" if done >= self._total else self._line(done)
        if not self._is_live or line == self._drawn:
            return
        self._drawn = line
        with suppress(OSError):  # the terminal is gone: the job goes on
            sys.stderr.write(f"{CLEAR_LINE}{line}")
            sys.stderr.flush()

    def _line(self, done: int) -> str:
        filled = done * BAR_WIDTH // self._total
        bar = "#" * filled + "." * (BAR_WIDTH - filled)
        text = f"[{bar}] {done * 100 // self._total:3}%  {done:,} of {self._total:,} {self._what}".rstrip()
        return text[: shutil.get_terminal_size().columns - 1]


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
