"""A recording as a file that is being written: bounded, readable by its owner only, ended by a last line.

Must never raise while arrivals are written: the first failure is logged, and from then on they are counted
as left out.
"""

from __future__ import annotations

import itertools
import logging
import os
from pathlib import Path
from typing import Final, Self

from oncegate.clock import from_wall_ms
from oncegate.model.timestamps import format_timestamp
from oncegate.recorder.recording import (
    ARRIVALS_MAX,
    VERSION,
    ArrivalLine,
    EndLine,
    Header,
    Line,
    SurfaceLine,
    encode_line,
)

BYTES_MAX: Final = 256 * 1024 * 1024  # of one file; a recorder that is forgotten must not fill a disk
END_BYTES: Final = 200  # room that is kept for the last line
MADE_BY: Final = "oncegate"
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
_log: Final = logging.getLogger("oncegate.recorder")


class RecordingFile:
    """A file under way. `began_ms` is the moment that all its times count from."""

    def __init__(self, path: Path, began_ms: int, bytes_max: int = BYTES_MAX, descriptor: int = -1) -> None:
        self.path = path
        self.began_ms = began_ms
        self.surfaces: set[str] = set()
        self._room = bytes_max - END_BYTES
        self._written = self._left_out = 0
        self._descriptor = descriptor

    @classmethod
    def begun_in(cls, folder: Path, began_ms: int, bytes_max: int = BYTES_MAX) -> Self:
        """Begins a file of this process in a folder; where that cannot be, everything is left out."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path, descriptor = _created(folder, began_ms)
        except OSError as error:
            _log.warning("arrivals are not recorded: %s: %s", folder, error.strerror)
            return cls(folder, began_ms, bytes_max)
        file = cls(path, began_ms, bytes_max, descriptor)
        file.begin()
        return file

    @classmethod
    def begun_at(cls, path: Path, began_ms: int, bytes_max: int = BYTES_MAX) -> Self:
        """Begins a new file; raises OSError if there is one already, or none can be."""
        file = cls(path, began_ms, bytes_max, os.open(path, _FLAGS, 0o600))
        file.begin()
        return file

    def begin(self) -> None:
        """Writes the first line."""
        began_at = format_timestamp(from_wall_ms(self.began_ms))
        self.write(Header(VERSION, began_at, MADE_BY))

    @property
    def next_number(self) -> int:
        """The number of the next arrival."""
        return self._written + 1

    @property
    def left_out(self) -> int:
        """How many arrivals were not written."""
        return self._left_out

    def begin_surface(self, line: SurfaceLine) -> None:
        """Says what is to be known of a surface, before its first arrival."""
        self.surfaces.add(line.name)
        self.write(line)

    def add(self, arrival: ArrivalLine) -> int:
        """Writes an arrival and returns its number; 0 if it had to be left out."""
        if self._written < ARRIVALS_MAX and self.write(arrival):
            self._written += 1
            return self._written
        if not self._left_out and self._descriptor >= 0:
            _log.warning("%s is full; arrivals from here on are left out", self.path)
        self._left_out += 1
        return 0

    def write(self, line: Line) -> bool:
        """Writes a line in one piece; False if there is no room for it, or no file."""
        text = encode_line(line)
        if self._descriptor < 0 or len(text) > self._room:
            return False
        self._room -= len(text)
        return self._put(text)

    def _put(self, text: bytes) -> bool:
        try:
            if os.write(self._descriptor, text) == len(text):
                return True
            reason = "no space"
        except OSError as error:
            reason = error.strerror or type(error).__name__
        _log.warning("%s cannot be written any more: %s", self.path, reason)
        self._shut()
        return False

    def close(self) -> None:
        """Writes the last line."""
        if self._descriptor >= 0:
            self._put(encode_line(EndLine(self._written, self._left_out)))
            self._shut()

    def abandon(self) -> None:
        """Lets go of a file that another process writes."""
        self._shut()

    def _shut(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1


def _created(folder: Path, began_ms: int) -> tuple[Path, int]:
    stamp = from_wall_ms(began_ms).strftime("%Y%m%dT%H%M%SZ")
    for attempt in itertools.count(1):
        path = folder / f"arrivals-{stamp}-{os.getpid()}-{attempt}.jsonl"
        try:
            return path, os.open(path, _FLAGS, 0o600)
        except FileExistsError:
            continue
    raise AssertionError("an endless count has ended")
