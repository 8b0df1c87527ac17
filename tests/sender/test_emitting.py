"""Emitting: event and seq are durable together, in the caller's own transaction, once an id (B1, B2)."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncegate.errors import (
    BadEndpoint,
    BadHeader,
    BadOutgoing,
    BadSecret,
    Conflict,
    Unacceptable,
    UnknownEndpoint,
)
from oncegate.groupcommit import GroupCommit
from oncegate.model.trace import Context
from oncegate.sender.addresses import AddressPolicy
from oncegate.sender.book import Change
from oncegate.sender.endpoints import Endpoint, new_endpoint
from oncegate.sender.sender import Sender
from oncegate.store import DeliveryView, LogKind, Store
from oncegate.stores.postgres import PostgresStore
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing import ManualClock

SECRET = "whsec_" + "c2VjcmV0" * 8
BY_ANN = Change("ann", "first customer")


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A ledger of each kind."""
    clock = ManualClock()
    if request.param == "postgres":
        return PostgresStore(request.getfixturevalue("ledger_url"), clock=clock)
    return SqliteStore(tmp_path / "ledger.db", clock=clock)


@pytest.fixture
def sender(store: Store) -> Iterator[Sender]:
    """A sender with one endpoint called orders."""
    commits = GroupCommit(store)
    found = Sender(commits, clock=ManualClock(), policy=AddressPolicy(allow_http=True))
    found.endpoints.add(endpoint("orders"), BY_ANN)
    yield found
    commits.close()


def endpoint(name: str) -> Endpoint:
    return new_endpoint(name, "https://example.com/hook", secret=SECRET)


def events_of(sender: Sender, key: str, destination: str = "orders") -> list[DeliveryView]:
    with sender.commits.store.look() as session:
        lane = session.find_lane(destination, "", key)
        return [] if lane is None else session.deliveries(lane.lane_id, 1, 100)


def test_events_of_a_key_are_numbered_in_order(sender: Sender) -> None:
    """Each key counts for itself, from 1."""
    first = sender.emit_sync("orders", key="A", type="order.created", payload={"n": 1})
    other = sender.emit_sync("orders", key="B", type="order.created", payload={"n": 1})
    second = sender.emit_sync("orders", key="A", type="order.updated", payload={"n": 2})

    assert [one.seq for one in (first, other, second)] == [1, 1, 2]
    assert [event.event_id for event in events_of(sender, "A")] == [first.event_id, second.event_id]


def test_the_same_id_is_one_event(sender: Sender) -> None:
    """Emitting again after a lost answer changes nothing and tells the same seq."""
    first = sender.emit_sync("orders", key="A", type="t", payload={"n": 1}, event_id="e-1")
    again = asyncio.run(sender.emit("orders", key="A", type="t", payload={"n": 1}, event_id="e-1"))

    assert (first.seq, first.is_new, again.seq, again.is_new) == (1, True, 1, False)
    assert len(events_of(sender, "A")) == 1


def test_the_same_id_with_another_content_is_a_conflict(sender: Sender) -> None:
    """Nobody can put something else under a known id."""
    sender.emit_sync("orders", key="A", type="t", payload={"n": 1}, event_id="e-1")
    with pytest.raises(Conflict, match="another content") as refused:
        sender.emit_sync("orders", key="A", type="t", payload={"n": 2}, event_id="e-1")
    assert refused.value.status == 422
    assert len(events_of(sender, "A")) == 1


@pytest.mark.parametrize("is_committed", [True, False])
def test_event_goes_with_the_users_own_transaction(tmp_path: Path, is_committed: bool) -> None:
    """Committed, it is there; rolled back, it never was, and leaves no gap."""
    store = SqliteStore(tmp_path / "ledger.db")
    commits = GroupCommit(store)
    sender = Sender(commits)
    sender.endpoints.add(endpoint("orders"), BY_ANN)
    connection = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    placed = sender.emit_sync("orders", key="A", type="t", payload={}, tx=connection)
    connection.execute("COMMIT" if is_committed else "ROLLBACK")
    connection.close()

    after = sender.emit_sync("orders", key="A", type="t", payload={})

    assert placed.seq == 1
    assert after.seq == (2 if is_committed else 1)
    commits.close()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"endpoint": "nowhere"}, UnknownEndpoint),
        ({"key": ""}, BadOutgoing),
        ({"key": "a\nb"}, BadOutgoing),
        ({"key": "x" * 300}, BadOutgoing),
        ({"type": ""}, BadOutgoing),
        ({"payload": {"n": object()}}, BadOutgoing),
        ({"payload": "x" * (1024 * 1024)}, BadOutgoing),
        ({"event_id": "has.dot"}, BadOutgoing),
        ({"event_id": "é"}, BadOutgoing),
        ({"event_id": ""}, BadOutgoing),
        ({"event_id": 17}, BadOutgoing),
        ({"event_id": "\ud800"}, BadOutgoing),
        ({"key": 17}, BadOutgoing),
        ({"key": None}, BadOutgoing),
        ({"key": "\ud800"}, BadOutgoing),
        ({"type": 17}, BadOutgoing),
        ({"type": "\ud800"}, BadOutgoing),
        ({"tenant": "a\0"}, BadOutgoing),
        ({"tenant": "\ud800"}, BadOutgoing),
        ({"tenant": "t" * 500}, BadOutgoing),
        ({"context": Context(correlation_id="\ud800")}, BadOutgoing),
    ],
)
def test_what_cannot_be_sent_is_refused_and_nothing_stored(
    sender: Sender, change: dict[str, object], error: type[Unacceptable]
) -> None:
    """A typed error with the reason, before anything is written."""
    assert error.status == 422
    wanted = {"endpoint": "orders", "key": "A", "type": "t", "payload": {}, "event_id": "e-1"} | change
    with pytest.raises(error):
        sender.emit_sync(wanted.pop("endpoint"), **wanted)  # type: ignore[arg-type]
    assert events_of(sender, "A") == []


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"url": "ftp://example.com"}, BadEndpoint),
        ({"url": "https://10.0.0.1/"}, BadEndpoint),
        ({"url": "https://127.1/"}, BadEndpoint),
        ({"url": "https://user@example.com/"}, BadEndpoint),
        ({"secret": "whsec_c2hvcnQ="}, BadSecret),
        ({"secret": "env:not a name"}, BadSecret),
        ({"attempts_max": 0}, BadEndpoint),
        ({"headers": {"X-Seq": "1"}}, BadHeader),
        ({"headers": {"webhook-id": "1"}}, BadHeader),
        ({"headers": {"x-own": "a\r\nx-seq: 9"}}, BadHeader),
    ],
)
def test_an_endpoint_that_cannot_be_used_is_not_added(
    sender: Sender, change: dict[str, object], error: type[Unacceptable]
) -> None:
    """Checked before it is stored."""
    settings = {"url": "https://example.com/", "secret": SECRET} | change
    assert error.status == 422
    with pytest.raises(error):
        sender.endpoints.add(new_endpoint("bad", **settings), BY_ANN)  # type: ignore[arg-type]
    assert [one.name for one in sender.endpoints.all()] == ["orders"]


def test_rotating_a_secret_lets_both_sign_for_a_while(sender: Sender) -> None:
    """The new one first; the old one until its time is over."""
    new = "whsec_" + "bmV3c2Vj" * 8
    now_ms = sender.clock.wall_ms()
    changed = sender.endpoints.change("orders", lambda e: e.rotated(new, now_ms), BY_ANN, "rotated")

    assert len(changed.signing_keys(now_ms)) == 2
    assert len(changed.signing_keys(now_ms + 25 * 3600 * 1000)) == 1
    assert changed.signing_keys(now_ms)[0].sign(b"x") != changed.signing_keys(now_ms)[1].sign(b"x")


def test_no_secret_is_shown_or_logged(sender: Sender) -> None:
    """Neither in repr, nor in what is shown, nor in the log."""
    found = sender.endpoints.get("orders")
    with sender.commits.store.look() as session:
        notes = [r.note for r in session.read_log(0, 100) if r.kind is LogKind.DOCUMENT_CHANGED]

    assert notes == ["endpoint orders added: first customer"]
    for text in (repr(found), str(found.shown()), repr(found.secrets), *map(str, notes)):
        assert SECRET[6:] not in text
