"""The Redis ledger beside Powertools' idempotency layer, on one kind of server and the same work.

Each round gives either side a Valkey server of its own with `appendfsync always`, and no business rows: the
ledger is measured. Ours is a gate with tasks, Powertools a decorator with threads.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from lab.bench.peers.environments import NotInstalled, interpreter_of
from lab.bench.peers.line import PeerFailed, PeerProcess
from lab.bench.peers.roster import PEERS, Peer, Variant
from lab.bench.peers.servers import address_for

OURS: Final = Peer("oncegate", "", "oncegate_valkey_peer.py", (Variant("valkey"),))
POWERTOOLS: Final = next(peer for peer in PEERS if peer.name == "aws-lambda-powertools")
FLUSHED: Final = Variant("valkey", "ours", "appendfsync=always")
CONCURRENCIES: Final = (1, 16, 64, 256)
WORKERS_MAX: Final = {POWERTOOLS.name: 64}  # with more its driver runs out of connections
OPEN_SECONDS_MAX: Final = 120.0
FRESH_AIM, REPLAY_AIM = 5.0, 10.0

Rates = dict[str, list[float]]


@dataclass(slots=True)
class RedisBench:
    """What to measure."""

    rounds: int = 3
    seconds: float = 2.0
    install: bool = True
    talk: Callable[[str], None] = field(default=lambda line: None)

    def run(self) -> dict[str, Any]:
        """Events a second: medians, by who and what, and the ratios that the aims are about."""
        found: dict[str, Rates] = {OURS.name: {}, POWERTOOLS.name: {}}
        missing = ""
        for number in range(self.rounds):
            for peer in (OURS, POWERTOOLS):
                self.talk(f"round {number + 1}: {peer.name}")
                try:
                    interpreter_of(peer, self.talk, install=self.install)
                    for what, rate in self._measure(peer):
                        found[peer.name].setdefault(what, []).append(rate)
                except (NotInstalled, PeerFailed) as reason:
                    missing = f"{peer.name}: {reason}"
        results = [
            {"who": who, "what": what, "rate": round(median(rates)), "low": round(min(rates)),
             "high": round(max(rates))}
            for who, some in found.items() for what, rates in some.items()
        ]  # fmt: skip
        return {"results": results, "ratios": _ratios(found), "missing": missing}

    def _measure(self, peer: Peer) -> Iterator[tuple[str, float]]:
        most = [tasks for tasks in CONCURRENCIES if tasks <= WORKERS_MAX.get(peer.name, tasks)]
        with (
            tempfile.TemporaryDirectory(prefix="oncegate-bench-", ignore_cleanup_errors=True) as name,
            address_for(peer, FLUSHED, Path(name), None) as address,
        ):
            settings = {"store": "valkey", "url": address, "folder": name, "rows": False}
            settled = {}
            with PeerProcess(peer) as process:
                process.ask("open", OPEN_SECONDS_MAX, **settings)
                for tasks in most:
                    report = self._run(process, "fresh", tasks, 0)
                    settled[tasks] = report["events"]
                    yield f"fresh, {tasks} at once", _rate(report)
                yield "replay", _rate(self._run(process, "replay", most[-1], settled[most[-1]]))
            with PeerProcess(peer) as process:
                process.ask("open", OPEN_SECONDS_MAX, **settings)
                again = self._run(process, "reread", most[-1], settled[most[-1]])
                yield "replay by the ledger", _rate(again)

    def _run(self, process: PeerProcess, stream: str, tasks: int, settled: int) -> dict[str, Any]:
        words = {"stream": stream, "prefix": f"run-{tasks}", "concurrency": tasks, "settled": settled}
        return process.ask("run", OPEN_SECONDS_MAX, seconds=self.seconds, **words)


def _rate(report: dict[str, Any]) -> float:
    return report["events"] / report["seconds"] if report["seconds"] else 0.0


def _best(rates: Rates) -> float:
    return max((median(some) for what, some in rates.items() if what.startswith("fresh")), default=0.0)


def _ratios(found: dict[str, Rates]) -> dict[str, float]:
    ours, theirs = found[OURS.name], found[POWERTOOLS.name]
    ratios = {}
    if ours and theirs:
        ratios[f"fresh, each at its best (aim {FRESH_AIM:g})"] = round(_best(ours) / _best(theirs), 2)
        lone = "fresh, 1 at once"
        ratios["fresh, one at a time"] = round(median(ours[lone]) / median(theirs[lone]), 2)
    if ours:
        ratios[f"replays against fresh (aim {REPLAY_AIM:g})"] = round(
            median(ours["replay"]) / _best(ours), 2
        )
        ledger = median(ours["replay by the ledger"]) / _best(ours)
        ratios["replays that the ledger answers, against fresh"] = round(ledger, 2)
    return ratios


def as_text(document: dict[str, Any]) -> str:
    """The figures as a table."""
    lines = [f"{'who':<22} {'what':<22} {'events/s':>9} {'low - high':>19}"]
    for one in document["results"]:
        spread = f"{one['low']:,} - {one['high']:,}"
        lines.append(f"{one['who']:<22} {one['what']:<22} {one['rate']:>9,} {spread:>19}")
    lines += ["", *(f"  {value:>7.2f}x  {name}" for name, value in document["ratios"].items())]
    return "\n".join([*lines, *([document["missing"]] if document["missing"] else [])])
