"""Messages of task queues, each run once: what the adapters of Celery, dramatiq and FastStream share.

Those frameworks receive and acknowledge. The adapters let the gate run the event and answer one question:
is it on record, or must the message come again, and when?
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from oncegate.errors import UsageError
from oncegate.gate.facade import GateOnStore
from oncegate.gate.surface import Surface
from oncegate.sources.attempts import GateAttempts
from oncegate.sources.contract import Delivery, Traits
from oncegate.sources.decisions import (
    AGAIN_SECONDS,
    Decided,
    Later,
    LedgerAway,
    OnRecord,
    Poisoned,
    StopNow,
)
from oncegate.sources.options import consumption_of
from oncegate.sources.reading import read_delivery

LEDGER_SECONDS: Final = 5.0  # how soon a message comes again that met an absent ledger
WRONG_PROGRAM_SECONDS: Final = 300.0  # a task queue goes on: its message waits for the next deployment

log = logging.getLogger("oncegate.sources")


class ComesAgain(Struct, frozen=True):
    """The event is not on record: deliver the message again after `seconds`."""

    seconds: float
    why: str


class TaskRunner:
    """Brings the messages of one framework to one surface."""

    def __init__(self, gate: GateOnStore, surface: str, kind: str, tenant: str | None = None) -> None:
        self.surface: Surface = gate.engine.surface(surface)
        self._one = consumption_of(_Framework(kind), self.surface, tenant=tenant)
        self._attempts, self._clock = GateAttempts(gate, self._one), gate.engine.clock
        self._traits = Traits(kind=kind, server="", queue=surface)

    def run_sync(self, event: Any, message_id: str) -> OnRecord | ComesAgain:
        """Runs an event that the framework has decoded, from a thread without an event loop."""
        return asyncio.run(self.run(encoded(event), message_id))

    async def run(
        self, body: bytes, message_id: str, headers: Mapping[str, str] | None = None
    ) -> OnRecord | ComesAgain:
        """Runs an event; a message that is no event is quarantined with its bytes."""
        delivery = Delivery(body, message_id, headers or {})
        held = read_delivery(delivery, None, None, self._clock.ticks_ms())
        held.attempts = 1
        decided = await self._attempts.attempt(held)
        if isinstance(decided, Poisoned):
            decided = await self._attempts.keep_poison(held, decided.reason, self._traits)
        return decided if isinstance(decided, OnRecord) else self._again(message_id, decided)

    def _again(self, message_id: str, decided: Decided) -> ComesAgain:
        if isinstance(decided, Later):
            return ComesAgain(decided.seconds, decided.why)
        if isinstance(decided, LedgerAway):
            return ComesAgain(LEDGER_SECONDS, decided.why)
        if isinstance(decided, StopNow):
            log.critical("message %s of %s waits: the program is wrong: %s",
                         message_id, self.surface.name, decided.error)  # fmt: skip
            return ComesAgain(WRONG_PROGRAM_SECONDS, str(decided.error))
        return ComesAgain(AGAIN_SECONDS, getattr(decided, "why", ""))


def encoded(event: Any) -> bytes:
    """A decoded event as JSON; the framework's serializer must keep it so."""
    try:
        return json.dumps(event).encode()  # in ASCII: what no text may hold reaches the strict reader
    except (TypeError, ValueError) as error:
        raise UsageError(f"the event of a task must be JSON: {error}; send plain dicts and lists") from None


class _Framework:
    """Stands for the source: the framework receives and acknowledges itself."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{self.name} receives and acknowledges; a source's {name!r} is not used")
