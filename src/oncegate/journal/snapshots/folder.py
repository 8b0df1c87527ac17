"""Snapshots in a local folder: each file is written whole, under a name that does not exist yet.

A file is written beside its name, flushed, and linked to it: a crash leaves no half file under a name. The
operating system's owner of the folder can still change it. The chain and the signatures show that.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from oncegate.errors import ConfigError, SnapshotError, SnapshotFork

_GET_FLAGS, _SET_FLAGS, _IMMUTABLE = 0x80086601, 0x40086602, 0x10  # ioctls of Linux file systems
_HALF: Final = ".half-"


class Folder:
    """A folder that nothing is ever replaced in."""

    def __init__(self, path: str, *, immutable: bool = False) -> None:
        self._root = Path(path).absolute()
        self._immutable = immutable

    @property
    def address(self) -> str:
        """The folder."""
        return f"file://{self._root}"

    @property
    def promise(self) -> str:
        """What a folder can promise."""
        if self._immutable:
            return "immutable files: only root can change them, and a change is evident"
        return "evident, not prevented: a change is found by `oncegate snapshots verify`"

    def check(self) -> None:
        """The folder can be written, and takes the attribute if that is asked for."""
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            for half in self._root.glob(f"{_HALF}*"):
                half.unlink(missing_ok=True)  # of a process that died
        except OSError as error:
            raise ConfigError(f"snapshots: {self._root} cannot be used: {error.strerror}") from None

    def put(self, name: str, body: bytes) -> bool:
        """Writes a whole file under a new name."""
        path = self._root / name
        half = self._root / f"{_HALF}{secrets.token_hex(8)}"
        try:
            if path.exists():
                return self._same(path, body)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._write(half, body)
            os.link(half, path)  # fails where the name exists
            self._protect(path)
        except FileExistsError:
            return self._same(path, body)
        except OSError as error:
            raise SnapshotError(f"{path} cannot be written: {error.strerror}; no snapshot taken") from None
        finally:
            half.unlink(missing_ok=True)
        return True

    def _write(self, half: Path, body: bytes) -> None:
        handle = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444)
        with os.fdopen(handle, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())

    def _protect(self, path: Path) -> None:
        for folder in (path.parent, self._root):
            handle = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        if self._immutable:
            _make_immutable(path)

    def _same(self, path: Path, body: bytes) -> bool:
        if path.read_bytes() != body:
            raise SnapshotFork(f"{path} exists with another content: another ledger writes there, or it"
                               " was changed; give each ledger its own folder")  # fmt: skip
        return False

    def get(self, name: str) -> bytes:
        """Reads a file."""
        try:
            return (self._root / name).read_bytes()
        except OSError as error:
            raise SnapshotError(f"{self._root / name} cannot be read: {error.strerror}") from None

    def has(self, name: str) -> bool:
        """Whether there is such a file."""
        return (self._root / name).exists()

    def names(self, prefix: str) -> Iterator[str]:
        """The files of a sub-folder, in order."""
        folder = self._root / prefix
        if folder.is_dir():
            yield from sorted(f"{prefix}/{path.name}" for path in folder.iterdir())

    def keep_on(self, name: str, kept_until_day: int) -> int:
        """Files are kept for ever."""
        return 0

    def try_to_destroy(self, name: str) -> str | None:
        """Deletes a file if that is possible."""
        with suppress(OSError):
            (self._root / name).chmod(0o600)
        try:
            (self._root / name).unlink()
        except OSError as error:
            return error.strerror
        return None


def _make_immutable(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        (flags,) = struct.unpack("l", fcntl.ioctl(handle, _GET_FLAGS, struct.pack("l", 0)))
        fcntl.ioctl(handle, _SET_FLAGS, struct.pack("l", flags | _IMMUTABLE))
    except OSError as error:
        raise SnapshotError(
            f"{path}: immutable=yes is not possible here: {error.strerror}; it needs root and a file system"
            " with this attribute"
        ) from None
    finally:
        os.close(handle)
