"""Finds the files of an audit: bounded, without following loops of links, each file once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from msgspec import Struct

from oncegate.audit.values import Skipped
from oncegate.errors import ConfigError
from oncegate.model.ledger_addresses import masked_text

FILES_MAX: Final = 200_000
FILE_BYTES_MAX: Final = 4_000_000
NEVER: Final = frozenset(
    {
        ".git", ".hg", ".svn", ".tox", ".nox", ".venv", "venv", "__pycache__", "node_modules", "site-packages",
        ".mypy_cache", ".ruff_cache", ".pytest_cache", ".oncegate_cache", "__pypackages__", ".eggs",
    }
)  # fmt: skip


class FoundFile(Struct, frozen=True):
    """A file to read: its real place, and its name in the report."""

    path: str
    shown: str
    root: str


class Discovered(Struct):
    """The files of an audit and those that are left out, with a reason."""

    files: list[FoundFile]
    skipped: list[Skipped]


def discover(paths: Sequence[str], exclude: Sequence[str], base: Path) -> Discovered:
    """Lists the Python files below the paths, in a stable order."""
    found = Discovered([], [])
    seen: set[tuple[int, int]] = set()
    for text in paths:
        path = Path(os.path.abspath(text))
        if not path.exists():
            raise ConfigError(
                f"there is no file or folder {masked_text(text)[:200]!r}; name a path that exists"
            )
        root = path if path.is_dir() else path.parent
        for name in _below(path, exclude, base, found):
            _take(name, str(root), base, seen, found)
    return found


def _take(name: str, root: str, base: Path, seen: set[tuple[int, int]], found: Discovered) -> None:
    shown = shown_path(name, base)
    try:
        status = os.stat(name)
    except OSError as error:
        found.skipped.append(Skipped(shown, f"cannot be read: {error.strerror or error}"))
        return
    identity = (status.st_dev, status.st_ino)
    if identity in seen:
        return
    seen.add(identity)
    if not os.path.isfile(name):
        found.skipped.append(Skipped(shown, "is not a regular file"))
    elif name.endswith(".ipynb"):
        found.skipped.append(Skipped(shown, "is a notebook; export its code to a .py file to audit it"))
    elif status.st_size > FILE_BYTES_MAX:
        found.skipped.append(Skipped(shown, f"is larger than {FILE_BYTES_MAX:,} bytes"))
    elif len(found.files) >= FILES_MAX:
        raise ConfigError(f"more than {FILES_MAX:,} files; audit a smaller folder or use exclude")
    else:
        found.files.append(FoundFile(name, shown, root))


def shown_path(name: str, base: Path) -> str:
    """A path as the report shows it: relative to the working folder where possible."""
    absolute = os.path.abspath(name)
    inside = os.path.relpath(absolute, base) if absolute.startswith(f"{base}{os.sep}") else absolute
    return inside.replace(os.sep, "/")


def _below(path: Path, exclude: Sequence[str], base: Path, found: Discovered) -> Iterator[str]:
    if not path.is_dir():
        yield str(path)
        return
    folders: set[tuple[int, int]] = set()
    for folder, names, files in os.walk(path, followlinks=True):
        status = os.stat(folder)
        identity = (status.st_dev, status.st_ino)
        if identity in folders:
            found.skipped.append(
                Skipped(shown_path(folder, base), "is a link to a folder that was read already")
            )
            names[:] = []
            continue
        folders.add(identity)
        names[:] = sorted(name for name in names if not _is_left_out(folder, name, exclude, base))
        for name in sorted(files):
            wanted = name.endswith((".py", ".pyw", ".ipynb"))
            if wanted and not _is_excluded(os.path.join(folder, name), exclude, base):
                yield os.path.join(folder, name)


def _is_left_out(folder: str, name: str, exclude: Sequence[str], base: Path) -> bool:
    return name in NEVER or _is_excluded(os.path.join(folder, name), exclude, base)


def _is_excluded(name: str, exclude: Sequence[str], base: Path) -> bool:
    if not exclude:
        return False
    shown = shown_path(name, base)
    parts = shown.split("/")
    return any(
        fnmatch(shown, pattern) or fnmatch(shown, f"{pattern.rstrip('/')}/*") or fnmatch(parts[-1], pattern)
        for pattern in exclude
    )
