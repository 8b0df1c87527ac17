"""What the gate itself costs in Python: processor time an event, over a store that answers at once.

Everything but the store is the production code: reading the event, key, fingerprint, flows, the handler
with one effect, group commit. Processor time hardly depends on what else the machine does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from statistics import median
from time import process_time
from typing import Any, Final, cast

from oncegate.bench.workload import MODES, event_blocks, run_gate
from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.operations import Operation
from oncegate.commit.pending import Pending
from oncegate.gate.facade import GateOnStore
from oncegate.model.states import Decision
from oncegate.store import (
    ALL_FACETS,
    AuditTrail,
    Capabilities,
    Document,
    DocumentChange,
    Durability,
    Reservation,
    Reserved,
    Session,
    Settlement,
    StepRecords,
    Store,
)
from oncegate.store.incarnations import Incarnations

TARGET_US: Final = 40.0
CONCURRENCY: Final = 256
ROUNDS: Final = 5
MICROSECONDS: Final = 1e6


class NoSession:
    """Every key is new, every settlement is right, and nothing is kept."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._documents: dict[tuple[str, str], Document] = {}

    @contextmanager
    def unit(self, *, wait: bool = True, single: bool = False, patient: bool = True) -> Iterator[None]:
        """A transaction of nothing."""
        yield

    def reserve(self, reservations: Sequence[Reservation]) -> list[Reserved]:
        """Gives a claim on each."""
        return [Reserved(Decision.RUN, next(self._numbers), fence=1) for _ in reservations]

    def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Accepts each."""
        return [True] * len(settlements)

    def progress(self, wanted: Sequence[StepRecords]) -> list[bool]:
        """Accepts each."""
        return [True] * len(wanted)

    def now_ticks(self) -> int:
        """Time stands still."""
        return 0

    def document(self, kind: str, name: str) -> Document | None:
        """A surface's identity, which is read once."""
        return self._documents.get((kind, name))

    def documents(self, kind: str) -> list[Document]:
        """What people decided, which is read once."""
        return [one for (known, _), one in self._documents.items() if known == kind]

    def change_document(self, change: DocumentChange) -> bool:
        """Keeps it in memory."""
        made = Document(change.kind, change.name, 1, change.body or b"", change.at_ms)
        self._documents[change.kind, change.name] = made
        return True

    def observe(self, *_: Any) -> None:
        """Counts no arrivals."""

    def close(self) -> None:
        """Closes nothing."""


class NoStore:
    """A store that is none."""

    capabilities = Capabilities(
        "none", Durability.MEMORY, 1, AuditTrail.NONE, business_writes=True, facets=ALL_FACETS
    )
    incarnations = Incarnations()

    def connect(self) -> NoSession:
        """A session that is none."""
        return NoSession()

    @contextmanager
    def look(self) -> Iterator[NoSession]:
        """The same, for reading."""
        yield NoSession()

    def close(self) -> None:
        """Has nothing to close."""


class AnsweredAtOnce(GroupCommit):
    """Operations without batches: what is left is the gate alone."""

    def submit_nowait(self, operation: Operation[Any]) -> Pending:
        """Answers in the caller's own turn."""
        ticket = Pending(operation)
        (ticket.answer,) = type(operation).run(self._session, [operation])
        return ticket

    _session = cast(Session, NoSession())


def measure_cost(events: int = 10_000, rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """Median and spread of microseconds of processor time an event, without a store."""
    subjects: dict[str, tuple[type[GroupCommit], int]] = {"gate alone": (AnsweredAtOnce, 1)}
    subjects |= {
        f"gate and group commit, {tasks} at once": (GroupCommit, tasks) for tasks in (1, CONCURRENCY)
    }
    runs: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, (commits, tasks) in subjects.items():
            runs.setdefault(name, []).append(_run(commits, events, tasks))
    return [_row(name, found) for name, found in runs.items()]


def _row(name: str, found: list[float]) -> dict[str, Any]:
    return {
        "name": name,
        "us": round(median(found), 1),
        "low": round(min(found), 1),
        "high": round(max(found), 1),
    }


def _run(commits: type[GroupCommit], events: int, tasks: int) -> float:
    store = cast(Store, NoStore())
    gate = GateOnStore(store, commits=commits(store))
    MODES["data"](cast(Any, gate))
    try:
        blocks = event_blocks(events)
        asyncio.run(run_gate(cast(Any, gate), blocks()[: tasks * 4], tasks))
        measured = blocks()
        begun = process_time()
        asyncio.run(run_gate(cast(Any, gate), measured, tasks))
        return (process_time() - begun) / events * MICROSECONDS
    finally:
        gate.close()
