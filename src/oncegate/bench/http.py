"""The service over HTTP beside the bare server it runs on: requests a second, fresh keys and replays.

Every part is a process of its own: the servers, and the load. Subjects take turns. The surface has no
handler to call, so that the figure is the gate's: one transaction an event. `forward` is the same in
front of a handler over HTTP, a transaction before the call and one after.
With more than one process on one PostgreSQL, each has its share of the connections and a load of its own.

Beside the clock stands processor time: what a request costs the service, the database and the load. On a
machine with too few processors for all of them, it tells what more of them would bring.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, Final

from msgspec import Struct

from oncegate.bench.servers import SECRET, Served, bare, postgres_server, service
from oncegate.errors import ConfigError

CONNECTIONS: Final = 64
LOAD_SECONDS_MAX: Final = 300.0
_FORWARD: Final = """forward = "team"
[downstreams.team]
url = "http://127.0.0.1:{port}/"
honours_key = "7d"
"""

Found = dict[str, float]
_USED: Final = ("service_us", "database_us", "load_us")  # processor time a request


class Subject(Struct, frozen=True):
    """What is measured: some server processes, and the database behind them."""

    name: str
    servers: tuple[Served, ...]
    kinds: tuple[str, ...] = ("fresh", "replay")
    database_seconds: Callable[[], float] = lambda: 0.0

    def service_seconds(self) -> float:
        """The processor time of the server processes."""
        return sum(server.processor_seconds() for server in self.servers)


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
        return {
            "connections": CONNECTIONS,
            "processors": os.cpu_count() or 0,
            "results": results,
            "ratios": _ratios(results, "rate"),
            "processor_ratios": _ratios(results, "service_us"),
            "bounds": {
                f"{one['name']}, {one['keys']}": _bounds(one) for one in results if one["service_us"]
            },
        }

    def _start(self, stack: ExitStack, folder: Path) -> list[Subject]:
        """Starts all servers; several on one PostgreSQL have a ledger of their own."""
        enter = stack.enter_context
        plain = enter(bare(folder))
        gate = enter(service(folder, "sqlite", f"sqlite:///{folder}/l.db"))
        more = _FORWARD.format(port=plain.port)
        forward = enter(service(folder, "forward", f"sqlite:///{folder}/f.db", more))
        counts = sorted({1, self._processes}) if self._postgres else []
        return [
            Subject("bare", (plain,), ("fresh",)),
            Subject("sqlite", (gate,)),
            Subject("forward", (forward,), ("fresh",)),
            *(_on_postgres(stack, folder, count) for count in counts),
        ]

    def _measure(self, subjects: list[Subject]) -> dict[tuple[str, str], list[Found]]:
        runs: dict[tuple[str, str], list[Found]] = {}
        for number in range(self._rounds + 1):  # the first only warms up, and fills the replayed keys
            for subject in subjects:
                for kind in subject.kinds:
                    self._talk(f"round {number} of {self._rounds}: {subject.name}, {kind}")
                    # Several processes begin with the same keys to be replayed: some are busy then.
                    found = _load_all(subject, self._requests, kind, may_refuse=not number)
                    if number:
                        runs.setdefault((subject.name, kind), []).append(found)
        return runs


def _on_postgres(stack: ExitStack, folder: Path, count: int) -> Subject:
    from oncegate.bench.processes import server_seconds

    database = stack.enter_context(postgres_server())
    url, name = database.new_database(), "postgres" if count == 1 else f"postgres x{count}"
    servers = tuple(
        stack.enter_context(service(folder, f"postgres-{count}-{number}", url)) for number in range(count)
    )
    return Subject(name, servers, database_seconds=lambda: server_seconds(database))


def _load_all(subject: Subject, requests: int, kind: str, *, may_refuse: bool) -> Found:
    """Loads all processes at once; what they do together, and the worst of their latencies."""
    ports = [server.port for server in subject.servers]
    share = (requests // len(ports), CONNECTIONS // len(ports))
    before = subject.service_seconds(), subject.database_seconds()
    with ThreadPoolExecutor(len(ports)) as pool:
        found = list(pool.map(lambda port: _load(port, *share, kind, may_refuse), ports))
    answered = sum(one["answered"] for one in found)
    used = {
        "service_us": subject.service_seconds() - before[0],
        "database_us": subject.database_seconds() - before[1],
        "load_us": sum(one["processor_seconds"] for one in found),
    }
    return {
        "rate": answered / max(one["seconds"] for one in found),
        **{name: max(one[name] for one in found) for name in ("p50_ms", "p99_ms")},
        **{name: seconds * 1e6 / answered for name, seconds in used.items()},
    }


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
        **{name: round(median(one[name] for one in runs), 2) for name in ("p50_ms", "p99_ms")},
        **{name: round(median(one[name] for one in runs), 1) for name in _USED},
    }


def _ratios(results: list[dict[str, Any]], figure: str) -> dict[str, float]:
    """Each against the bare server; of processor time, how many bare requests one of theirs is worth."""
    bare = next(one[figure] for one in results if one["name"] == "bare")
    if not bare:
        return {}  # the system does not tell processor time
    return {
        f"{_name(one)} / bare": round(one[figure] / bare, 2) for one in results if one["name"] != "bare"
    }


def _name(one: dict[str, Any]) -> str:
    return f"{one['name']}, {one['keys']}"


def _bounds(one: dict[str, Any]) -> dict[str, int]:
    """Requests a second, by processor time alone: of one process, and of this machine with any number.

    Where the second is hardly more than the first, further processes bring nothing here, whatever they
    would bring on a machine with more processors.
    """
    altogether = sum(one[name] for name in _USED)
    return {
        "one_process": round(1e6 / one["service_us"]),
        "machine": round((os.cpu_count() or 1) * 1e6 / altogether),
    }
