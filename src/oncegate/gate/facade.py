"""The gate as users see it: register surfaces and downstreams, admit events, wrap plain functions."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack
from weakref import WeakSet

from oncegate.clock import Clock
from oncegate.crashpoints import CrashPoints
from oncegate.errors import OncegateError, UsageError
from oncegate.gate.admission import Admission
from oncegate.gate.functions import OnceDecorator, OnceFunction, finish
from oncegate.gate.gate import GateEngine
from oncegate.gate.options import GateOptions, OnceOptions
from oncegate.gate.registration import Registration, needs_options
from oncegate.gate.runtime.tracing import current_claim
from oncegate.gate.surface import Downstream
from oncegate.model.trace import Context
from oncegate.store import ClaimStore

F = TypeVar("F", bound=Callable[..., Any])
_REPLACED: Final = {"caretakers": "worker", "working": "worker"}


class GateOnStore(Registration):
    """One ledger's gate. Safe to share between threads, tasks and, after a fork, processes.

    `engine` is internal: it is there for oncegate's own packages and changes without notice.
    """

    def __init__(
        self,
        store: ClaimStore,
        *,
        clock: Clock | None = None,
        crashpoints: CrashPoints | None = None,
        **options: Unpack[GateOptions],
    ) -> None:
        self.engine: GateEngine = GateEngine(store, clock=clock, crashpoints=crashpoints, **options)
        LIVE.add(self)

    if not TYPE_CHECKING:  # a type checker must see that these names are missing

        def __getattr__(self, name: str) -> Any:
            new = _REPLACED.get(name)
            if new is None and name != "engine" and hasattr(self.engine, name):
                new = f"engine.{name}"
            hint = "" if new is None else f"; it is gate.{new} now"
            raise AttributeError(f"a gate has no {name!r}{hint}", name=name, obj=self)

    async def admit(
        self,
        surface: str,
        event: Any,
        *,
        tenant: str | None = None,
        tx: object = None,
        context: Context | None = None,
        actor: str | None = None,
    ) -> Admission:
        """Admits an event from a task: runs its handler once, or says why not.

        With `tx`, a same-database handler is reserved, run and settled in that open transaction; the caller
        commits it, or rolls it back if this raises. `context` is the journey that the event belongs to, as
        it came with it (`oncegate trace`). `actor` is the author that the journal names, such as
        "planning-agent/1.4".
        """
        engine = self.engine
        joined = None if tx is None else engine.join(surface, tx)
        found = engine.look(surface, event, tenant, joined, context, actor=actor)
        if isinstance(found, Admission):
            return found
        try:
            return await engine.driver.run_async(found)
        except OncegateError as error:
            error.passed_into = current_claim.get()
            raise

    def admit_sync(
        self,
        surface: str,
        event: Any,
        *,
        tenant: str | None = None,
        tx: object = None,
        context: Context | None = None,
        actor: str | None = None,
    ) -> Admission:
        """Admits an event from a thread: runs its handler once, or says why not; all as in `admit`."""
        engine = self.engine
        if engine.surface(surface).is_async:
            raise UsageError(f"the handler of {surface} is async; await gate.admit(…) instead")
        joined = None if tx is None else engine.join(surface, tx)
        if joined is not None and joined.is_async:
            raise UsageError("tx= is async; await gate.admit(…) instead")
        return finish(engine, engine.look(surface, event, tenant, joined, context, actor=actor))

    @needs_options
    def once(
        self,
        *,
        key: str,
        name: str | None = None,
        downstream: Downstream | None = None,
        **options: Unpack[OnceOptions],
    ) -> OnceDecorator:
        """Makes a plain function run once for each key; a repeat returns the recorded value.

        The key template reads the call's arguments by name: `key="{order_id}"`. What a crash or an
        unexpected error leaves open is decided by what `downstream` can do; without one, by a person.
        """
        given = {**options, "key": key, "downstream": downstream}

        def wrap(function: Callable[..., Any]) -> Any:
            names = sys._getframe(1).f_locals  # a type that is named in an annotation may be local there
            return OnceFunction(self, function, name, dict(given), names).wrapper

        return wrap

    def check_surfaces(self) -> None:
        """Compares every registered surface with what the ledger knows of it, from a thread.

        Raises ConfigError for a key template or a function that the ledger knows otherwise. Each surface is
        compared with its first event anyway; a program that asks at its start is refused before it takes
        any.
        """
        self.engine.check_surfaces()

    def close(self) -> None:
        """Lets running work finish and closes the ledger."""
        self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            # A handler in a thread may wait for something that the loop does: the loop must go on.
            await asyncio.to_thread(self.engine.driver.close)
        finally:
            self.close()


LIVE: Final[WeakSet[GateOnStore]] = WeakSet()


def live_gates() -> tuple[GateOnStore, ...]:
    """Every gate of this process, so that tests find the one a handler is registered with."""
    return tuple(LIVE)
