"""The sender as programs use it: emit events to endpoints, alone or as part of one's own transaction.

An event and its seq are durable when `emit` returns, or with `tx=` when that transaction commits; what is
rolled back was never emitted. Delivering is `delivery.py`; nothing is sent from here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from oncegate.clock import Clock, SystemClock
from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.lane_operations import CountWaiting, Enqueue, EnqueueTogether
from oncegate.errors import Backlogged, BadOutgoing, Conflict, UsageError
from oncegate.gate.once import AsyncTransaction, Transaction
from oncegate.model.backlog import Backlog
from oncegate.model.kafka_address import parse_kafka_address
from oncegate.model.trace import Context
from oncegate.sender.addresses import AddressPolicy
from oncegate.sender.connector import look_up
from oncegate.sender.emission import Emission, new_event_id, outgoing_of
from oncegate.sender.endpoint_registry import EndpointBook
from oncegate.sender.endpoints import Endpoint
from oncegate.sender.kafka.records import record_key
from oncegate.sender.registration import LookUp
from oncegate.store import Facet, Joined, Outgoing, Placed, Placing, require
from oncegate.store.lanes import LANE_BACKLOG_MAX


class Emitted(Struct, frozen=True):
    """An event's place: its id and its seq among the events of its key. `is_new` is False for a repeat."""

    event_id: str
    seq: int
    is_new: bool


class SenderOnCommits:
    """Emits events to the endpoints of one ledger."""

    def __init__(
        self,
        commits: GroupCommit,
        *,
        clock: Clock | None = None,
        policy: AddressPolicy | None = None,
        backlog_max: int = LANE_BACKLOG_MAX,
        resolve: LookUp = look_up,
    ) -> None:
        self.commits = commits
        self.backlog_max = backlog_max
        self.backlog = Backlog()
        require(commits.store, Facet.LANES, "deliveries")
        self.clock = clock or SystemClock()
        self.endpoints = EndpointBook(commits, self.clock, policy or AddressPolicy(), resolve)
        self._listeners: list[Callable[[], None]] = []

    async def emit(
        self,
        endpoint: str,
        *,
        key: str,
        type: str,  # noqa: A002  the word that senders and receivers use
        payload: Any,
        event_id: str | None = None,
        tenant: str = "",
        context: Context | None = None,
        tx: object = None,
    ) -> Emitted:
        """Emits an event from a task.

        `event_id` makes it safe to emit again: the same id is one event. `tx` is the caller's own open
        transaction on the ledger's database, or the one of a commit block.
        """
        known = self.endpoints.peek(endpoint) or await self.endpoints.find(endpoint)
        event = self._event(
            known,
            Emission(
                endpoint=endpoint,
                key=key,
                type=type,
                payload=payload,
                event_id=event_id,
                tenant=tenant,
                context=context,
            ),
        )
        if tx is None and self._must_count(event):
            self._counted(event, await self.commits.submit_async(CountWaiting(event.destination)))
        self._check_room(event)
        if tx is None:
            placed = await self.commits.submit_async(Enqueue(event))
        elif isinstance(tx, AsyncTransaction):
            placed = await tx.enqueue(event)
        else:
            placed = await _awaited(self._joined(event, tx).enqueue_one(event))
        return self._emitted(event, placed, at_once=tx is None)

    async def emit_to(
        self,
        endpoints: Sequence[str],
        *,
        key: str,
        type: str,  # noqa: A002  the word that senders and receivers use
        payload: Any,
        event_id: str | None = None,
        tenant: str = "",
        context: Context | None = None,
        tx: object = None,
    ) -> dict[str, Emitted]:
        """Emits one event, under one id, to several endpoints in one transaction; else as `emit`.

        Endpoints that take no events of this type are left out. Where one endpoint has no room, the error
        names it and the others keep the event: emit it again with the same `event_id`.
        """
        known = [self.endpoints.peek(name) or await self.endpoints.find(name) for name in endpoints]
        emission = Emission(
            endpoint="", key=key, type=type, payload=payload, event_id=event_id, tenant=tenant,
            context=context,
        )  # fmt: skip
        events = self._events(known, emission)
        for event in events:
            if tx is None and self._must_count(event):
                self._counted(event, await self.commits.submit_async(CountWaiting(event.destination)))
            self._check_room(event)
        if tx is None:
            placed = await self.commits.submit_async(EnqueueTogether(events)) if events else ()
        elif isinstance(tx, AsyncTransaction):
            placed = tuple([await tx.enqueue(event) for event in events])
        else:
            placed = tuple([await _awaited(self._joined(one, tx).enqueue_one(one)) for one in events])
        return self._all_emitted(events, placed, at_once=tx is None)

    def emit_to_sync(
        self,
        endpoints: Sequence[str],
        *,
        key: str,
        type: str,  # noqa: A002  the word that senders and receivers use
        payload: Any,
        event_id: str | None = None,
        tenant: str = "",
        context: Context | None = None,
        tx: object = None,
    ) -> dict[str, Emitted]:
        """Emits one event to several endpoints, from a thread; as `emit_to`."""
        emission = Emission(
            endpoint="", key=key, type=type, payload=payload, event_id=event_id, tenant=tenant,
            context=context,
        )  # fmt: skip
        events = self._events([self.endpoints.get(name) for name in endpoints], emission)
        for event in events:
            if tx is None and self._must_count(event):
                self._counted(event, self.commits.submit(CountWaiting(event.destination)))
            self._check_room(event)
        if tx is None:
            placed = self.commits.submit(EnqueueTogether(events)) if events else ()
        elif isinstance(tx, Transaction):
            placed = tuple([tx.enqueue(event) for event in events])
        else:
            placed = tuple([_plain(self._joined(event, tx), event) for event in events])
        return self._all_emitted(events, placed, at_once=tx is None)

    def _events(self, endpoints: Sequence[Endpoint], emission: Emission) -> tuple[Outgoing, ...]:
        """The event for each endpoint that takes its type, under one id."""
        event_id = new_event_id(self.clock) if emission.event_id is None else emission.event_id
        wanted = {one.name: one for one in endpoints if one.takes(emission.type)}
        return tuple(
            self._event(one, replace(emission, endpoint=name, event_id=event_id))
            for name, one in wanted.items()
        )

    def _all_emitted(
        self, events: Sequence[Outgoing], placed: Sequence[Placed], *, at_once: bool
    ) -> dict[str, Emitted]:
        pairs = zip(events, placed, strict=True)
        return {event.destination: self._emitted(event, one, at_once=at_once) for event, one in pairs}

    def emit_sync(
        self,
        endpoint: str,
        *,
        key: str,
        type: str,  # noqa: A002  the word that senders and receivers use
        payload: Any,
        event_id: str | None = None,
        tenant: str = "",
        context: Context | None = None,
        tx: object = None,
    ) -> Emitted:
        """Emits an event from a thread; as `emit`."""
        event = self._event(
            self.endpoints.get(endpoint),
            Emission(
                endpoint=endpoint,
                key=key,
                type=type,
                payload=payload,
                event_id=event_id,
                tenant=tenant,
                context=context,
            ),
        )
        if tx is None and self._must_count(event):
            self._counted(event, self.commits.submit(CountWaiting(event.destination)))
        self._check_room(event)
        if tx is None:
            placed = self.commits.submit(Enqueue(event))
        elif isinstance(tx, Transaction):
            placed = tx.enqueue(event)
        else:
            placed = _plain(self._joined(event, tx), event)
        return self._emitted(event, placed, at_once=tx is None)

    def _event(self, endpoint: Endpoint, emission: Emission) -> Outgoing:
        if endpoint.follows is not None:
            raise BadOutgoing(
                f"{endpoint.name} gets what is published for {endpoint.follows}, nothing else"
            )
        if not endpoint.takes(emission.type):
            raise BadOutgoing(f"{endpoint.name} takes no events of type {emission.type[:60]!r}")
        event = outgoing_of(emission, self.clock, self.backlog_max)
        if endpoint.is_kafka:
            record_key(event.key, event.payload, parse_kafka_address(endpoint.url).key_field)
        return event

    def _must_count(self, event: Outgoing) -> bool:
        return self.backlog.must_count(event.destination, self.clock.ticks_ms())

    def _counted(self, event: Outgoing, waiting: int) -> None:
        self.backlog.counted(event.destination, waiting, self.clock.ticks_ms())

    def _check_room(self, event: Outgoing) -> None:
        if not self.backlog.takes_one(event.destination):
            raise Backlogged(
                f"about {self.backlog.most} events wait for {event.destination} already; "
                f"{event.event_id} was not stored"
            )

    def _joined(self, event: Outgoing, transaction: object) -> Joined:
        store, names = self.commits.store, (event.destination, event.tenant, event.type)
        joined = store.join(transaction)
        if not store.knows(names):
            store.learn(names)
        return joined

    def _emitted(self, event: Outgoing, placed: Placed, *, at_once: bool) -> Emitted:
        if placed.placing is Placing.CONFLICT:
            raise Conflict(
                f"event {event.event_id} was emitted before with another content; nothing changed"
            )
        if placed.placing is Placing.FULL:
            raise Backlogged(
                f"{event.backlog_max} events of this key wait for {event.destination} already; "
                f"{event.event_id} was not stored"
            )
        if at_once:
            self.wake()
        return Emitted(event.event_id, placed.seq, placed.placing is Placing.NEW)

    def wake(self) -> None:
        """Tells those who listen that there is something to deliver."""
        for listener in self._listeners:
            listener()

    def listen(self, listener: Callable[[], None]) -> None:
        """Calls a function whenever something was emitted here, so that delivery need not wait to look."""
        self._listeners.append(listener)


async def _awaited(answer: Any) -> Placed:
    return (await answer) if inspect.isawaitable(answer) else answer  # type: ignore[no-any-return]


def _plain(joined: Joined, event: Outgoing) -> Placed:
    if joined.is_async:
        raise UsageError("tx= is async; await sender.emit(…) instead")
    return joined.enqueue_one(event)  # type: ignore[return-value]
