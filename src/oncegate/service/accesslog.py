"""The line for each answered request, written cheaply: gathered for a moment, then one write for all.

They are the only lines that come for every request, and a record of Python's own logging costs about eight
times as much. Must never hold more than route, status and key.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from typing import Final, Protocol, TypeAlias

from msgspec.json import Encoder

from oncegate.clock import Clock, from_wall_ms

FLUSH_SECONDS: Final = 0.05  # so much of these lines may be lost when the process is killed
LINES_MAX: Final = 1_000

log: Final = logging.getLogger("oncegate.service")
_encode: Final = Encoder().encode
_Answered: TypeAlias = tuple[int, str, int, str | None]  # when, at which route, how, and which key


class AccessLog(Protocol):
    """Where answered requests are logged."""

    def answered(self, route: str, status: int, key: str | None) -> None:
        """Tells of one answer."""

    def flush(self) -> None:
        """Writes what was gathered."""


class PlainLog:
    """Tells Python's logging, record by record: for programs with a logging of their own."""

    def answered(self, route: str, status: int, key: str | None) -> None:
        """Tells of one answer."""
        if log.isEnabledFor(logging.INFO):
            log.info("answered", extra={"oncegate": {"route": route, "status": status, "key": key}})

    def flush(self) -> None:
        """Nothing is gathered."""


class GatheredLog:
    """Writes JSON lines to standard error, as `logs.py` formats them, several at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lines: list[_Answered] = []
        self._flushing: asyncio.TimerHandle | None = None
        self._second, self._shown = -1, ""

    def answered(self, route: str, status: int, key: str | None) -> None:
        """Keeps a line, to be written in a moment; from the serving loop only."""
        self._lines.append((self._clock.wall_ms(), route, status, key))
        if len(self._lines) >= LINES_MAX:
            self.flush()
        elif self._flushing is None:
            self._flushing = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)

    def _text(self, lines: list[_Answered]) -> str:
        """All lines, without a call for each: there are many."""
        return "".join(
            [
                f'{{"at":"{self._shown if at_ms // 1000 == self._second else self._begin(at_ms // 1000)}'
                f'.{at_ms % 1000:03d}+00:00","level":"info","logger":"oncegate.service",'
                f'"message":"answered","route":"{route}","status":{status},"key":{key}}}\n'
                for (at_ms, route, status, _), key in zip(lines, _shown_keys(lines), strict=True)
            ]
        )

    def _begin(self, second: int) -> str:
        """How a second's times begin."""
        self._second = second
        self._shown = from_wall_ms(second * 1000).isoformat(timespec="seconds")[:19]
        return self._shown

    def flush(self) -> None:
        """Writes what was gathered; a log without a reader does not end the service."""
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        lines, self._lines = self._lines, []
        if lines:
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(self._text(lines))
                sys.stderr.flush()


def _shown_keys(lines: list[_Answered]) -> list[str]:
    """Keys are hex digits; whatever else might stand there is written as JSON writes it."""
    keys = [key for _, _, _, key in lines]
    together = "".join([key for key in keys if key is not None])
    if together.isascii() and together.isalnum():
        return ["null" if key is None else f'"{key}"' for key in keys]
    return [_encode(key).decode() for key in keys]
