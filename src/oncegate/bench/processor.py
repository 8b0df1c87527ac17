"""Processor time of other processes: it hardly depends on what else runs on a machine."""

from __future__ import annotations

import os
from pathlib import Path


def processor_seconds(pid: int) -> float:
    """What a process has used; 0 where the system does not tell."""
    return sum(ticks(pid, 2)) / os.sysconf("SC_CLK_TCK")


def ticks(pid: int, count: int) -> list[int]:
    """The first of: own time, the system's for it, and both of children that have ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return [int(part) for part in text.rpartition(")")[2].split()[11 : 11 + count]]
