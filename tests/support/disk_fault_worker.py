"""A worker whose system calls are made to fail from outside: books a few events and says what it was told.

    python disk_fault_worker.py LEDGER CALLS TOLD EVENT...

Every outside call is appended to CALLS as it happens, every answer to TOLD as it is given; both survive a
SIGKILL. Run by `test_disk_faults.py`, under strace. An event called `die` ends the worker there, as
SIGKILL does, with somebody else's connection to the ledger still open.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from typing import Any

from oncegate import Gate, Once
from oncegate.errors import OncegateError


def append(path: str, line: str) -> None:
    """Writes a line that outlives the process, without a system call that is tampered with."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode() + b"\n")
    os.close(file)


def register(gate: Gate, calls: str) -> None:
    """Two surfaces: a slot that honours its key, and a step that nobody can be asked about."""
    terminal = gate.downstream("terminal", honours_key="30d")

    def claim(idempotency_key: str) -> str:
        append(calls, idempotency_key)
        return f"slot of {idempotency_key}"

    @gate.handler("honoured", key="{id}", lease="20s")
    def book(event: dict[str, Any], once: Once) -> str:
        slot = once.effect(terminal, claim)
        once.commit(writes=[("INSERT INTO booking VALUES (?)", (event["id"],))])
        return slot

    @gate.handler("unrepeatable", key="{id}", lease="20s")
    def book_once(event: dict[str, Any], once: Once) -> str:
        slot = once.step("claim", claim)
        with once.commit() as tx:
            tx.execute("INSERT INTO booking VALUES (?)", (event["id"],))
        return slot


def main(ledger: str, calls: str, told: str, *events: str) -> None:
    """Admits each event once, and goes on whatever happens to it."""
    gate = Gate(f"sqlite:///{ledger}")
    register(gate, calls)
    holder = sqlite3.connect(ledger)
    if "die" in events:
        holder.execute("SELECT count(*) FROM booking").fetchone()
    for event in events:
        surface, _, name = event.partition("/")
        if surface == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            answer = gate.admit_sync(surface, {"id": name}).verdict.value
        except OncegateError as error:
            answer = type(error).__name__
        append(told, f"{event} {answer}")
    holder.close()
    gate.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
