"""Snapshots and roll-back plans at size: 100,000 objects, 1,000 of them changed by events (E8, E9)."""

from __future__ import annotations

import asyncio
import resource
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Final

from oncegate import Gate
from oncegate.journal.keys import PrivateKey, write_private
from oncegate.wiring.history import history_of

OBJECTS: Final = 100_000
MUTATIONS: Final = 1_000


class Shelf:
    """Objects in memory, changed by events through a mutation."""

    def __init__(self, folder: Path, objects: int) -> None:
        self.objects = {f"route-{number:06d}": _route(number) for number in range(objects)}
        self.gate = gate = Gate(f"sqlite:///{folder / 'ledger.db'}")
        write_private(folder / "key", PrivateKey.generate("bench"))
        gate.snapshots(f"file://{folder}/snapshots", signed_by=f"file:{folder}/key")
        gate.belief("routes")(self.all)
        assign = gate.mutation(
            "route.assign", get=self.objects.get, put=self.objects.__setitem__, belief="routes"
        )(self.assign)

        @gate.handler("visits", key="{id}", same_database=True)
        def visit(event: dict[str, Any]) -> None:
            assign(event["route"], event["carer"])

    def all(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The belief."""
        yield from self.objects.items()

    def assign(self, route: str, carer: str) -> None:
        """The change."""
        self.objects[route] = {**self.objects[route], "carer": carer}


def _route(number: int) -> dict[str, Any]:
    return {
        "carer": f"carer-{number % 700}",
        "day": number % 7,
        "client": f"client-{number}",
        "minutes": 35,
    }


def measure_history(objects: int = OBJECTS, mutations: int = MUTATIONS) -> dict[str, Any]:
    """Takes a first snapshot and one after some changes, and makes a plan back to the first."""
    with tempfile.TemporaryDirectory() as name:
        shelf = Shelf(Path(name), objects)
        history = history_of(shelf.gate)
        before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        first, taken = _timed(lambda: asyncio.run(history.taker().take()))
        peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
        for number in range(mutations):
            event = {
                "id": str(number),
                "route": f"route-{number * (objects // mutations):06d}",
                "carer": "x",
            }
            shelf.gate.admit_sync("visits", event)
        second, _ = _timed(lambda: asyncio.run(history.taker().take()))
        to = history.taker().archive.manifest(1)
        plan, made = _timed(lambda: asyncio.run(history.planner().make(to, "bench")))
        shelf.gate.close()
    return {
        "objects": taken.counts["routes"],
        "mutations": made[0].mutations,
        "lines": len(made[1].lines),
        "first snapshot": first,
        "second snapshot": second,
        "plan": plan,
        "memory growth of the first snapshot, MiB": round(peak_kib / 1024, 1),
    }


def _timed(work: Callable[[], Any]) -> tuple[dict[str, float], Any]:
    wall, processor = perf_counter(), process_time()
    result = work()
    return {
        "seconds": round(perf_counter() - wall, 2),
        "processor seconds": round(process_time() - processor, 2),
    }, result
