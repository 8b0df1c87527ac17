"""The service over HTTP beside the bare server it runs on: requests a second, fresh keys and replays.

Every part is a process of its own: the servers, and the load. Subjects take turns. With more than one
process on one PostgreSQL, each has its share of the connections and a load process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, Final

from oncegate.bench.servers import SECRET, bare, postgres_url, service
from oncegate.errors import ConfigError

CONNECTIONS: Final = 64
LOAD_SECONDS_MAX: Final = 300.0

Ports = list[int]


class HttpBench:
    """Measures one machine."""

    def __init__(
        self,
        *,
        requests: int,
        rounds: int,
        postgres: bool,
        talk: Callable[[str], None],
        processes: int = 1,
    ) -> None:
        self._requests, self._rounds, self._postgres, self._talk = requests, rounds, postgres, talk
        self._processes = processes

    def run(self) -> dict[str, Any]:
        """Measures everything and returns one document."""
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="oncegate-bench-")))
            runs = self._measure(self._start(stack, folder))
        results = [_summed(name, kind, found) for (name, kind), found in runs.items()]
        return {"connections": CONNECTIONS, "results": results, "ratios": _ratios(results)}

    def _start(self, stack: ExitStack, folder: Path) -> dict[str, Ports]:
        """Starts all servers; several on one PostgreSQL have a ledger of their own."""
        enter = stack.enter_context
        ports = {"bare": [enter(bare(folder))]}
        ports["sqlite"] = [enter(service(folder, "sqlite", f"sqlite:///{folder}/l.db"))]
        if self._postgres:
            ports["postgres"] = [enter(service(folder, "postgres", enter(postgres_url())))]
        if self._postgres and self._processes > 1:
            url = enter(postgres_url())
            names = [f"postgres-{number}" for number in range(self._processes)]
            ports[f"postgres x{self._processes}"] = [enter(service(folder, name, url)) for name in names]
        return ports

    def _measure(self, ports: dict[str, Ports]) -> dict[tuple[str, str], list[dict[str, float]]]:
        runs: dict[tuple[str, str], list[dict[str, float]]] = {}
        for number in range(self._rounds + 1):  # the first only warms up, and fills the replayed keys
            for name, of_name in ports.items():
                for kind in ("fresh", "replay") if name != "bare" else ("fresh",):
                    self._talk(f"round {number} of {self._rounds}: {name}, {kind}")
                    # Several processes begin with the same keys to be replayed: some are busy then.
                    found = _load_all(of_name, self._requests, kind, may_refuse=not number)
                    if number:
                        runs.setdefault((name, kind), []).append(found)
        return runs


def _load_all(ports: Ports, requests: int, kind: str, *, may_refuse: bool) -> dict[str, float]:
    """Loads all processes at once; what they do together, and the worst of their latencies."""
    share = (requests // len(ports), CONNECTIONS // len(ports))
    with ThreadPoolExecutor(len(ports)) as pool:
        found = list(pool.map(lambda port: _load(port, *share, kind, may_refuse), ports))
    rate = sum(one["answered"] for one in found) / max(one["seconds"] for one in found)
    return {"rate": rate} | {name: max(one[name] for one in found) for name in ("p50_ms", "p99_ms")}


def _load(port: int, requests: int, connections: int, kind: str, may_refuse: bool) -> dict[str, float]:
    words = ["127.0.0.1", str(port), str(connections), str(requests), kind, SECRET]
    done = subprocess.run(
        [sys.executable, "-m", "oncegate.bench.httpload", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=LOAD_SECONDS_MAX,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise ConfigError(f"the load ended with {done.returncode}: {last}")
    found: dict[str, float] = json.loads(done.stdout)
    if found["answered"] != requests or (found["refused"] and not may_refuse):
        detail = (
            f"{found['refused']:.0f} requests were refused, {found['answered']:.0f} of {requests} answered"
        )
        raise ConfigError(f"{detail}; the measurement means nothing")
    return found


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
