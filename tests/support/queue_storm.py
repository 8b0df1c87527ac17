"""39 slots for 39 containers through a real queue, with workers that are killed at random.

Each container's event is sent several times. Workers are processes of their own; each slot is a row in a
table of the ledger's own file whose primary key is the container, written by the event's own transaction,
and beside it one line in a file for each call of the handler's effect.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from oncegate import Gate
from oncegate.testing.waiting import wait_until

CONTAINERS: Final = 39
SURFACE: Final = "slots"
ROOT: Final = Path(__file__).parents[2]

_PROGRAM: Final = """
import json, os, sys, time
from pathlib import Path
from oncegate import Gate, sources

given = json.loads(os.environ["STORM"])
gate = Gate(given["ledger"])
terminal = gate.downstream("terminal", honours_key="30d")
calls = Path(given["folder"]) / f"calls-{os.getpid()}"

if given["expires"]:  # nothing is extended, and one call in four outlasts its message's lease
    from oncegate.sources.extending import Extender

    async def never(self, traits):
        return

    Extender.run = never

def book(event, idempotency_key):
    if given["expires"] and int(event["container"][1:]) % 4 == 0:
        time.sleep(1.5)
    with calls.open("a") as file:
        file.write(f"{event['container']} {idempotency_key}\\n")
    return f"slot of {event['container']}"

def writes(event):
    return [("INSERT INTO slots (container) VALUES (?)", (event["container"],))]

@gate.handler("slots", key="{container}", lease="2s", retry_base="100ms", retry_cap="1s", writes=writes)
async def slot(event, once):
    return await once.effect(terminal, book, event, name="book")

source = getattr(sources, given["adapter"])(**given["options"])
gate.consume(source, surface="slots", name="storm", concurrency=4)
"""


class Storm:
    """One queue, one ledger, and workers that come and go."""

    def __init__(
        self, folder: Path, adapter: str, options: dict[str, Any], *, expires: bool = False
    ) -> None:
        self.folder, self.ledger = folder, f"sqlite:///{folder}/ledger.db"
        (folder / "storming.py").write_text(_PROGRAM, "utf-8")
        given = {
            "folder": str(folder),
            "ledger": self.ledger,
            "adapter": adapter,
            "options": options,
            "expires": expires,
        }
        self._environment = {**os.environ, "STORM": json.dumps(given), "PYTHONPATH": f"{ROOT}/src:{folder}"}
        self._workers: list[subprocess.Popen[bytes]] = []
        with Gate(self.ledger) as gate:
            gate.engine.store.connect().close()
        with sqlite3.connect(folder / "ledger.db") as database:
            database.execute("CREATE TABLE slots (container TEXT PRIMARY KEY)")

    def bodies(self, copies: int, rng: random.Random) -> list[bytes]:
        """Every container's event so many times, with poison in between."""
        events = [json.dumps({"container": f"C{number:02}"}).encode() for number in range(CONTAINERS)]
        several = events * copies + [b"not json", b'{"container": "C1", "container": "C2"}']
        rng.shuffle(several)
        return several

    def start(self) -> None:
        """Starts one more worker."""
        with (self.folder / "log").open("ab") as output:
            words = [sys.executable, "-m", "oncegate", "worker", "--app", "storming:gate",
                     "--only", "sources,recovery", "--reconcile-every", "1s", "--grace", "3s"]  # fmt: skip
            self._workers.append(
                subprocess.Popen(
                    words, cwd=self.folder, env=self._environment, stdout=output, stderr=output
                )
            )

    def kill_one(self, rng: random.Random) -> None:
        """Ends a worker as kill -9 does, and starts another."""
        victim = self._workers.pop(rng.randrange(len(self._workers)))
        victim.kill()
        victim.wait()
        self.start()

    def stop(self) -> list[int]:
        """Asks all workers to end; returns their exit codes."""
        for worker in self._workers:
            worker.send_signal(signal.SIGTERM)
        return [worker.wait(60) for worker in self._workers]

    def slots(self) -> int:
        """How many containers have a slot."""
        with sqlite3.connect(self.folder / "ledger.db") as database:
            return int(database.execute("SELECT count(*) FROM slots").fetchone()[0])

    def effects(self) -> Counter[str]:
        """The keys that the terminal was called with, by container."""
        lines = [line for path in self.folder.glob("calls-*") for line in path.read_text().splitlines()]
        return Counter(line.split()[0] for line in set(lines))

    def log(self) -> str:
        """What the workers said."""
        return (self.folder / "log").read_text("utf-8", "replace")

    def run(self, is_empty: Callable[[], bool], kills: int, rng: random.Random, workers: int = 2) -> None:
        """Works until every container has its slot and the queue is empty; kills in between."""
        for _ in range(workers):
            self.start()
        for part in range(1, kills + 1):
            wanted = part * CONTAINERS // (kills + 2)
            wait_until(lambda: self.slots() >= wanted, what=f"{wanted} slots; {self.log()[-1500:]}")  # noqa: B023
            self.kill_one(rng)
        wait_until(lambda: self.slots() == CONTAINERS, what=f"all slots; {self.log()[-3000:]}")
        wait_until(is_empty, what=f"an empty queue; {self.log()[-3000:]}", seconds=120)

    def check(self) -> None:
        """One slot and one effect for each container; poison in front of a person."""
        assert self.slots() == CONTAINERS
        effects = self.effects()
        assert len(effects) == CONTAINERS
        assert set(effects.values()) == {1}
        with Gate(self.ledger) as gate, gate.engine.store.look() as session:
            counts = {state.label: count for state, count in session.counts().items() if count}
        assert counts == {"committed": CONTAINERS, "quarantined": 2}, counts
