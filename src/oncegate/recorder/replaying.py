"""Plays a recording to a gate, and counts what came of it.

The gate is one made for this: the user's handlers on a ledger of its own, with a clock that follows the
recording. What handlers call outside is called for real, so a replay belongs on a module with fakes.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct, field

from oncegate.errors import ConfigError
from oncegate.gate.codec.introspection import is_async, name_of
from oncegate.gate.facade import GateOnStore
from oncegate.gate.surface import Downstream, Surface
from oncegate.recorder.planning import Planned


class ReplayReport(Struct):
    """What a replay came to.

    `effects` is how often something was done: each call of a step or an effect, and for a handler without
    any each run. None where the target does not say. `events` are the recording's, `keys` the target's.
    """

    arrivals: int = 0
    effects: int | None = 0
    events: int = 0
    keys: int | None = None
    verdicts: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)

    @property
    def conflicts(self) -> int:
        """Arrivals of a known key with another content."""
        return self.verdicts["conflict"]

    def value(self, name: str) -> int | None:
        """A number by the name that an expectation uses."""
        if name in ("arrivals", "effects", "events", "keys"):
            found: int | None = getattr(self, name)
            return found
        return self.verdicts[name]

    def differences(self, expected: Mapping[str, int]) -> list[str]:
        """What is not as expected, a sentence each; names are those of `value`."""
        found = []
        for name, number in expected.items():
            value = self.value(name)
            if value != number:
                told = "the target does not say" if value is None else value
                found.append(f"expected {name}={number}, but it is: {told}")
        return found

    def assert_counts(self, **expected: int) -> None:
        """Raises AssertionError unless the numbers are these: `assert_counts(effects=39, conflict=0)`."""
        found = self.differences(expected)
        if found:
            raise AssertionError("; ".join(found))

    def document(self) -> dict[str, Any]:
        """The report for programs."""
        return {
            "arrivals": self.arrivals,
            "events": self.events,
            "keys": self.keys,
            "effects": self.effects,
            "verdicts": dict(sorted(self.verdicts.items())),
            "calls": dict(sorted(self.calls.items())),
        }


class Pace(Protocol):
    """How a replay gets from one moment to the next."""

    async def until(self, at_ms: int) -> None:
        """Returns when the moment has come."""


class Counted:
    """Counts what handlers do."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.effects = 0

    def surface(self, surface: Surface) -> Surface:
        """The surface with its handler counted; one that accepts is run at once instead."""
        if surface.takes_once:
            handler = self._with_once(surface.handler, surface.is_async)
        else:
            handler = self.function(surface.handler, name_of(surface.handler))
        return dataclasses.replace(surface, handler=handler, lane=None)

    def function(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """The same function; each call of it is counted."""

        def note() -> None:
            self.calls[name] += 1
            self.effects += 1

        if is_async(function):

            @functools.wraps(function)
            async def call_async(*arguments: Any, **keywords: Any) -> Any:
                note()
                return await function(*arguments, **keywords)

            return call_async

        @functools.wraps(function)
        def call(*arguments: Any, **keywords: Any) -> Any:
            note()
            return function(*arguments, **keywords)

        return call

    def _with_once(self, handler: Callable[..., Any], awaits: bool) -> Callable[..., Any]:
        if not awaits:

            def run(event: Any, once: Any) -> Any:
                counted = _CountedOnce(once, self)
                value = handler(event, counted)
                counted.ended(name_of(handler))
                return value

            return run

        async def run_async(event: Any, once: Any) -> Any:
            counted = _CountedOnce(once, self)
            value = await handler(event, counted)
            counted.ended(name_of(handler))
            return value

        return run_async


class _CountedOnce:
    """`once` as a handler on replay sees it."""

    def __init__(self, once: Any, counted: Counted) -> None:
        self._once = once
        self._counted = counted
        self._has_acted = False

    def effect(
        self, downstream: Downstream, function: Callable[..., Any], /, *rest: Any, **more: Any
    ) -> Any:
        """As on `once`."""
        self._has_acted = True
        name = more.get("name") or name_of(function)
        return self._once.effect(downstream, self._counted.function(function, name), *rest, **more)

    def step(self, name: str, function: Callable[..., Any], /, *rest: Any, **more: Any) -> Any:
        """As on `once`."""
        self._has_acted = True
        return self._once.step(name, self._counted.function(function, name), *rest, **more)

    def ended(self, name: str) -> None:
        """A handler that did nothing outside has been one effect by itself."""
        if not self._has_acted:
            self._counted.calls[name] += 1
            self._counted.effects += 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._once, name)


def check_surfaces(gate: GateOnStore, plan: Sequence[Planned]) -> None:
    """Raises ConfigError if the recording has a surface that the gate does not."""
    known = {surface.name for surface in gate.engine.surfaces}
    missing = sorted({one.arrival.surface for one in plan} - known)
    if missing:
        raise ConfigError(
            f"the gate has no surface {missing[0][:60]!r}; choose some of the recording's with --surface"
        )


async def replay(
    plan: Sequence[Planned],
    deliver: Callable[[Planned], Awaitable[tuple[str, str | None]]],
    pace: Pace,
    concurrency: int = 1,
) -> ReplayReport:
    """Plays a plan, at most so many arrivals at once; `deliver` returns what came of one, and its key."""
    report = ReplayReport(events=len({one.arrival.event for one in plan}))
    keys: set[str] = set()
    room = asyncio.Semaphore(concurrency)

    async def play(one: Planned) -> None:
        try:
            verdict, key = await deliver(one)
        finally:
            room.release()
        report.arrivals += 1
        report.verdicts[verdict] += 1
        if key is not None:
            keys.add(key)

    try:
        async with asyncio.TaskGroup() as tasks:
            for one in plan:
                await room.acquire()  # before its moment: alone, an arrival waits for the one before it
                await pace.until(one.at_ms)
                tasks.create_task(play(one))
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None  # the first is the one to tell; the others were cancelled
    report.keys = len(keys) if keys else None
    return report


def deliver_to(gate: GateOnStore) -> Callable[[Planned], Awaitable[tuple[str, str | None]]]:
    """Admits arrivals at a gate; what a handler raises is its answer."""
    own_tenant = {surface.name: surface.rule.tenant_path is not None for surface in gate.engine.surfaces}

    async def deliver(one: Planned) -> tuple[str, str | None]:
        surface = one.arrival.surface
        tenant = None if own_tenant[surface] else one.arrival.tenant or None
        try:
            admission = await gate.admit(surface, one.payload, tenant=tenant, actor="recording")
        except Exception as error:  # noqa: BLE001  a handler may raise anything
            return f"raised {type(error).__name__}", None
        return admission.verdict.value, admission.key

    return deliver
