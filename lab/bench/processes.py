"""Several processes on one ledger: how fast together, how evenly, and who uses the processors.

Every process has as many callers as one alone has: what is asked is what another machine would add. Beside
it stands one process with all the callers of several. Handlers with transactions of their own are measured
in as many processes as pgbench has threads. All begin at the same moment, when the last is ready, and run
for the same time.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from lab.bench.members import Member
from lab.bench.pgbench import THREADS
from lab.bench.processor import ticks
from lab.bench.worker import READY
from oncegate.errors import ConfigError
from oncegate.testing.postgres import PostgresServer

TASKS: Final = 64
PROCESSES: Final = 4
WORKER: Final = (sys.executable, "-m", "lab.bench.worker")
READY_SECONDS: Final = 300.0  # it imports everything and warms up, beside others that do the same
ANSWER_SECONDS: Final = 120.0  # beyond the time that it was told to run


class Crew(NamedTuple):
    """So many processes, each with so many callers, and what their handlers do."""

    processes: int
    tasks: int
    mode: str = "data"


ALONE: Final = Crew(1, TASKS)
TOGETHER: Final = Crew(PROCESSES, TASKS)
ALONE_WITH_ALL: Final = Crew(1, PROCESSES * TASKS)
CREWS: Final = (ALONE, TOGETHER, ALONE_WITH_ALL)
JOINED: Final = Crew(THREADS, 32, "tx= asyncpg")


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


def run_together(server: PostgresServer, url: str, crew: Crew, seconds: float, prefix: str) -> Together:
    """Starts processes, lets them admit events of their own at the same time, and waits for them."""
    words = [*WORKER, url, crew.mode, str(crew.tasks)]
    with ExitStack() as stack:
        members = [
            stack.enter_context(Member([*words, f"{prefix}-{number}"])) for number in range(crew.processes)
        ]
        for member in members:
            _await_ready(member)
        before = server_seconds(server)
        for member in members:
            member.tell(str(seconds))
        answers = [json.loads(member.hear(seconds + ANSWER_SECONDS)) for member in members]
        return _result(answers, server_seconds(server) - before)


def _await_ready(member: Member) -> None:
    if (said := member.hear(READY_SECONDS)) != READY:
        raise ConfigError(f"a process that was to be measured said {said[:80]!r} instead of {READY!r}")


def _result(answers: list[dict[str, float]], server: float) -> Together:
    seconds = max(answer["ended"] for answer in answers) - min(answer["begun"] for answer in answers)
    rates = [answer["events"] / (answer["ended"] - answer["begun"]) for answer in answers]
    return Together(
        rate=sum(answer["events"] for answer in answers) / seconds,
        slowest=min(rates) / (sum(rates) / len(rates)),
        clients=sum(answer["processor"] for answer in answers) / seconds,
        server=server / seconds,
    )


def name_of(crew: Crew) -> str:
    """A crew as people read it."""
    count, tasks, mode = crew
    what = "" if mode == "data" else f"{mode}, "
    several = f"{count} processes, {tasks} at once each"
    return what + (several if count > 1 else f"1 process, {tasks} at once")


def as_document(found: dict[Crew, list[Together]]) -> dict[str, dict[str, Any]]:
    """Medians over the runs of each crew."""
    return {name_of(crew): _medians([asdict(one) for one in runs]) for crew, runs in found.items()}


def gain(found: dict[Crew, list[Together]], crew: Crew) -> float:
    """How much faster several processes are than another crew, in the median of the rounds."""
    return median(
        several.rate / one.rate for several, one in zip(found[TOGETHER], found[crew], strict=True)
    )


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
