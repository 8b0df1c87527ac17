"""Where signed heads go outside of the ledger: a folder that is only added to, the log, an endpoint.

A head outside shows what a ledger cannot show by itself: that it went back, or was rewritten with the key.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from oncegate.errors import ConfigError, JournalForked
from oncegate.journal.notes import Checkpoint
from oncegate.journal.tiles import SealState, Tiles, head_name

_log: Final = logging.getLogger("oncegate.journal")
NOTE_BYTES_MAX: Final = 100_000


class HeadDestination(Protocol):
    """Somewhere that heads are published to."""

    def check(self, state: SealState, tiles: Tiles) -> None:
        """Raises JournalForked where a head that is there does not fit the ledger's tree."""

    def publish(self, state: SealState) -> None:
        """Brings the newest head there; a repeat changes nothing."""


class HeadFolder:
    """A folder with one file a head. Files are never replaced; the owner of the folder still could."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def check(self, state: SealState, tiles: Tiles) -> None:
        """Compares the newest head of the folder with the tree."""
        newest = self.newest()
        if newest is not None:
            check_head(newest[1], state, tiles, str(newest[0]))

    def newest(self) -> tuple[Path, str] | None:
        """The newest head of the folder."""
        try:
            names = sorted(
                one for one in self._path.iterdir() if one.name.isdigit() and len(one.name) == 20
            )
            return (names[-1], read_note(names[-1])) if names else None
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(f"cannot read heads in {self._path}: {error.strerror}") from None

    def publish(self, state: SealState) -> None:
        """Writes the head's file; one with another content is a fork."""
        path = self._path / head_name(state.size)
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            self._write(path, state.head)
        except FileExistsError:
            if Checkpoint.parse(read_note(path)) != Checkpoint.parse(state.head):
                raise JournalForked(f"{path} holds another head of the same size") from None
        except OSError as error:
            raise ConfigError(f"cannot publish the head to {path}: {error.strerror}") from None

    def _write(self, path: Path, head: str) -> None:
        """Whole or not at all: a crash leaves a file that is no head, under another name."""
        part = self._path / f".{path.name}.{os.getpid()}"
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o444)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(head.encode())
                file.flush()
                os.fsync(file.fileno())
            os.link(part, path)
        finally:
            part.unlink(missing_ok=True)
        folder = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


class HeadLog:
    """One line of the log `oncegate.journal` a head, for a log that leaves the machine."""

    def check(self, state: SealState, tiles: Tiles) -> None:
        """Nothing can be read back."""

    def publish(self, state: SealState) -> None:
        """Writes the head in one line."""
        _log.info("journal head %s", " | ".join(line for line in state.head.split("\n") if line))


class HeadEndpoint:
    """An address that heads are posted to."""

    def __init__(self, post: Callable[[bytes], None]) -> None:
        self._post = post

    def check(self, state: SealState, tiles: Tiles) -> None:
        """Nothing can be read back."""

    def publish(self, state: SealState) -> None:
        """Posts the head as text."""
        self._post(state.head.encode())


def check_head(note: str, state: SealState, tiles: Tiles, where: str) -> None:
    """Raises JournalForked where a head does not fit the tree."""
    head = Checkpoint.parse(note)
    if head.origin != state.origin and state.head:
        raise JournalForked(f"{where} is a head of {head.origin}, and this journal is {state.origin}")
    if head.size > state.size:
        raise JournalForked(
            f"{where} has {head.size} records, this ledger {state.size}: the ledger went back"
        )
    if tiles.root(head.size) != head.root:
        raise JournalForked(f"{where} does not fit the first {head.size} records of this ledger")


def read_note(path: Path) -> str:
    """Reads a head from a file."""
    with path.open("rb") as file:
        return file.read(NOTE_BYTES_MAX).decode("utf-8", "replace")


def destinations_of(text: str, poster: Callable[[str], Callable[[bytes], None]]) -> list[HeadDestination]:
    """Reads `file:FOLDER`, `log:` and `https://…`, with commas between them."""
    found: list[HeadDestination] = []
    for part in (one.strip() for one in text.split(",")):
        if part.startswith("file:") and part[5:]:
            found.append(HeadFolder(Path(part[5:])))
        elif part == "log:":
            found.append(HeadLog())
        elif part.startswith(("https://", "http://")):
            found.append(HeadEndpoint(poster(part)))
        else:
            raise ConfigError(f"heads go to file:FOLDER, log: or https://…, not to {part[:60]!r}")
    return found
