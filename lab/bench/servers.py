"""Server processes for measurements over HTTP: started, their ports read from what they say, ended.

A server that does not start, or does not end, is an error with its last words.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from lab import ROOT
from lab.bench.processor import processor_seconds
from oncegate.clock import SystemClock
from oncegate.errors import ConfigError

if TYPE_CHECKING:
    from oncegate.testing.postgres import PostgresServer

SECRET: Final = "a-secret-for-the-measurement"
START_SECONDS: Final = 60.0  # a busy machine takes long to import everything
END_SECONDS: Final = 40.0
_CONFIG: Final = """
url = "{url}"
[server]
port = 0
tenant_concurrency_max = 1000
concurrency_max = 1000
[network]
allow_http = true
allow_loopback = true
[surfaces.bench]
key = "{{id}}"
signature = "bearer"
secrets = ["$BENCH_SECRET"]
tenant = "bench"
{more}
"""
_BARE: Final = (
    "-m",
    "uvicorn",
    "lab.bench.bare:app",
    "--app-dir",
    str(ROOT),
    "--port",
    "0",
    "--no-access-log",
    "--lifespan",
    "off",
)


class Served(Struct, frozen=True):
    """A server process that listens."""

    port: int
    pid: int

    def processor_seconds(self) -> float:
        """The processor time that it has used; 0 where the system does not tell."""
        return processor_seconds(self.pid)


@contextmanager
def bare(folder: Path) -> Iterator[Served]:
    """The plain server without a gate."""
    with _process(folder / "bare.log", list(_BARE), r"running on http://[^:]+:(\d+)") as served:
        yield served


@contextmanager
def service(folder: Path, name: str, url: str, more: str = "") -> Iterator[Served]:
    """A process of the service on a ledger, with a surface `bench`. `more` are more settings."""
    config = folder / f"{name}.toml"
    config.write_text(_CONFIG.format(url=url, more=more), "utf-8")
    command = ["-m", "oncegate", "serve", "--config", str(config)]
    with _process(folder / f"{name}.log", command, r"listening on http://[^:]+:(\d+)") as served:
        yield served


@contextmanager
def postgres_url() -> Iterator[str]:
    """A PostgreSQL server of its own, with an empty database."""
    with postgres_server() as server:
        yield server.new_database()


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server of its own."""
    from oncegate.testing.postgres import PostgresServer

    with PostgresServer() as server:
        yield server


@contextmanager
def _process(log: Path, command: list[str], says: str) -> Iterator[Served]:
    """A server of our own; its port is in the line that it begins with."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *command],
            stderr=output,
            env={**os.environ, "BENCH_SECRET": SECRET},
            cwd=log.parent,
        )
    try:
        yield Served(_port(process, log, says), process.pid)
    finally:
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(END_SECONDS)


def _port(process: subprocess.Popen[bytes], log: Path, says: str) -> int:
    clock = SystemClock()
    ends_at = clock.ticks_ms() + int(START_SECONDS * 1000)
    while clock.ticks_ms() < ends_at and process.poll() is None:
        found = re.search(says, log.read_text("utf-8", "replace"))
        if found:
            return int(found[1])
        clock.pause(0.02)
    raise ConfigError(f"a server did not start: {log.read_text('utf-8', 'replace')[-300:]}")
