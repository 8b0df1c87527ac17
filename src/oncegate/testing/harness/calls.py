"""A handler's outside calls as a trial makes them: counted, over a network that loses requests and replies.

A downstream that is declared to honour the key is played as one that does: the same key again is answered
without doing it again, if the call carries the key. What is declared and not passed on shows as a second
effect.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from oncegate.gate.codec.introspection import is_async, name_of
from oncegate.gate.flows.key_injection import KEY_HEADER
from oncegate.gate.surface import Downstream, Surface
from oncegate.testing.harness.mishaps import Mishaps
from oncegate.testing.harness.plans import Trouble
from oncegate.testing.simulation.actors import context_of_nobody

TIMEOUT_SECONDS: Final = 10.0
_COUNTED: Final = "_oncegate_counted"


class Calls:
    """The outside calls of one trial."""

    def __init__(self, mishaps: Mishaps, travel: Callable[[], float]) -> None:
        self.counts: Counter[str] = Counter()
        self._mishaps = mishaps
        self._travel = travel
        self._answers: dict[tuple[str | None, str], Any] = {}

    def counted(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """The function with a network before it; every time that it really runs is counted."""
        return function if getattr(function, _COUNTED, False) else self._played(function, name, None)

    def at(self, downstream: Downstream, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """The function as its downstream plays it: with a memory for keys, if it is said to have one."""
        if downstream.capability.honours_key_for is None:
            return self.counted(function, name)
        plain = inspect.unwrap(function, stop=lambda found: not getattr(found, _COUNTED, False))
        return self._played(plain, name, downstream.name)

    def _played(self, function: Callable[..., Any], name: str, memory: str | None) -> Callable[..., Any]:
        play = self._play_async if is_async(function) else self._play_plain
        played = play(function, name, memory)
        setattr(played, _COUNTED, True)
        return played

    def _play_async(
        self, function: Callable[..., Any], name: str, memory: str | None
    ) -> Callable[..., Any]:
        @functools.wraps(function)
        async def call(*arguments: Any, **keywords: Any) -> Any:
            trouble = self._mishaps.call()
            if memory is not None:
                await asyncio.sleep(self._travel())
            if trouble is Trouble.CALL_REQUEST_LOST:
                await asyncio.sleep(TIMEOUT_SECONDS)
                raise TimeoutError(f"{name}: no answer")
            answer = await asyncio.shield(self._act(function, name, memory, arguments, keywords))
            await asyncio.sleep(TIMEOUT_SECONDS if trouble else self._travel())
            if trouble is Trouble.CALL_REPLY_LOST:
                raise TimeoutError(f"{name}: no answer")
            return answer

        return call

    def _act(
        self, function: Callable[..., Any], name: str, memory: str | None, arguments: Any, keywords: Any
    ) -> asyncio.Task[Any]:
        """What the downstream does, on its own: it goes on when the caller crashes.

        Where the key is not honoured, what was sent is under way on its own, too: if a worker that has
        looked at its claim stood still before its request left, no client could help (docs/proof.md, the
        last look).
        """
        place = (memory, _key_in(keywords))
        if memory is not None and place[1] and place in self._answers:
            return self._answers[place]  # type: ignore[no-any-return]
        self.counts[name] += 1
        loop, travel = asyncio.get_running_loop(), self._travel() if memory is None else 0.0

        async def arrive() -> Any:
            await asyncio.sleep(travel)
            return await function(*arguments, **keywords)

        acting = loop.create_task(arrive(), context=context_of_nobody())
        self._answers[place] = acting
        return acting

    def _play_plain(
        self, function: Callable[..., Any], name: str, memory: str | None
    ) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **keywords: Any) -> Any:
            trouble, place = self._mishaps.call(), (memory, _key_in(keywords))
            if trouble is Trouble.CALL_REQUEST_LOST:
                raise TimeoutError(f"{name}: no answer")
            if memory is None or not place[1] or place not in self._answers:
                self.counts[name] += 1
                self._answers[place] = function(*arguments, **keywords)
            if trouble is Trouble.CALL_REPLY_LOST:
                raise TimeoutError(f"{name}: no answer")
            return self._answers[place]

        return call


class RealCalls(Calls):
    """The outside calls of a trial on a real database: async ones are over when they return."""

    def _play_async(
        self, function: Callable[..., Any], name: str, memory: str | None
    ) -> Callable[..., Any]:
        @functools.wraps(function)
        async def call(*arguments: Any, **keywords: Any) -> Any:
            trouble, place = self._mishaps.call(), (memory, _key_in(keywords))
            if trouble is Trouble.CALL_REQUEST_LOST:
                raise TimeoutError(f"{name}: no answer")
            if memory is None or not place[1] or place not in self._answers:
                self.counts[name] += 1
                self._answers[place] = await function(*arguments, **keywords)
            if trouble is Trouble.CALL_REPLY_LOST:
                raise TimeoutError(f"{name}: no answer")
            return self._answers[place]

        return call


def _key_in(keywords: dict[str, Any]) -> str:
    """The key that a call carries, as the gate passes it on."""
    return str(keywords.get("idempotency_key") or (keywords.get("headers") or {}).get(KEY_HEADER) or "")


class WatchedOnce:
    """`once` as a handler on trial sees it: its effects and steps go through the trial's network."""

    def __init__(self, once: Any, calls: Calls) -> None:
        self._once = once
        self._calls = calls

    def effect(
        self, downstream: Downstream, function: Callable[..., Any], /, *rest: Any, **more: Any
    ) -> Any:
        """As on `once`."""
        played = self._calls.at(downstream, function, more.get("name") or name_of(function))
        return self._once.effect(downstream, played, *rest, **more)

    def step(self, name: str, function: Callable[..., Any], /, *rest: Any, **more: Any) -> Any:
        """As on `once`."""
        return self._once.step(name, self._calls.counted(function, name), *rest, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._once, name)


def on_trial(surface: Surface, calls: Calls) -> Callable[..., Any]:
    """A surface's handler with its outside calls going through the trial."""
    handler = surface.handler
    if not surface.takes_once:
        return handler if surface.same_database else calls.at(surface.opaque_at, handler, name_of(handler))
    if not surface.is_async:
        return lambda event, once: handler(event, WatchedOnce(once, calls))

    async def run(event: Any, once: Any) -> Any:
        return await handler(event, WatchedOnce(once, calls))

    return run
