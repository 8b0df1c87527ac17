"""The handlers of a simulated worker, written as users write theirs: one for each way of using the gate."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from lab.simulator.evidence import Intent
from lab.simulator.schedule import Event, Fate
from lab.simulator.services import Service
from oncegate.errors import Failed
from oncegate.gate.facade import GateOnStore
from oncegate.gate.surface import Downstream
from oncegate.testing.simulation.actors import current_actor

BOOKINGS = "INSERT bookings"
COUNT = "UPDATE numbers"
INVOICE = "INSERT-NUMBERED invoices"
WRONG = "UPDATE nowhere"
LEASE_SECONDS = 20.0
VERSIONS = 3  # of the program: a worker that starts again is of the next one
OPAQUE_VERSION = 2
ATTEMPTS_MAX = 60
_STEPS: Final = {
    "book": {"seat": "seats"},
    "print": {"label": "labels"},
    "mail": {"mail": "mails"},
    "trip": {"label": "labels", "seat": "seats", "mail": "mails"},
    "quote": {"quote": "seats", "label": "labels"},
}
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


class Unstorable:
    """What a client returns: nothing that a ledger could keep."""


class Handlers:
    """What a worker does with events; registered once and shared by all workers of a process."""

    request_life_max = "1m"
    version = 0

    def __init__(self) -> None:
        self.seats: Downstream
        self.labels: Downstream
        self.mails: Downstream

    @property
    def _room(self) -> Any:
        """The worker whose code is running."""
        return current_actor().owner

    def register(self, gate: GateOnStore) -> None:
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
        gate.handler("invoice", **rule)(self.invoice)
        gate.handler("quote", **rule)(self.quote)
        self._register_swap(gate, rule)

    def _register_swap(self, gate: GateOnStore, rule: dict[str, Any]) -> None:
        """Each version of the program does the same thing in another way."""
        if self.version == OPAQUE_VERSION:
            writes = lambda event: [_booking(event)]  # noqa: E731
            gate.handler("swap", **rule, downstream=self.seats, writes=writes)(self.pay)
        else:
            gate.handler("swap", **rule)(self.swap)

    async def book(self, event: dict[str, Any], once: Any) -> dict[str, Any]:
        """An effect at a downstream that honours the key; the booking goes with the outcome."""
        await self._begin(event, once.attempt)
        seat = await once.effect(self.seats, self._take_seat, event, name="seat")
        self._end(event, once.attempt)
        once.commit(writes=[_booking(event)])
        return {"amount": seat["amount"]}

    async def print(self, event: dict[str, Any], once: Any) -> dict[str, Any]:
        """An effect at a downstream that can be asked; the booking in a commit block."""
        await self._begin(event, once.attempt)
        await once.effect(self.labels, self._print_label, event, name="label")
        self._end(event, once.attempt)
        async with once.commit() as tx:
            await tx.execute(*_booking(event))
            await asyncio.sleep(0.005)
        return {"amount": event["amount"]}

    async def mail(self, event: dict[str, Any], once: Any) -> dict[str, Any]:
        """An effect that cannot be repeated."""
        await self._begin(event, once.attempt)
        await once.effect(self.mails, self._send_mail, event, name="mail")
        self._end(event, once.attempt)
        once.commit(writes=[_booking(event)])
        return {"amount": event["amount"]}

    async def trip(self, event: dict[str, Any], once: Any) -> dict[str, Any]:
        """Several effects after each other; those that are done are not done again."""
        await self._begin(event, once.attempt)
        await once.effect(self.labels, self._print_label, event, name="label")
        await once.effect(self.seats, self._take_seat, event, name="seat")
        await once.effect(self.mails, self._send_mail, event, name="mail")
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

    async def invoice(self, event: dict[str, Any], once: Any) -> dict[str, Any]:
        """Writes that depend on each other, handed over at once with those of other events."""
        self._room.note_start(intent_of(event), event["amount"], once.attempt)
        if event["fate"] == _FAILS_FOR_GOOD:
            raise Failed("cannot be done")
        booking = _booking(event)
        writes: list[tuple[str, tuple[Any, ...]]] = [(COUNT, ()), (INVOICE, booking[1][:1]), booking]
        if event["fate"] == _FAILS_FIRST and once.attempt == 1:
            writes.append((WRONG, ()))
        once.commit(writes=writes)
        return {"amount": event["amount"]}

    async def swap(self, event: dict[str, Any], once: Any) -> dict[str, Any]:
        """An effect whose step is called by another name in each version."""
        await self._begin(event, once.attempt)
        seat = await once.effect(self.seats, self._take_seat, event, name=_swap_step(self.version))
        once.commit(writes=[_booking(event)])
        return {"amount": seat["amount"]}

    async def quote(self, event: dict[str, Any], once: Any) -> dict[str, Any]:
        """A step whose result cannot be kept, before one that may have to wait."""
        await self._begin(event, once.attempt)
        await once.effect(self.seats, self._ask_for_quote, event, name="quote")
        await once.effect(self.labels, self._print_label, event, name="label")
        once.commit(writes=[_booking(event)])
        return {"amount": event["amount"]}

    async def _ask_for_quote(self, event: dict[str, Any], idempotency_key: str = "") -> Unstorable:
        await self._call(self._room.seats, event, idempotency_key)
        return Unstorable()

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


def _swap_step(version: int) -> str:
    return f"seat-{'abc'[version]}"


def warm_up(gate: GateOnStore, version: int) -> None:
    """Lets a gate know its steps, as one does that has handled events before."""
    downstreams = {one.name: one for one in gate.engine.downstreams}
    for surface, steps in _STEPS.items():
        for step, downstream in steps.items():
            gate.engine.surface(surface).declaring.learn(step, downstreams[downstream])
    if version != OPAQUE_VERSION:
        gate.engine.surface("swap").declaring.learn(_swap_step(version), downstreams["seats"])


def _booking(event: dict[str, Any]) -> tuple[str, tuple[str, int]]:
    name = "/".join((event["surface"], event["tenant"], event["id"], event["part"]))
    return (BOOKINGS, (name, event["amount"]))
