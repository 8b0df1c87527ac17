"""The path of one event through the packages, from `gate.admit` to its commit.

A profiler hook notes every call of a function of oncegate, in all threads. A package is named by its first
level (`gate`, `commit`), and each store is one (`stores.sqlite`); a module at the root counts as a package.
A change is a call in one package after a call in another. `clock` and `crashpoints` are passed in and lead
nowhere, so they do not count. Called by `python -m lab path`. Must never count the handler.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from types import CodeType, FrameType
from typing import Any, Final

from oncegate.wiring import Gate

LEVELS: Final = 1
LEAVES: Final = frozenset({"clock", "crashpoints"})
WARM_UP: Final = 20  # events before the ones that count: imports, connections, prepared statements
COUNTED: Final = 51  # events; the median path is shown, as background threads add calls to some
SURFACE: Final = "bookings"
_ROOT: Final = "oncegate."


@dataclass(frozen=True, slots=True)
class EventPath:
    """The packages that one event passed through, in order; no two neighbours are the same."""

    steps: tuple[str, ...]

    @property
    def packages(self) -> dict[str, int]:
        """The packages in the order of their first call, each with how often the path enters it."""
        return dict(Counter(self.steps))

    @property
    def changes(self) -> int:
        """How often the path leaves one package for another."""
        return max(0, len(self.steps) - 1)


class CallRecorder:
    """The profiler hook: notes the package of each call while it is on."""

    def __init__(self, levels: int) -> None:
        self._levels = levels
        self._is_on = False
        self._calls: list[str] = []
        self._packages: dict[CodeType, str | None] = {}

    def hook(self, frame: FrameType, event: str, _argument: Any) -> None:
        """Takes one event of `sys.setprofile`."""
        if self._is_on and event == "call" and (package := self._package(frame)) is not None:
            self._calls.append(package)

    async def record(self, gate: Gate, event: dict[str, Any]) -> EventPath:
        """Admits an event and returns its path."""
        self._calls, self._is_on = [], True
        try:
            await gate.admit(SURFACE, event)
        finally:
            self._is_on = False
        return EventPath(tuple(package for package, _ in groupby(self._calls)))

    def _package(self, frame: FrameType) -> str | None:
        code = frame.f_code
        if code not in self._packages:
            module = str(frame.f_globals.get("__name__", ""))
            is_package = code.co_filename.endswith("__init__.py")
            self._packages[code] = package_of(module, self._levels, is_package=is_package)
        return self._packages[code]


def package_of(module: str, levels: int = LEVELS, *, is_package: bool = False) -> str | None:
    """The package of a module by its first levels; None for a leaf, and for what is not oncegate."""
    if not module.startswith(_ROOT):
        return None
    parts = module.removeprefix(_ROOT).split(".")
    named = levels + (parts[0] == "stores")
    package = ".".join((parts if is_package else parts[:-1])[:named]) or parts[0]
    return None if package in LEAVES else package


def path_of_an_event(url: str, levels: int = LEVELS) -> EventPath:
    """Admits events to a gate on a fresh ledger and returns the median path of one."""
    recorder = CallRecorder(levels)
    threading.setprofile(recorder.hook)  # for threads that the gate starts
    try:
        paths = asyncio.run(_record(url, recorder))
    finally:
        threading.setprofile(None)
        sys.setprofile(None)
    return sorted(paths, key=lambda path: path.changes)[len(paths) // 2]


async def _record(url: str, recorder: CallRecorder) -> list[EventPath]:
    sys.setprofile(recorder.hook)
    with _gate(url) as gate:
        for number in range(WARM_UP):
            await gate.admit(SURFACE, {"id": f"warm-up-{number}"})
        return [await recorder.record(gate, {"id": f"counted-{number}"}) for number in range(COUNTED)]


def _gate(url: str) -> Gate:
    gate = Gate(url)
    terminal = gate.downstream("terminal", honours_key="7d")

    async def claim_slot(ident: str, idempotency_key: str) -> dict[str, str]:
        return {"id": f"slot-{ident}"}

    @gate.handler(SURFACE, key="{id}")
    async def book(event: dict[str, Any], once: Any) -> Any:
        return await once.effect(terminal, claim_slot, event["id"], name="claim_slot")

    return gate
