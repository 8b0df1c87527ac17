"""The file system that a ledger file is on: whether it keeps what it acknowledges."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

MOUNTS: Final = Path("/proc/self/mountinfo")
MEMORY: Final = frozenset({"tmpfs", "ramfs", "devtmpfs"})
LAYERS: Final = frozenset({"overlay", "aufs"})
NETWORK: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "lustre", "glusterfs", "beegfs", "afs", "gfs2",
     "ocfs2", "vboxsf", "prl_fs", "virtiofs"}
)  # fmt: skip
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


def filesystem_of(path: Path, mounts: Path = MOUNTS) -> str | None:
    """The type of the file system that a path is on; None where the system does not tell."""
    try:
        lines = mounts.read_text("utf-8", "surrogateescape").splitlines()
        there = path.absolute().resolve()
    except OSError:
        return None
    found: tuple[int, str] | None = None
    for line in lines:
        before, dash, after = line.partition(" - ")
        fields = before.split(" ")
        if not dash or len(fields) < 5:
            continue
        point = Path(_ESCAPED.sub(lambda match: chr(int(match[1], 8)), fields[4]))
        depth = len(point.parts)
        if (point == there or point in there.parents) and (found is None or depth >= found[0]):
            found = depth, after.split(" ")[0]
    return None if found is None else found[1]


def advice_on(kind: str) -> tuple[bool, str] | None:
    """Whether a ledger may be on this file system at all, and what to do; None where all is well."""
    if kind in MEMORY:
        return True, "this is memory: the ledger is gone after a restart of the machine. Use a disk"
    if kind in LAYERS:
        return True, "a container's own layer goes with the container: mount a volume for the ledger"
    if kind in NETWORK or kind.startswith("fuse."):
        step = "SQLite's locks and its log do not work reliably here: use a local disk, or PostgreSQL"
        return False, step
    return None
