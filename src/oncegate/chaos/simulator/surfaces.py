"""The handlers of a simulated worker, written as users write theirs: one for each way of using the gate."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from oncegate.chaos.simulator.evidence import Intent
from oncegate.chaos.simulator.schedule import Event, Fate
from oncegate.chaos.simulator.services import Service
from oncegate.errors import Failed
from oncegate.gate.gate import Gate
from oncegate.gate.surfaces import Downstream
from oncegate.testing.simulation.actors import current_actor

BOOKINGS = "INSERT bookings"
LEASE_SECONDS = 20.0
ATTEMPTS_MAX = 60
_FAILS_FOR_GOOD: Final = Fate.FAILS_FOR_GOOD.value
_FAILS_FIRST: Final = Fate.FAILS_FIRST.value


def intent_of(event: dict[str, Any]) -> Intent:
    """Who wants what."""
    return Intent(event["surface"], event["tenant"], (event["id"], event["part"]))


def payload_of(event: Event, changed: bool) -> dict[str, Any]:
    """An event as it is sent."""
    first, second = event.ident
    amount = event.amount + changed
    return {
        "surface": event.surface, "tenant": event.tenant, "id": first, "part": second, "amount": amount,
        "fate": event.fate.value,
    }  # fmt: skip


class Handlers:
    """What a worker does with events; registered once and shared by all workers of a process."""

    request_life_max = "1m"

    def __init__(self) -> None:
        self.seats: Downstream
        self.labels: Downstream
        self.mails: Downstream

    @property
    def _room(self) -> Any:
        """The worker whose code is running."""
        return current_actor().owner

    def register(self, gate: Gate) -> None:
        """Declares the downstreams and registers a handler for each surface."""
        self.seats = gate.downstream("seats", honours_key="1h")
        self.labels = gate.downstream(
            "labels", probe=self._find_label, request_life_max=self.request_life_max
        )
        self.mails = gate.downstream("mails")
        rule: dict[str, Any] = {"key": "{id}:{part}", "tenant": "tenant", "attempts_max": ATTEMPTS_MAX}
        gate.handler("book", **rule)(self.book)
        gate.handler("print", **rule)(self.print)
        gate.handler("mail", **rule)(self.mail)
        gate.handler("trip", **rule)(self.trip)
        gate.handler("record", **rule, same_database=True)(self.record)
        gate.handler("pay", **rule, downstream=self.seats)(self.pay)

    async def book(self, event: dict[str, Any], once: Any) -> dict[str, Any]:
        """An effect at a downstream that honours the key; the booking goes with the outcome."""
        await self._begin(event, once.attempt)
        seat = await once.effect(self.seats, self._take_seat, event)
        self._end(event, once.attempt)
        once.commit(writes=[_booking(event)])
        return {"amount": seat["amount"]}

    async def print(self, event: dict[str, Any], once: Any) -> dict[str, Any]:
        """An effect at a downstream that can be asked; the booking in a commit block."""
        await self._begin(event, once.attempt)
        await once.effect(self.labels, self._print_label, event)
        self._end(event, once.attempt)
        async with once.commit() as tx:
            await tx.execute(*_booking(event))
            await asyncio.sleep(0.005)
        return {"amount": event["amount"]}

    async def mail(self, event: dict[str, Any], once: Any) -> dict[str, Any]:
        """An effect that cannot be repeated."""
        await self._begin(event, once.attempt)
        await once.effect(self.mails, self._send_mail, event)
        self._end(event, once.attempt)
        once.commit(writes=[_booking(event)])
        return {"amount": event["amount"]}

    async def trip(self, event: dict[str, Any], once: Any) -> dict[str, Any]:
        """Several effects after each other; those that are done are not done again."""
        await self._begin(event, once.attempt)
        await once.effect(self.labels, self._print_label, event)
        await once.effect(self.seats, self._take_seat, event)
        await once.effect(self.mails, self._send_mail, event)
        self._end(event, once.attempt)
        once.commit(writes=[_booking(event)])
        return {"amount": event["amount"]}

    async def record(self, event: dict[str, Any], once: Any) -> dict[str, Any]:
        """A write in the ledger's own database and nothing else."""
        await self._begin(event, once.attempt)
        await once.tx.execute(*_booking(event))
        self._end(event, once.attempt)
        return {"amount": event["amount"]}

    async def pay(self, event: dict[str, Any], idempotency_key: str = "") -> dict[str, Any]:
        """A function that knows nothing of the gate but takes its key."""
        await self._begin(event, 0)
        seat = await self._call(self._room.seats, event, idempotency_key)
        return {"amount": seat["amount"]}

    async def _begin(self, event: dict[str, Any], attempt: int) -> None:
        self._room.note_start(intent_of(event), event["amount"], attempt)
        await asyncio.sleep(self._room.think_seconds())
        if event["fate"] == _FAILS_FOR_GOOD:
            raise Failed("cannot be done")

    def _end(self, event: dict[str, Any], attempt: int) -> None:
        if event["fate"] == _FAILS_FIRST and attempt == 1:
            raise RuntimeError("a bug that goes away")

    def _call(self, service: Service, event: dict[str, Any], key: str) -> Any:
        actor = current_actor()
        room: Any = actor.owner
        return room.network.call(actor, service, key, intent_of(event), event["amount"])

    async def _take_seat(self, event: dict[str, Any], idempotency_key: str = "") -> dict[str, Any]:
        return await self._call(self._room.seats, event, idempotency_key)  # type: ignore[no-any-return]

    async def _print_label(self, event: dict[str, Any], idempotency_key: str = "") -> dict[str, Any]:
        return await self._call(self._room.labels, event, idempotency_key)  # type: ignore[no-any-return]

    async def _send_mail(self, event: dict[str, Any], idempotency_key: str = "") -> dict[str, Any]:
        return await self._call(self._room.mails, event, idempotency_key)  # type: ignore[no-any-return]

    async def _find_label(self, key: str) -> dict[str, Any] | None:
        return await self._room.network.probe(self._room.labels, key)  # type: ignore[no-any-return]


def _booking(event: dict[str, Any]) -> tuple[str, tuple[str, int]]:
    name = "/".join((event["surface"], event["tenant"], event["id"], event["part"]))
    return (BOOKINGS, (name, event["amount"]))
