"""The feed as users see it, on the embedded ledger."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from typing import Any

import pytest

from oncegate import Conflict, Gate
from oncegate.errors import CursorExpired, CursorRefused, EventError, EventNotStorable, StoreUnavailable
from oncegate.feed import Event, Feed, consume, through_gate
from oncegate.feed.values import Page
from oncegate.model.surface import CARRIED_BYTES_MAX
from oncegate.testing.waiting import DEADLINE_SECONDS
from tests.support.gates import Ledger


def publish(feed: Feed, *ids: str, tenant: str = "acme") -> None:
    for event_id in ids:
        feed.publish_sync(tenant=tenant, event_id=event_id, key="wh-7", data={"task": event_id})


def ids(events: tuple[Event, ...]) -> list[str]:
    return [event.id for event in events]


def test_events_are_read_in_pages_and_acknowledged(ledger: Ledger) -> None:
    """Each page says where to go on; without a cursor a reader goes on after its last ack."""
    feed = Feed(ledger.gate())
    publish(feed, "1", "2", "3")

    first = feed.read_sync("exec", tenant="acme", limit=2)
    second = feed.read_sync("exec", tenant="acme", since=first.next_cursor, limit=2)
    end = feed.read_sync("exec", tenant="acme", since=second.next_cursor)

    assert (ids(first.events), first.has_more) == (["1", "2"], True)
    assert (ids(second.events), second.has_more) == (["3"], False)
    assert (end.events, end.next_cursor) == ((), second.next_cursor)
    assert first.events[1].cursor == first.next_cursor
    assert (first.events[0].key, first.events[0].seq, first.events[0].data) == ("wh-7", 1, {"task": "1"})

    acks = [feed.ack_sync("exec", cursor, tenant="acme") for cursor in (first.next_cursor,) * 2]
    assert [ack.replay for ack in acks] == [False, True]
    assert ids(feed.read_sync("exec", tenant="acme").events) == ["3"]
    assert ids(feed.read_sync("other", tenant="acme").events) == ["1", "2", "3"]


def test_large_events_come_in_pages_that_are_bounded_in_bytes(ledger: Ledger) -> None:
    """Each says that there is more, and goes on exactly behind its last event (I18)."""
    feed = Feed(ledger.gate())
    for event_id in "123456789":
        feed.publish_sync(tenant="acme", event_id=event_id, key="k", data="x" * 1_000_000)

    pages: list[Page] = []
    since = None
    while not pages or pages[-1].has_more:
        pages.append(feed.read_sync("exec", tenant="acme", since=since, limit=1_000))
        since = pages[-1].next_cursor

    assert [len(page.events) for page in pages] == [4, 4, 1]
    assert [event.id for page in pages for event in page.events] == list("123456789")
    assert feed.read_sync("exec", tenant="acme", since=since).events == ()


@pytest.mark.parametrize(("limit", "has_more"), [(1, True), (2, True), (3, False), (4, False)])
def test_a_page_says_whether_there_is_more(ledger: Ledger, limit: int, has_more: bool) -> None:
    feed = Feed(ledger.gate())
    publish(feed, "1", "2", "3")

    page = feed.read_sync("exec", tenant="acme", limit=limit)

    assert (len(page.events), page.has_more) == (min(limit, 3), has_more)


def test_an_older_ack_changes_nothing_also_after_a_restart(ledger: Ledger) -> None:
    feed = Feed(ledger.gate())
    publish(feed, "1", "2")
    one, two = feed.read_sync("exec", tenant="acme").events
    feed.ack_sync("exec", two.cursor, tenant="acme")

    ack = Feed(ledger.gate()).ack_sync("exec", one.cursor, tenant="acme")

    assert (ack.cursor, ack.replay) == (two.cursor, True)


def test_cursors_are_good_for_their_tenant_only(ledger: Ledger) -> None:
    """For reading and for acknowledging alike."""
    feed = Feed(ledger.gate())
    publish(feed, "1")
    publish(feed, "secret", tenant="other")
    cursor = feed.read_sync("exec", tenant="acme").next_cursor

    for attempt in (
        lambda: feed.read_sync("exec", tenant="other", since=cursor),
        lambda: feed.ack_sync("exec", cursor, tenant="other"),
        lambda: feed.read_sync("exec", tenant="acme", since="0"),
        lambda: feed.read_sync("exec", tenant="acme", since=""),
    ):
        with pytest.raises(CursorRefused):
            attempt()


def test_the_same_event_is_published_once(ledger: Ledger) -> None:
    feed = Feed(ledger.gate())
    one: dict[str, Any] = {"tenant": "acme", "event_id": "1", "key": "k", "data": {"a": 1, "b": 2}}

    first, again = feed.publish_sync(**one), feed.publish_sync(**{**one, "data": {"b": 2, "a": 1}})

    assert (first.seq, first.replay, again.seq, again.replay) == (1, False, 1, True)
    for changed in ({"data": {"a": 2}}, {"key": "other"}):
        with pytest.raises(Conflict):
            feed.publish_sync(**{**one, **changed})


@pytest.mark.parametrize(
    "changed",
    [{"event_id": ""}, {"event_id": "x" * 256}, {"event_id": "a\n"}, {"key": "ä"}, {"data": float("nan")}],
)
def test_an_event_that_cannot_be_taken_is_refused(ledger: Ledger, changed: dict[str, Any]) -> None:
    feed = Feed(ledger.gate())
    with pytest.raises(EventError):
        feed.publish_sync(**{"tenant": "acme", "event_id": "1", "key": "k", "data": 1, **changed})
    assert feed.read_sync("exec", tenant="acme").events == ()


def test_who_waits_is_woken_by_the_next_event(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, not when it would look again."""
    monkeypatch.setattr("oncegate.feed.feed.LOOK_EVERY_SECONDS", 3600.0)

    async def scene() -> list[str]:
        feed = Feed(ledger.gate())
        waiting = asyncio.create_task(feed.read("exec", tenant="acme", wait_seconds=3600))
        while not feed._waking._waiting:  # noqa: ASYNC110  there is nothing to await before it waits
            await asyncio.sleep(0)
        await feed.publish(tenant="acme", event_id="1", key="k", data=1)
        return ids((await asyncio.wait_for(waiting, DEADLINE_SECONDS)).events)

    assert asyncio.run(scene()) == ["1"]


def test_a_wait_ends_without_an_event(ledger: Ledger) -> None:
    """With a cursor to go on from."""

    gate = Gate(ledger.url)

    async def scene() -> tuple[int, bool]:
        feed = Feed(gate)
        page = await feed.read("exec", tenant="acme", wait_seconds=0.05)
        again = await feed.read("exec", tenant="acme", since=page.next_cursor)
        return len(page.events), page.next_cursor == again.next_cursor

    with gate:
        assert asyncio.run(scene()) == (0, True)


def test_a_cursor_before_what_was_removed_is_told_so(ledger: Ledger) -> None:
    """Reading on as if nothing were missing would skip events."""
    gate = ledger.gate()
    feed = Feed(gate)
    publish(feed, "1", "2", "3")
    events = feed.read_sync("exec", tenant="acme").events
    feed.ack_sync("exec", events[0].cursor, tenant="acme")
    ledger.clock.advance(60)
    publish(feed, "4")
    with contextlib.closing(gate.engine.store.connect()) as session, session.unit():
        assert session.forget_published(ledger.clock.wall_ms(), 100) == 3

    for since in (events[0].cursor, None):
        with pytest.raises(CursorExpired):
            feed.read_sync("exec", tenant="acme", since=since)
    assert ids(feed.read_sync("exec", tenant="acme", since="oldest").events) == ["4"]
    assert ids(feed.read_sync("exec", tenant="acme", since=events[2].cursor).events) == ["4"]
    assert ids(feed.read_sync("newcomer", tenant="acme").events) == ["4"]


def test_a_cursor_beyond_the_end_of_a_restored_ledger_is_told_so(ledger: Ledger) -> None:
    """What is published next must not be skipped, nor be acknowledged in advance."""
    feed = Feed(ledger.gate())
    publish(feed, "1", "2")
    cursor = feed.read_sync("exec", tenant="acme").next_cursor
    ledger.rows("DELETE FROM oncegate_feed WHERE position = 2")
    ledger.rows("UPDATE oncegate_feed_tenant SET last = 1")

    with pytest.raises(CursorExpired):
        feed.read_sync("exec", tenant="acme", since=cursor)
    with pytest.raises(CursorExpired):
        feed.ack_sync("exec", cursor, tenant="acme")


def test_it_is_told_how_far_readers_are(ledger: Ledger) -> None:
    feed = Feed(ledger.gate())
    publish(feed, "1", "2", "3")
    cursor = feed.read_sync("exec", tenant="acme", limit=1).next_cursor
    feed.ack_sync("exec", cursor, tenant="acme")

    (reader,) = feed.readers_sync(tenant="acme")

    assert (reader.name, reader.cursor, reader.behind) == ("exec", cursor, 2)
    assert feed.readers_sync(tenant="other") == []


def test_publishing_joins_a_transaction_of_yours(ledger: Ledger) -> None:
    """Undone with it, visible with its commit."""
    feed = Feed(ledger.gate())
    publish(feed, "0")
    with contextlib.closing(sqlite3.connect(ledger.path)) as connection:
        for event_id, end in (("undone", connection.rollback), ("kept", connection.commit)):
            connection.execute("BEGIN IMMEDIATE")
            feed.publish_sync(tenant="acme", event_id=event_id, key="wh-7", data=1, tx=connection)
            end()

    events = feed.read_sync("exec", tenant="acme").events
    assert [(event.id, event.seq) for event in events] == [("0", 1), ("kept", 2)]


def test_consuming_acknowledges_only_what_was_dealt_with(ledger: Ledger) -> None:
    """An error keeps its event for the next call, and everything behind it."""
    feed = Feed(ledger.gate())
    publish(feed, "1", "2", "3")
    seen: list[str] = []

    async def apply(event: Event) -> None:
        seen.append(event.id)
        if seen.count(event.id) == 1 and event.id == "2":
            raise StoreUnavailable("down")

    async def scene() -> None:
        reader = feed.reader("exec", tenant="acme")
        with pytest.raises(StoreUnavailable):
            await consume(reader, apply, wait_seconds=0)
        assert [one.behind for one in await feed.readers(tenant="acme")] == [2]
        await consume(reader, apply, wait_seconds=0, go_on=lambda: len(seen) < 4)

    asyncio.run(scene())
    assert seen == ["1", "2", "2", "3"]
    assert [one.behind for one in feed.readers_sync(tenant="acme")] == [0]


def test_consuming_through_a_gate_runs_each_event_once(ledger: Ledger) -> None:
    """Although the acks were lost and everything comes again."""
    gate = ledger.gate()
    feed, done = Feed(gate), list[str]()

    @gate.handler("tasks", key="{id}")
    async def task(event: Any) -> None:
        done.append(event["data"]["task"])

    publish(feed, "1", "2")

    async def scene() -> None:
        rounds = iter([True, False] * 2)
        for name in ("exec", "the same after a crash"):
            await consume(
                feed.reader(name, tenant="acme"),
                through_gate(gate, "tasks"),
                wait_seconds=0,
                go_on=lambda: next(rounds),
            )

    asyncio.run(scene())
    assert done == ["1", "2"]


def test_the_largest_event_that_can_be_published_can_go_through_a_gate(ledger: Ledger) -> None:
    """With the longest id and key; one byte more is refused when it is published, not when it is read."""
    gate = ledger.gate()
    feed, done = Feed(gate), list[int]()

    @gate.handler("tasks", key="{id}")
    async def task(event: Any) -> None:
        done.append(len(event["data"]))

    data = "x" * (CARRIED_BYTES_MAX - 2)
    feed.publish_sync(tenant="acme", event_id="i" * 255, key="k" * 255, data=data)
    with pytest.raises(EventNotStorable):
        feed.publish_sync(tenant="acme", event_id="j", key="k", data=data + "x")

    rounds = iter([True, False])
    source, apply = feed.reader("exec", tenant="acme"), through_gate(gate, "tasks")
    asyncio.run(consume(source, apply, wait_seconds=0, go_on=lambda: next(rounds)))
    assert done == [len(data)]
