"""The service over HTTP beside the bare server it runs on: requests a second, fresh keys and replays.

Every part is a process of its own: the servers, and the load. Subjects take turns. The surface has no
handler to call, so that the figure is the gate's: one transaction an event. `forward` is the same in
front of a handler over HTTP, a transaction before the call and one after.
With more than one process on one PostgreSQL, each has as many connections as one alone, and a load of its
own: that is what one more machine brings. One process with all those connections is measured beside them.

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
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import median
from typing import Any, Final, Self

from msgspec import Struct

from lab import ROOT
from lab.bench.servers import SECRET, Served, bare, postgres_server, service
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
    connections: int = CONNECTIONS  # to each server
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
            "ratios": _ratios(results, "rate") | _gains(runs),
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
        together = [(1, self._processes * CONNECTIONS), (self._processes, CONNECTIONS)]
        crews = [(1, CONNECTIONS), *(together if self._processes > 1 else [])] if self._postgres else []
        return [
            Subject("bare", (plain,), ("fresh",)),
            Subject("sqlite", (gate,)),
            Subject("forward", (forward,), ("fresh",)),
            *(_on_postgres(stack, folder, *crew) for crew in crews),
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


def _on_postgres(stack: ExitStack, folder: Path, count: int, connections: int) -> Subject:
    from lab.bench.processes import server_seconds

    database = stack.enter_context(postgres_server())
    url, name = database.new_database(), _named(count, connections)
    servers = tuple(
        stack.enter_context(service(folder, f"{name.replace(' ', '-')}-{number}", url))
        for number in range(count)
    )
    return Subject(
        name, servers, connections=connections, database_seconds=lambda: server_seconds(database)
    )


def _named(count: int, connections: int) -> str:
    if count > 1:
        return f"postgres x{count}"
    return "postgres" if connections == CONNECTIONS else f"postgres {connections}"


def _load_all(subject: Subject, requests: int, kind: str, *, may_refuse: bool) -> Found:
    """Loads all processes at once; what they do together, and the worst of their latencies."""
    count = requests // len(subject.servers)
    with ExitStack() as stack:
        loads = [
            stack.enter_context(_Load(server.port, subject.connections, count, kind))
            for server in subject.servers
        ]
        before = subject.service_seconds(), subject.database_seconds()
        for load in loads:
            load.begin()
        found = [load.result(may_refuse) for load in loads]
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


class _Load:
    """A process that loads one server, as a with block: it is ready inside, and over after it."""

    def __init__(self, port: int, connections: int, requests: int, kind: str) -> None:
        words = ["127.0.0.1", str(port), str(connections), str(requests), kind, SECRET]
        self._requests = requests
        self._process = subprocess.Popen(
            [sys.executable, "-m", "lab.bench.httpload", *words],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        self._process.stdout.readline()  # ready, or at its end
        return self

    def begin(self) -> None:
        """Lets it begin."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended: its result says why
            self._process.stdin.write("go\n")
            self._process.stdin.flush()

    def result(self, may_refuse: bool) -> dict[str, float]:
        """What it measured; raises ConfigError if that means nothing."""
        printed, said = self._process.communicate(timeout=LOAD_SECONDS_MAX)
        if self._process.returncode:
            last = (said.strip().splitlines() or ["it said nothing"])[-1]
            raise ConfigError(f"the load ended with {self._process.returncode}: {last}")
        found: dict[str, float] = json.loads(printed)
        if found["answered"] != self._requests or (found["refused"] and not may_refuse):
            answered = f"{found['answered']:.0f} of {self._requests} answered"
            raise ConfigError(
                f"{found['refused']:.0f} requests were refused, {answered}; the measurement means nothing"
            )
        return found

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


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


def _gains(runs: dict[tuple[str, str], list[Found]]) -> dict[str, float]:
    """Several processes against one, with fresh keys, in the median of the rounds."""
    fresh = {name: found for (name, kind), found in runs.items() if kind == "fresh"}
    alone = [name for name in fresh if name.startswith("postgres") and " x" not in name]
    return {
        f"{several} / {one}": round(
            median(a["rate"] / b["rate"] for a, b in zip(fresh[several], fresh[one], strict=True)), 2
        )
        for several in fresh
        if " x" in several
        for one in alone
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
