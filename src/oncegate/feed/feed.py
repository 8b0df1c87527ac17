"""The feed as users see it: publish, read with a cursor, acknowledge, see how far readers are behind.

Every call exists for tasks and, as `…_sync`, for threads. Must never hand out a cursor beyond an event that
has not been handed out, and never move a reader back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import nullcontext
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec.structs import replace

from oncegate.clock import from_wall_ms
from oncegate.commit.operations import Operation
from oncegate.errors import Conflict, CursorExpired, EventNotStorable, InputRefused, UsageError
from oncegate.feed.cursors import Cursors
from oncegate.feed.dispatch import KIND, deliveries
from oncegate.feed.operations import (
    Acknowledge,
    FindPublished,
    Publish,
    ReadFeed,
    ReadPositions,
    ReadSecret,
)
from oncegate.feed.values import Ack, Event, Page, Publication, Reader
from oncegate.feed.waking import Waking
from oncegate.gate.facade import GateOnStore
from oncegate.gate.runtime.tracing import inherited_context
from oncegate.model.canonical import canonical_json, fingerprint_of
from oncegate.model.event_types import TYPE_LENGTH_MAX, is_type
from oncegate.model.limits import cannot_be_carried
from oncegate.model.surface import CARRIED_BYTES_MAX, check_name
from oncegate.model.trace import Context, decode_context, encode_context, named
from oncegate.store import Document, Facet, Outgoing, Placed, require
from oncegate.store import feed as store
from oncegate.store.feed import Publishing

T = TypeVar("T")

ID_LENGTH_MAX: Final = 255
PAGE_MAX: Final = 1_000
LOOK_EVERY_SECONDS: Final = 0.5  # for events that another process published; our own wake us at once
WAIT_SECONDS_MAX: Final = 60.0
OLDEST: Final = "oldest"
_BEYOND: Final = "the cursor is beyond the end of this feed; was the ledger restored?"
_FROM_START: Final[dict[str | None, int | None]] = {None: None, OLDEST: 0}


class Feed:
    """The feeds of all tenants on one gate's ledger.

    What is published goes to the endpoints that follow its tenant, in the same transaction. `decode` makes
    an event's data of the JSON that is stored: the service, which only passes it on, leaves it as it is.
    `pages_at_once` bounds how many pages `read` takes from the ledger at a time, in one event loop.
    """

    def __init__(
        self,
        gate: GateOnStore,
        *,
        decode: Callable[[bytes], Any] = msgspec.json.decode,
        pages_at_once: int | None = None,
    ) -> None:
        require(gate.engine.store, Facet.FEED, "feeds")
        self._decode = decode
        self._commits, self._clock = gate.engine.commits, gate.engine.clock
        self._store = gate.engine.store
        self._waking = Waking()
        self._cursors: Cursors | None = None
        self._pages = nullcontext() if pages_at_once is None else asyncio.Semaphore(pages_at_once)

    async def publish(
        self,
        *,
        tenant: str = "",
        event_id: str,
        key: str,
        data: Any,
        type: str | None = None,  # noqa: A002  the word that senders and receivers use
        tx: object = None,
        context: Context | None = None,
    ) -> Publication:
        """Publishes an event once; the same id with another content raises Conflict.

        With `tx`, the event becomes visible when that open transaction of yours commits. `context` is the
        journey that it belongs to; in a handler it is that of the event which the handler runs for. `type`
        is what endpoints choose by.
        """
        item = self.item(tenant, event_id, key, data, typed(context, type))
        if tx is None:
            return await self.publish_item(item)
        return self._told(item, await self._join_async(tx, item))

    async def publish_item(self, item: store.EventToPublish) -> Publication:
        """Publishes what `item` has made."""
        return self._told(item, await self._commits.submit_async(Publish(item)))

    def publish_sync(
        self,
        *,
        tenant: str = "",
        event_id: str,
        key: str,
        data: Any,
        type: str | None = None,  # noqa: A002  the word that senders and receivers use
        tx: object = None,
        context: Context | None = None,
    ) -> Publication:
        """Publishes an event once, from a thread; as `publish`."""
        item = self.item(tenant, event_id, key, data, typed(context, type))
        published = self._commits.submit(Publish(item)) if tx is None else self._join(tx, item)
        return self._told(item, published)

    def _join(self, tx: object, item: store.EventToPublish) -> store.Published:
        self._learn([item.tenant])
        joined = self._store.join(tx)
        if joined.is_async:
            raise UsageError("tx= is async; await feed.publish(…) instead")
        published = cast("store.Published", joined.publish_one(item))
        if published.publishing is Publishing.NEW:
            known = cast("list[Document]", joined.documents(KIND))
            for event in deliveries(known, [(item, published.seq)]):
                self._learn(_names(event))
                joined.enqueue_one(event)
        return published

    async def _join_async(self, tx: object, item: store.EventToPublish) -> store.Published:
        joined = self._store.join(tx)
        if not joined.is_async:
            return self._join(tx, item)
        await asyncio.to_thread(self._learn, [item.tenant])
        published = await cast("Awaitable[store.Published]", joined.publish_one(item))
        if published.publishing is Publishing.NEW:
            known = await cast("Awaitable[list[Document]]", joined.documents(KIND))
            for event in deliveries(known, [(item, published.seq)]):
                await asyncio.to_thread(self._learn, _names(event))
                await cast("Awaitable[Placed]", joined.enqueue_one(event))
        return published

    def _learn(self, names: list[str]) -> None:
        if not self._store.knows(names):
            self._store.learn(names)

    def item(
        self, tenant: str, event_id: str, key: str, data: Any, context: Context | None = None
    ) -> store.EventToPublish:
        """What is stored of an event; for `publish_item`, where it is made in another thread."""
        if tenant:
            check_name("tenant", tenant)
        body = canonical_json(data)
        if len(body) > CARRIED_BYTES_MAX:
            raise EventNotStorable(f"the event is {len(body)} bytes, more than {CARRIED_BYTES_MAX}")
        if (why := cannot_be_carried(body)) is not None:
            raise EventNotStorable(f"the event {why}")
        _check_text("id", event_id)
        _check_text("key", key)
        context = context or inherited_context()
        event_type = None if context is None else context.type
        if event_type is not None and not (is_type(event_type) and event_type.isascii()):
            most = TYPE_LENGTH_MAX
            raise InputRefused("wrong_type", "type", f"must be 1 to {most} printable ASCII characters")
        content = fingerprint_of(canonical_json([key] if event_type is None else [key, event_type]) + body)
        kept = b"" if context is None else encode_context(named(context))
        return store.EventToPublish(tenant, event_id, key, body, content, self._clock.wall_ms(), kept)

    def _told(self, item: store.EventToPublish, published: store.Published) -> Publication:
        if published.publishing is Publishing.CONFLICT:
            raise Conflict(f"event {item.event_id} was published with another content")
        self._waking.wake(item.tenant)
        known = published.publishing is Publishing.KNOWN
        return Publication(item.event_id, item.key, published.seq, known)

    async def find(self, event_id: str, *, tenant: str = "") -> int | None:
        """The seq of an event that was published and is still kept."""
        if not _is_text(event_id):
            return None
        found = await self._commits.submit_async(FindPublished((tenant, event_id)))
        return None if found is None else found[1]

    async def read(
        self,
        reader: str,
        *,
        tenant: str = "",
        since: str | None = None,
        limit: int = 100,
        wait_seconds: float = 0.0,
    ) -> Page:
        """Reads events after a cursor, or after what the reader acknowledged; may wait for the first.

        `since="oldest"` begins with the oldest event that is still kept.
        """
        page = await self._read_page(reader, tenant, since, limit)
        ends_at = self._clock.ticks_ms() + int(min(wait_seconds, WAIT_SECONDS_MAX) * 1000)
        while not page.events and (left_ms := ends_at - self._clock.ticks_ms()) > 0:
            if self._waking.is_closed:
                break
            await self._waking.wait(tenant, min(left_ms / 1000, LOOK_EVERY_SECONDS))
            page = await self._read_page(reader, tenant, page.next_cursor, limit)
        return page

    async def _read_page(self, reader: str, tenant: str, since: str | None, limit: int) -> Page:
        async with self._pages:
            return await self._drive_async(self._read_flow(reader, tenant, since, limit))

    def end_waiting(self) -> None:
        """Gives all who wait for an event what there is. From then on no reader waits."""
        self._waking.close()

    def read_sync(
        self, reader: str, *, tenant: str = "", since: str | None = None, limit: int = 100
    ) -> Page:
        """Reads events after a cursor, or after what the reader acknowledged, from a thread."""
        return self._drive(self._read_flow(reader, tenant, since, limit))

    def _read_flow(self, reader: str, tenant: str, since: str | None, limit: int) -> _Flow[Page]:
        cursors = yield from self._cursors_flow()
        after = _FROM_START.get(since, since)
        if isinstance(after, str):
            after = cursors.read(tenant, after)
        limit = max(1, min(limit, PAGE_MAX))
        page: store.FeedPage = yield ReadFeed(store.FeedWanted(tenant, reader, after, limit))
        _check_place(page)
        events = tuple(
            _shown(event, self._decode(event.body), cursors.make(tenant, event.position))
            for event in page.events
        )
        place = page.events[-1].position if page.events else max(page.after, page.floor)
        # Positions have no gaps: where the page ends before the last one, there is more.
        return Page(events, cursors.make(tenant, place), bool(page.events) and place < page.last)

    def reader(self, name: str, *, tenant: str = "") -> FeedReader:
        """One reader of the feed, for `consume`."""
        return FeedReader(self, check_name("reader", name), tenant)

    async def ack(self, reader: str, cursor: str, *, tenant: str = "") -> Ack:
        """Records that a reader has processed everything up to a cursor; an older one changes nothing."""
        return await self._drive_async(self._ack_flow(reader, tenant, cursor))

    def ack_sync(self, reader: str, cursor: str, *, tenant: str = "") -> Ack:
        """Acknowledges, from a thread; as `ack`."""
        return self._drive(self._ack_flow(reader, tenant, cursor))

    def _ack_flow(self, reader: str, tenant: str, cursor: str) -> _Flow[Ack]:
        check_name("reader", reader)
        cursors = yield from self._cursors_flow()
        position = cursors.read(tenant, cursor)
        wanted = store.FeedAck(tenant, reader, position, self._clock.wall_ms())
        acked: store.Acked = yield Acknowledge(wanted)
        if acked.position < position:
            raise CursorExpired(_BEYOND)
        return Ack(cursors.make(tenant, acked.position), not acked.moved)

    async def readers(self, *, tenant: str = "") -> list[Reader]:
        """Returns how far a tenant's readers are."""
        return await self._drive_async(self._readers_flow(tenant))

    def readers_sync(self, *, tenant: str = "") -> list[Reader]:
        """Returns how far a tenant's readers are, from a thread."""
        return self._drive(self._readers_flow(tenant))

    def _readers_flow(self, tenant: str) -> _Flow[list[Reader]]:
        cursors = yield from self._cursors_flow()
        found: list[store.ReaderPosition] = yield ReadPositions(tenant)
        return [
            Reader(
                one.reader,
                cursors.make(tenant, one.position),
                _time(one.acked_at_ms),
                one.behind,
                None if one.oldest_at_ms is None else _time(one.oldest_at_ms),
            )
            for one in found
        ]

    def _cursors_flow(self) -> _Flow[Cursors]:
        if self._cursors is None:
            self._cursors = Cursors((yield ReadSecret(None)))
        return self._cursors

    async def _drive_async(self, flow: _Flow[T]) -> T:
        answer: Any = None
        while True:
            try:
                operation = flow.send(answer)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            answer = await self._commits.submit_async(operation)

    def _drive(self, flow: _Flow[T]) -> T:
        answer: Any = None
        while True:
            try:
                operation = flow.send(answer)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            answer = self._commits.submit(operation)


_Flow = Generator[Operation[Any], Any, T]


class FeedReader:
    """A named reader of one tenant's feed: what `consume` reads from."""

    def __init__(self, feed: Feed, name: str, tenant: str) -> None:
        self._feed, self._name, self._tenant = feed, name, tenant

    async def read(self, since: str | None, limit: int, wait_seconds: float) -> Page:
        """Reads the events after a cursor; None means after the last acknowledged."""
        return await self._feed.read(
            self._name, tenant=self._tenant, since=since, limit=limit, wait_seconds=wait_seconds
        )

    async def ack(self, cursor: str) -> Ack:
        """Acknowledges everything up to a cursor."""
        return await self._feed.ack(self._name, cursor, tenant=self._tenant)


def typed(context: Context | None, event_type: str | None) -> Context | None:
    """The context of an event that has a type."""
    if event_type is None:
        return context
    return replace(context or inherited_context() or Context(), type=event_type)


def _names(event: Outgoing) -> list[str]:
    return [event.destination, event.tenant, event.type]


def _check_place(page: store.FeedPage) -> None:
    """A cursor before what was removed would skip it, one beyond the end would skip what comes.

    Who begins at 0 has not read anything yet, and gets what is there.
    """
    if 0 < page.after < page.floor:
        raise CursorExpired("events after this cursor have been removed; since=oldest goes on behind them")
    if page.after > page.last:
        raise CursorExpired(_BEYOND)


def _shown(event: store.FeedEvent, data: Any, cursor: str) -> Event:
    context = decode_context(event.context) if event.context else Context()
    travels = (
        context.correlation_id, context.traceparent, context.tracestate, context.planner_id, context.type
    )  # fmt: skip
    given = (msgspec.UNSET if text is None else text for text in travels)
    return Event(event.event_id, event.key, event.seq, _time(event.at_ms), data, cursor, *given)


def _time(wall_ms: int) -> str:
    return from_wall_ms(wall_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _check_text(what: str, text: object) -> None:
    if not isinstance(text, str):
        raise InputRefused("wrong_type", what, "must be text")
    if not _is_text(text):
        raise InputRefused("wrong_type", what, f"must be 1 to {ID_LENGTH_MAX} printable ASCII characters")


def _is_text(text: str) -> bool:
    return 0 < len(text) <= ID_LENGTH_MAX and text.isprintable() and text.isascii()
