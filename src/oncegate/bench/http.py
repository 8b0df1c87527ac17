"""The service over HTTP beside the bare server it runs on: requests a second, fresh keys and replays.

Every part is a process of its own: the server, and the load. Subjects take turns.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

from oncegate.clock import SystemClock
from oncegate.errors import ConfigError

SECRET: Final = "a-secret-for-the-measurement"
CONNECTIONS: Final = 64
START_SECONDS: Final = 20.0
_CONFIG: Final = """
url = "{url}"
[server]
port = 0
tenant_concurrency_max = 1000
concurrency_max = 1000
[surfaces.bench]
key = "{{id}}"
signature = "bearer"
secrets = ["$BENCH_SECRET"]
tenant = "bench"
"""


class HttpBench:
    """Measures one machine."""

    def __init__(self, *, requests: int, rounds: int, postgres: bool, talk: Callable[[str], None]) -> None:
        self._requests, self._rounds, self._postgres, self._talk = requests, rounds, postgres, talk

    def run(self) -> dict[str, Any]:
        """Measures everything and returns one document."""
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="oncegate-bench-")))
            ports = {"bare": stack.enter_context(_bare(folder))}
            ports["sqlite"] = stack.enter_context(_service(folder, "sqlite", f"sqlite:///{folder}/l.db"))
            if self._postgres:
                ports["postgres"] = stack.enter_context(
                    _service(folder, "postgres", stack.enter_context(_server()))
                )
            runs = self._measure(ports)
        results = [_summed(name, kind, found) for (name, kind), found in runs.items()]
        return {"connections": CONNECTIONS, "results": results, "ratios": _ratios(results)}

    def _measure(self, ports: dict[str, int]) -> dict[tuple[str, str], list[dict[str, float]]]:
        runs: dict[tuple[str, str], list[dict[str, float]]] = {}
        for number in range(self._rounds + 1):  # the first only warms up, and fills the replayed keys
            for name, port in ports.items():
                for kind in ("fresh", "replay") if name != "bare" else ("fresh",):
                    self._talk(f"round {number} of {self._rounds}: {name}, {kind}")
                    found = _load(port, self._requests, kind)
                    if number:
                        runs.setdefault((name, kind), []).append(found)
        return runs


def _load(port: int, requests: int, kind: str) -> dict[str, float]:
    words = ["127.0.0.1", str(port), str(CONNECTIONS), str(requests), kind, SECRET]
    done = subprocess.run(
        [sys.executable, "-m", "oncegate.bench.httpload", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    if found["refused"]:
        raise ConfigError(f"{found['refused']:.0f} requests were refused; the measurement means nothing")
    return found


@contextmanager
def _bare(folder: Path) -> Iterator[int]:
    command = [
        "-m",
        "uvicorn",
        "oncegate.bench.bare:app",
        "--port",
        "0",
        "--no-access-log",
        "--lifespan",
        "off",
    ]
    with _process(folder / "bare.log", command, r"running on http://[^:]+:(\d+)") as port:
        yield port


@contextmanager
def _service(folder: Path, name: str, url: str) -> Iterator[int]:
    config = folder / f"{name}.toml"
    config.write_text(_CONFIG.format(url=url), "utf-8")
    command = ["-m", "oncegate", "serve", "--config", str(config)]
    with _process(folder / f"{name}.log", command, r"listening on http://[^:]+:(\d+)") as port:
        yield port


@contextmanager
def _process(log: Path, command: list[str], says: str) -> Iterator[int]:
    """A server of our own; its port is in the line that it begins with."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *command],
            stderr=output,
            env={**os.environ, "BENCH_SECRET": SECRET},
            cwd=log.parent,
        )
    try:
        yield _port(process, log, says)
    finally:
        process.terminate()
        process.wait(START_SECONDS)


def _port(process: subprocess.Popen[bytes], log: Path, says: str) -> int:
    clock = SystemClock()
    ends_at = clock.ticks_ms() + int(START_SECONDS * 1000)
    while clock.ticks_ms() < ends_at and process.poll() is None:
        found = re.search(says, log.read_text("utf-8", "replace"))
        if found:
            return int(found[1])
        clock.pause(0.02)
    raise ConfigError(f"a server did not start: {log.read_text('utf-8', 'replace')[-300:]}")


@contextmanager
def _server() -> Iterator[str]:
    from oncegate.testing.postgres import PostgresServer

    with PostgresServer() as server:
        yield server.new_database()


def _summed(name: str, kind: str, runs: list[dict[str, float]]) -> dict[str, Any]:
    rates = [one["rate"] for one in runs]
    return {
        "name": name,
        "keys": kind,
        "rate": round(median(rates)),
        "rate_low": round(min(rates)),
        "rate_high": round(max(rates)),
        "p50_ms": round(median(one["p50_ms"] for one in runs), 2),
        "p99_ms": round(median(one["p99_ms"] for one in runs), 2),
    }


def _ratios(results: list[dict[str, Any]]) -> dict[str, float]:
    bare = next(one["rate"] for one in results if one["name"] == "bare")
    return {
        f"{one['name']}, {one['keys']} / bare": round(one["rate"] / bare, 2)
        for one in results
        if one["name"] != "bare"
    }
