"""Simulated downstreams: each keeps its own truth, and answers over a network that may fail.

Three kinds: one honours an idempotency key for a while, one can be asked about a key, one can do neither.
"""

from __future__ import annotations

import asyncio
from contextvars import Context
from enum import Enum
from random import Random
from typing import Any, Final

from lab.simulator.evidence import Call, Effect, Evidence, Intent
from lab.simulator.faults import Faults
from lab.simulator.schedule import Fault, FaultKind
from oncegate.errors import NotApplied
from oncegate.testing.simulation.actors import Actor
from oncegate.testing.simulation.loop import VirtualLoop

TIMEOUT_SECONDS: Final = 10.0
MEMORY_SECONDS: Final = 3600.0  # how long the first kind remembers a key
# A stall this short may fall between the last look at the claim and the request; see docs/proof.md.
GAP_SECONDS_MAX: Final = 30.0


class Kind(Enum):
    """What a downstream can do about repeats."""

    HONOURS = "honours the key for an hour"
    ASKED = "can be asked"
    NEITHER = "neither"


class CallTimedOut(Exception):
    """No answer: whether it happened is not known."""


class Service:
    """One downstream and all that it ever did."""

    def __init__(self, name: str, kind: Kind, evidence: Evidence) -> None:
        self.name = name
        self.kind = kind
        self._evidence = evidence
        self._owned: dict[str, tuple[str, float]] = {}

    def act(self, at: float, key: str, intent: Intent, amount: int) -> str:
        """Does what is asked, or recognises the key."""
        known = self._owned.get(key)
        if known is not None and self.kind is Kind.HONOURS and at < known[1] + MEMORY_SECONDS:
            return known[0]
        resource = f"{self.name}-{len(self._evidence.effects) + 1}"
        self._evidence.effects.append(Effect(at, self.name, intent, amount, resource))
        if known is None or self.kind is Kind.HONOURS:
            self._owned[key] = (resource, at)
        return resource

    def owns(self, key: str) -> str | None:
        """What a key owns here."""
        known = self._owned.get(key)
        return None if known is None else known[0]


class Network:
    """The way to the downstreams."""

    def __init__(self, loop: VirtualLoop, rng: Random, faults: Faults, evidence: Evidence) -> None:
        self._loop = loop
        self._rng = rng
        self._faults = faults
        self._evidence = evidence
        self._nobody = Context()
        self.reserved: set[Intent] = set()

    async def call(
        self, actor: Actor, service: Service, key: str, intent: Intent, amount: int
    ) -> dict[str, Any]:
        """Asks a downstream to act; returns what it handed out."""
        if 0 < actor.stalled_until - self._loop.time() < GAP_SECONDS_MAX:
            await asyncio.sleep(0)
        now = self._loop.time()
        known = intent in self.reserved
        self._evidence.calls.append(Call(now, service.name, intent, actor.name, known))
        resource = await self._exchange(lambda at: service.act(at, key, intent, amount))
        return {"id": resource, "amount": amount}

    async def probe(self, service: Service, key: str) -> dict[str, Any] | None:
        """Asks a downstream what a key owns."""
        resource = await self._exchange(lambda at: service.owns(key))
        return None if resource is None else {"id": resource}

    def _exchange(self, act: Any) -> asyncio.Future[Any]:
        fault = self._faults.call()
        reply = self._loop.create_future()
        self._loop.call_later(TIMEOUT_SECONDS, _time_out, reply)
        kind = None if fault is None else fault.kind
        if kind is not FaultKind.CALL_REQUEST_LOST:
            late = self._travel() + (fault.seconds if fault and kind is FaultKind.CALL_SLOW else 0)
            self._loop.call_later(late, self._arrive, act, reply, fault, context=self._nobody)
        return reply

    def _travel(self) -> float:
        return 0.001 + self._rng.random() * 0.05

    def _arrive(self, act: Any, reply: asyncio.Future[Any], fault: Fault | None) -> None:
        kind = None if fault is None else fault.kind
        if kind is FaultKind.CALL_REFUSED:
            answer: Any = NotApplied("the downstream is overloaded")
        else:
            answer = act(self._loop.time())
        if kind is not FaultKind.CALL_REPLY_LOST:
            self._loop.call_later(self._travel(), _answer, reply, answer, context=self._nobody)


def _answer(reply: asyncio.Future[Any], answer: Any) -> None:
    """Futures wake their tasks in the tasks' own context: the dead and the stalled are not woken here."""
    if reply.done():
        return
    if isinstance(answer, Exception):
        reply.set_exception(answer)
    else:
        reply.set_result(answer)


def _time_out(reply: asyncio.Future[Any]) -> None:
    if not reply.done():
        reply.set_exception(CallTimedOut("no answer"))
