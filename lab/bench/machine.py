"""What a measurement was made on: without it, figures mean nothing."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from oncegate.testing.postgres import PostgresServer


def describe_machine(postgres: PostgresServer | None) -> dict[str, Any]:
    """Processor, memory, versions, and how busy the machine was when the run began."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count() or 0,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "postgresql": _postgres_version(postgres),
        "oncegate": metadata.version("oncegate"),
        "load_before": load_average(),
    }


def load_average() -> list[float]:
    """Programs that wanted to run, over the last 1, 5 and 15 minutes."""
    return [round(value, 1) for value in os.getloadavg()]


def _processor() -> str:
    listed = Path("/proc/cpuinfo")
    lines = listed.read_text("utf-8", "replace").splitlines() if listed.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()


def _postgres_version(server: PostgresServer | None) -> str:
    if server is None:
        return "left out"
    words = [str(server.programs / "postgres"), "--version"]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return said.rpartition(")")[2].strip()
