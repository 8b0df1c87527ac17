"""Several processes on one ledger: how fast together, how evenly, and who uses the processors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from oncegate.bench.processor import ticks
from oncegate.testing.postgres import PostgresServer

TASKS = 64
WAIT_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Together:
    """One run of some processes beside the server.

    `slowest` is the slowest process' rate against the mean. The others are processors in use: 1.0 is one
    core all the time.
    """

    rate: float
    slowest: float
    clients: float
    server: float


def run_together(server: PostgresServer, url: str, count: int, events: int) -> Together:
    """Starts processes that admit events of their own at the same time, and waits for them."""
    command = [sys.executable, "-m", "oncegate.bench.worker", url, str(events), str(TASKS)]
    before = server_seconds(server)
    workers = [
        subprocess.Popen([*command, f"p{count}-{number}"], stdout=subprocess.PIPE)
        for number in range(count)
    ]
    answers = [json.loads(worker.communicate(timeout=WAIT_SECONDS)[0]) for worker in workers]
    begun = min(answer["begun"] for answer in answers)
    seconds = max(answer["ended"] for answer in answers) - begun
    rates = [answer["events"] / (answer["ended"] - answer["begun"]) for answer in answers]
    return Together(
        rate=sum(answer["events"] for answer in answers) / seconds,
        slowest=min(rates) / (sum(rates) / len(rates)),
        clients=sum(answer["processor"] for answer in answers) / seconds,
        server=(server_seconds(server) - before) / seconds,
    )


def as_document(found: dict[int, list[Together]]) -> dict[str, dict[str, Any]]:
    """Medians over the runs, by the number of processes."""
    return {str(count): _medians([asdict(one) for one in runs]) for count, runs in found.items()}


def _medians(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(median(run[name] for run in runs), 2) for name in runs[0]}


def server_seconds(server: PostgresServer) -> float:
    """Processor time that a server and its processes have used; 0 where the system does not tell."""
    pid = server.pid
    if pid is None or not Path(f"/proc/{pid}/stat").exists():
        return 0.0
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    # Its own, those of processes that have ended, and those of processes that run.
    used = sum(ticks(pid, 4)) + sum(sum(ticks(int(child), 2)) for child in children)
    return used / os.sysconf("SC_CLK_TCK")
