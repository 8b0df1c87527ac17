"""Alarms by a command: started without a shell, with the notice as JSON on its standard input."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Final

from oncegate.errors import ConfigError
from oncegate.signals.alarms import AlarmNotice
from oncegate.signals.notifiers import notice_body

TIMEOUT_SECONDS: Final = 10.0


class CommandNotifier:
    """Runs a program with its arguments, once a notice; any end but 0 is an error, and tried again."""

    def __init__(self, command: Sequence[str], *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        if isinstance(command, str) or not command:
            raise ConfigError("a command for alarms is a list: the program, then its arguments; no shell")
        self._command, self._timeout = tuple(command), timeout_seconds

    def notify(self, notice: AlarmNotice) -> None:
        """Runs it; one that takes too long is ended."""
        try:
            ended = subprocess.run(
                self._command, input=notice_body(notice), timeout=self._timeout, check=False,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise ConnectionError(f"the command for alarms took over {self._timeout:g} s") from None
        except OSError as error:
            raise ConnectionError(
                f"the command for alarms could not be started: {error.strerror}"
            ) from None
        if ended.returncode:
            raise ConnectionError(f"the command for alarms ended with {ended.returncode}")
