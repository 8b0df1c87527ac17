"""Flame graphs of the hot path: one process admits events on a store while a sampling profiler looks at it.

`python -m lab.bench.profiling FOLDER` writes one SVG a store. Needs py-spy, a development tool.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Final

from lab import ROOT
from lab.bench.postgres import CREATE_BOOKING
from oncegate.bench.workload import event_blocks, open_gate, prepare_business_table, run_gate
from oncegate.errors import ConfigError
from oncegate.testing.postgres import PostgresServer
from oncegate.wiring import open_store

SECONDS: Final = 6.0
SAMPLES_A_SECOND: Final = 400
CONCURRENCY: Final = 256
BLOCK: Final = 2_000


def work(url: str, seconds: float) -> int:
    """Admits fresh events until the time is up; this is what is looked at."""
    gate = open_gate(url)
    blocks, ends, count = event_blocks(BLOCK), perf_counter() + seconds, 0
    try:
        while perf_counter() < ends:
            asyncio.run(run_gate(gate, blocks(), CONCURRENCY))
            count += BLOCK
    finally:
        gate.close()
    return count


def record(folder: Path, seconds: float = SECONDS) -> list[Path]:
    """Makes a flame graph for each store and returns the files."""
    profiler = _profiler()
    folder.mkdir(parents=True, exist_ok=True)
    return [
        _record(profiler, store, folder / f"flame-{store}.svg", seconds) for store in ("sqlite", "postgres")
    ]


def _record(profiler: str, store: str, picture: Path, seconds: float) -> Path:
    with _ledger(store) as url:
        command = [sys.executable, "-m", "lab.bench.profiling", "--work", url, str(seconds)]
        words = [profiler, "record", "--format", "flamegraph", "--rate", str(SAMPLES_A_SECOND)]
        words += ["--output", str(picture.absolute()), "--", *command]
        subprocess.run(words, check=True, stdout=sys.stderr, cwd=ROOT)
    return picture


def _profiler() -> str:
    beside = Path(sys.executable).with_name("py-spy")
    found = str(beside) if beside.exists() else shutil.which("py-spy")
    if found is None:
        raise ConfigError("a flame graph needs py-spy: pip install py-spy")
    return found


@contextmanager
def _ledger(store: str) -> Iterator[str]:
    if store == "postgres":
        with PostgresServer() as server:
            url = server.new_database()
            session = open_store(url).connect()
            with session.unit():
                session.execute(CREATE_BOOKING, ())
            session.close()
            yield url
        return
    with tempfile.TemporaryDirectory(prefix="oncegate-bench-") as folder:
        url = f"sqlite:///{folder}/ledger.db"
        gate = open_gate(url)
        prepare_business_table(gate)
        gate.close()
        yield url


def main(words: list[str]) -> int:
    """Runs from the command line."""
    if words[0] == "--work":
        sys.stderr.write(f"{work(words[1], float(words[2])):,} events\n")
        return 0
    for picture in record(Path(words[0])):
        sys.stdout.write(f"{picture}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
