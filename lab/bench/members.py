"""A process that is measured beside others, at our end of the line: what it says, and how it ended.

Every wait has a limit, and whatever is not an answer is one error with the exit code and the last words.
"""

from __future__ import annotations

import queue
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Self

from lab import ROOT
from oncegate.errors import ConfigError

END_SECONDS: Final = 10.0  # one that was hung up on has only to close its ledger
KILLED_SECONDS: Final = 60.0  # the system may be busy with what it leaves behind
LAST_LINES: Final = 3
LAST_LINE_MAX: Final = 200


class Member:
    """One process, as a with block: it is over after it."""

    def __init__(self, command: Sequence[str]) -> None:
        self._said: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as said:
            for line in said:
                self._said.put(line)
        self._said.put("")

    def __enter__(self) -> Self:
        return self

    def hear(self, within_seconds: float) -> str:
        """The next line that it says."""
        try:
            line = self._said.get(timeout=within_seconds)
        except queue.Empty:
            silent = f"a process that was to be measured said nothing within {within_seconds:g} s"
            raise ConfigError(f"{silent}; {self._last_words()}") from None
        if not line:
            raise self._gone()
        return line.strip()

    def tell(self, line: str) -> None:
        """Says one line to it."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
        except OSError:
            raise self._gone() from None

    def _gone(self) -> ConfigError:
        try:
            how = f"ended with exit code {self._process.wait(END_SECONDS)}"
        except subprocess.TimeoutExpired:
            how = "hung up and did not end"
        return ConfigError(f"a process that was to be measured {how}; {self._last_words()}")

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = [line.strip()[:LAST_LINE_MAX] for line in self._errors if line.strip()]
        return "its last words: " + " | ".join(lines[-LAST_LINES:]) if lines else "it gave no reason"

    def __exit__(self, *_: object) -> None:
        """Ends the process, by hanging up first."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(KILLED_SECONDS)
        finally:
            self._reader.join(END_SECONDS)
            self._errors.close()
