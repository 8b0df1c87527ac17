"""Processor time of other processes: it hardly depends on what else runs on a machine."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import process_time

from msgspec import Struct


class Spent(Struct, frozen=True):
    """Processor time an event in µs: of this program with those it has run, and of the server."""

    program_us: float
    server_us: float


class Meter:
    """Counts from when it is made."""

    def __init__(self, server_seconds: Callable[[], float]) -> None:
        self._server_seconds = server_seconds
        self._begun = self._read()

    def _read(self) -> tuple[float, float]:
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return process_time() + ended.ru_utime + ended.ru_stime, self._server_seconds()

    def spent(self, events: float) -> Spent:
        """What has been used since, divided by events."""
        program, server = (now - begun for now, begun in zip(self._read(), self._begun, strict=True))
        return Spent(program / events * 1e6, server / events * 1e6)


def medians(runs: Sequence[Spent]) -> dict[str, int]:
    """What several runs have used, as plain values."""
    return {
        "program_us": round(median(run.program_us for run in runs)),
        "server_us": round(median(run.server_us for run in runs)),
    }


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
