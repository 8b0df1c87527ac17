"""What earlier audits found, by content: a file that did not change is not parsed again.

One file per project folder. A damaged, older or foreign cache is ignored and replaced.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from oncegate.audit.analyse import ModuleResult
from oncegate.audit.values import AuditReport

FORMAT: Final = 4
FOLDER: Final = ".oncegate_cache"
_NAME: Final = "audit.msgpack"
_BYTES_MAX: Final = 200_000_000


class FileFacts(Struct):
    """What the scan of one file tells: its digest, why it cannot be parsed, whether it is of interest."""

    digest: bytes
    lines: int
    skipped: str = ""
    is_candidate: bool = False
    has_comments: bool = False
    is_checked: bool = False
    bases: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()


class KnownModule(Struct):
    """The result of one module, valid while the files it depends on are the same."""

    depends: dict[str, bytes]
    result: ModuleResult


class AuditCache(Struct):
    """Everything that is kept between two runs."""

    format: int
    version: str
    names: bytes
    settings: bytes
    files: dict[str, FileFacts]
    modules: dict[str, KnownModule]
    tree: bytes = b""
    report: AuditReport | None = None


def load_cache(folder: Path, version: str, settings: bytes) -> AuditCache:
    """The cache of a folder; an empty one where there is none that fits."""
    empty = AuditCache(FORMAT, version, b"", settings, {}, {})
    try:
        path = folder / FOLDER / _NAME
        if path.stat().st_size > _BYTES_MAX:
            return empty
        found = msgspec.msgpack.decode(path.read_bytes(), type=AuditCache)
    except (OSError, msgspec.MsgspecError, ValueError):
        return empty
    if (found.format, found.version) != (FORMAT, version):
        return empty
    if found.settings != settings:
        found.modules, found.tree, found.report, found.settings = {}, b"", None, settings
    return found


def save_cache(folder: Path, cache: AuditCache) -> None:
    """Writes the cache; a folder that cannot be written is no error."""
    target = folder / FOLDER
    part = target / f"{_NAME}.{os.getpid()}"
    try:
        target.mkdir(exist_ok=True)
        (target / ".gitignore").write_text("*\n", "utf-8")
        part.write_bytes(msgspec.msgpack.encode(cache))
        part.replace(target / _NAME)
    except OSError:
        part.unlink(missing_ok=True)
