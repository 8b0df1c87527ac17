"""Emitting: event and seq are durable together, in the caller's own transaction, once an id (B1, B2)."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from oncegate.commit.group_commit import GroupCommit
from oncegate.errors import (
    BadEndpoint,
    BadHeader,
    BadOutgoing,
    BadSecret,
    Conflict,
    Unacceptable,
    UnknownEndpoint,
)
from oncegate.model.trace import Context
from oncegate.sender import registration
from oncegate.sender.addresses import AddressPolicy
from oncegate.sender.endpoint_registry import EndpointChange
from oncegate.sender.endpoints import Endpoint, new_endpoint
from oncegate.sender.sender import SenderOnCommits
from oncegate.sender.urls import parse_endpoint_url
from oncegate.store import DeliveryView, LogKind, Store
from oncegate.stores.postgres import PostgresStore
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing import ManualClock
from oncegate.testing.waiting import DEADLINE_SECONDS

SECRET = "whsec_" + "c2VjcmV0" * 8
BY_ANN = EndpointChange("ann", "first customer")


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A ledger of each kind."""
    clock = ManualClock()
    if request.param == "postgres":
        return PostgresStore(request.getfixturevalue("ledger_url"), clock=clock)
    return SqliteStore(tmp_path / "ledger.db", clock=clock)


@pytest.fixture
def sender(store: Store) -> Iterator[SenderOnCommits]:
    """A sender with one endpoint called orders."""
    commits = GroupCommit(store)
    policy = AddressPolicy(allow_http=True)
    found = SenderOnCommits(commits, clock=ManualClock(), policy=policy, resolve=resolve)
    found.endpoints.add(endpoint("orders"), BY_ANN)
    yield found
    commits.close()


ANSWERS = {
    "example.com": ["93.184.215.14"],
    "moved.example": ["93.184.215.15"],
    "inside.example": ["10.0.0.7"],
    "mixed.example": ["93.184.215.14", "169.254.169.254"],
    "mapped.example": ["::ffff:127.0.0.1"],
    "garbled.example": ["not an address"],
    "empty.example": [],
}


def resolve(host: str, port: int) -> list[str]:
    """A resolver that knows a few names; any other does not exist."""
    if host not in ANSWERS:
        raise OSError("Name or service not known")
    return ANSWERS[host]


def endpoint(name: str) -> Endpoint:
    return new_endpoint(name, "https://example.com/hook", secret=SECRET)


def events_of(sender: SenderOnCommits, key: str, destination: str = "orders") -> list[DeliveryView]:
    with sender.commits.store.look() as session:
        lane = session.find_lane(destination, "", key)
        return [] if lane is None else session.deliveries(lane.lane_id, 1, 100)


def test_events_of_a_key_are_numbered_in_order(sender: SenderOnCommits) -> None:
    """Each key counts for itself, from 1."""
    first = sender.emit_sync("orders", key="A", type="order.created", payload={"n": 1})
    other = sender.emit_sync("orders", key="B", type="order.created", payload={"n": 1})
    second = sender.emit_sync("orders", key="A", type="order.updated", payload={"n": 2})

    assert [one.seq for one in (first, other, second)] == [1, 1, 2]
    assert [event.event_id for event in events_of(sender, "A")] == [first.event_id, second.event_id]


def test_the_same_id_is_one_event(sender: SenderOnCommits) -> None:
    """Emitting again after a lost answer changes nothing and tells the same seq."""
    first = sender.emit_sync("orders", key="A", type="t", payload={"n": 1}, event_id="e-1")
    again = asyncio.run(sender.emit("orders", key="A", type="t", payload={"n": 1}, event_id="e-1"))

    assert (first.seq, first.is_new, again.seq, again.is_new) == (1, True, 1, False)
    assert len(events_of(sender, "A")) == 1


def test_the_same_id_with_another_content_is_a_conflict(sender: SenderOnCommits) -> None:
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
    sender = SenderOnCommits(commits)
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
    sender: SenderOnCommits, change: dict[str, object], error: type[Unacceptable]
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
    sender: SenderOnCommits, change: dict[str, object], error: type[Unacceptable]
) -> None:
    """Checked before it is stored."""
    settings = {"url": "https://example.com/", "secret": SECRET} | change
    assert error.status == 422
    with pytest.raises(error):
        sender.endpoints.add(new_endpoint("bad", **settings), BY_ANN)  # type: ignore[arg-type]
    assert [one.name for one in sender.endpoints.all()] == ["orders"]


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("inside.example", "10.0.0.7 is not a public address: 10.0.0.0/8, private"),
        ("mixed.example", "169.254.169.254 hands out a cloud's credentials"),
        ("mapped.example", "127.0.0.0/8, loopback"),
        ("garbled.example", "an unreadable address"),
    ],
)
def test_a_name_with_a_blocked_answer_is_refused_when_it_is_registered(
    sender: SenderOnCommits, host: str, reason: str
) -> None:
    """One blocked answer among public ones is enough; the same when an endpoint moves there."""
    with pytest.raises(BadEndpoint, match=re.escape(host)) as refused:
        sender.endpoints.add(new_endpoint("bad", f"https://{host}/", secret=SECRET), BY_ANN)
    assert reason in str(refused.value)
    with pytest.raises(BadEndpoint, match=re.escape(host)):
        sender.endpoints.change("orders", lambda e: replace(e, url=f"https://{host}/"), BY_ANN, "moved")
    assert [(one.name, one.url) for one in sender.endpoints.all()] == [
        ("orders", "https://example.com/hook")
    ]


@pytest.mark.parametrize("host", ["unknown.example", "empty.example"])
def test_a_name_without_an_address_is_registered_with_a_warning(sender: SenderOnCommits, host: str) -> None:
    """The process that delivers may have another resolver; each connection judges the answer again."""
    warning = sender.endpoints.add(new_endpoint("later", f"https://{host}/", secret=SECRET), BY_ANN)
    assert warning is not None
    assert f"{host} cannot be resolved here" in warning
    assert sender.endpoints.get("later").url == f"https://{host}/"
    moved = new_endpoint("moved", "https://moved.example/", secret=SECRET)
    assert sender.endpoints.add(moved, BY_ANN) is None


def test_a_resolver_that_hangs_does_not_hold_up_a_registration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "RESOLVE_SECONDS_MAX", 0.05)
    released = threading.Event()

    def hang(host: str, port: int) -> list[str]:
        released.wait(DEADLINE_SECONDS)
        return []

    try:
        url = parse_endpoint_url("https://slow.example/", AddressPolicy())
        assert "no answer within" in str(registration.judge_name(url, AddressPolicy(), hang))
    finally:
        released.set()


def test_rotating_a_secret_lets_both_sign_for_a_while(sender: SenderOnCommits) -> None:
    """The new one first; the old one until its time is over."""
    new = "whsec_" + "bmV3c2Vj" * 8
    now_ms = sender.clock.wall_ms()
    changed = sender.endpoints.change("orders", lambda e: e.rotated(new, now_ms), BY_ANN, "rotated")

    assert len(changed.signing_keys(now_ms)) == 2
    assert len(changed.signing_keys(now_ms + 25 * 3600 * 1000)) == 1
    assert changed.signing_keys(now_ms)[0].sign(b"x") != changed.signing_keys(now_ms)[1].sign(b"x")


def test_no_secret_is_shown_or_logged(sender: SenderOnCommits) -> None:
    """Neither in repr, nor in what is shown, nor in the log."""
    found = sender.endpoints.get("orders")
    with sender.commits.store.look() as session:
        notes = [r.note for r in session.read_log(0, 100) if r.kind is LogKind.DOCUMENT_CHANGED]

    assert notes == ["endpoint orders added: first customer"]
    for text in (repr(found), str(found.shown()), repr(found.secrets), *map(str, notes)):
        assert SECRET[6:] not in text
