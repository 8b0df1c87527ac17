"""What is published reaches those who follow, by type, with one id, key and seq everywhere (C4, item 5)."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from oncegate import Gate
from oncegate.errors import BadEndpoint, BadOutgoing, Conflict, InputRefused
from oncegate.feed import Feed
from oncegate.model.trace import Context
from oncegate.sender.addresses import AddressPolicy
from oncegate.sender.delivery import DeliveryService
from oncegate.sender.emission import wire_event
from oncegate.sender.endpoint_registry import EndpointChange
from oncegate.sender.endpoints import new_endpoint
from oncegate.sender.request_builder import OutgoingRequest, build_request
from oncegate.signatures.keys import HmacSecret
from oncegate.store import HeadsWanted
from oncegate.wiring.sender import Sender
from tests.support.kafka_mock import MockKafka, records

POLICY = AddressPolicy.of(allow_http=True, allow_loopback=True)
BY_ANN = EndpointChange("ann", "test")
HOOK = "http://127.0.0.1:9/"


class Site:
    """A gate, its feed and its sender on one ledger; `address` is the ledger's own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.gate = Gate(url)
        self.feed, self.sender = Feed(self.gate), Sender(gate=self.gate, policy=POLICY)

    def follow(self, name: str, url: str = HOOK, **settings: Any) -> None:
        self.sender.endpoints.add(new_endpoint(name, url, follows="acme", **settings), BY_ANN)

    def publish(self, event_id: str, event_type: str | None = None, **more: Any) -> int:
        done = self.feed.publish_sync(
            tenant="acme", event_id=event_id, key="W-1", data={"n": event_id}, type=event_type, **more
        )
        return done.seq

    def head(self, destination: str) -> OutgoingRequest:
        """The first event that waits for a destination, as it goes on the wire."""
        with closing(self.gate.engine.store.connect()) as session, session.unit():
            heads = session.lease_heads(HeadsWanted(((destination, 1),), 30_000, 17))
        return wire_event(heads.deliveries[0])

    def waiting(self, destination: str) -> int:
        with self.gate.engine.store.look() as session:
            return sum(one.events for one in session.destinations() if one.name == destination)


@pytest.fixture(params=["sqlite", "postgres"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """One site on each kind of ledger."""
    url = f"sqlite:///{tmp_path}/l.db"
    found = Site(request.getfixturevalue("ledger_url") if request.param == "postgres" else url)
    with found.gate:
        yield found


def test_what_a_program_publishes_reaches_those_who_follow(site: Site) -> None:
    """The delivery has the feed's id, key, seq and type."""
    site.follow("executor")
    site.publish("e-1", "task.planned", context=Context(correlation_id="c-1", planner_id="p-7"))
    event = site.head("executor")
    assert (event.event_id, event.key, event.seq, event.type) == ("e-1", "W-1", 1, "task.planned")
    assert (event.correlation_id, event.planner_id) == ("c-1", "p-7")
    headers = dict(build_request(event, [HmacSecret.generate()], 0).headers)
    assert (headers["x-correlation-id"], headers["x-planner-id"]) == ("c-1", "p-7")


def test_an_event_without_a_type_has_the_usual_one(site: Site) -> None:
    """Receivers that were there before types see no change."""
    site.follow("executor")
    site.publish("e-1")
    assert site.head("executor").type == "event"


def test_an_endpoint_gets_only_the_types_it_asked_for(site: Site) -> None:
    """Its seq is the feed's, and what lies between is said not to come."""
    site.follow("executor", types=("task.*", "stop"))
    for number, event_type in enumerate(("order.paid", None, "stop", "task.planned"), 1):
        assert site.publish(f"e-{number}", event_type) == number
    assert site.waiting("executor") == 2
    event = site.head("executor")
    assert (event.event_id, event.seq, event.previous_seq) == ("e-3", 3, 0)


def test_another_type_under_a_known_id_is_a_conflict(site: Site) -> None:
    """The type is part of the content."""
    site.publish("e-1", "task.planned")
    assert site.publish("e-1", "task.planned") == 1
    with pytest.raises(Conflict):
        site.publish("e-1", "task.cancelled")


def test_a_publication_in_a_users_transaction_reaches_followers_with_it(site: Site) -> None:
    """Rolled back, nothing was published and nothing waits; committed, both are there."""
    site.follow("executor", types=("task.*",))
    site.publish("e-0")
    for event_id, commits in (("e-1", False), ("e-2", True)):
        connection: Any
        if site.url.startswith("sqlite"):
            connection = sqlite3.connect(site.url.removeprefix("sqlite:///"))
            connection.execute("BEGIN IMMEDIATE")
        else:
            connection = psycopg.connect(site.url)
            connection.execute("SELECT 1")  # begins a transaction
        site.publish(event_id, "task.planned", tx=connection)
        (connection.commit if commits else connection.rollback)()
        connection.close()
    assert site.waiting("executor") == 1
    event = site.head("executor")
    assert (event.event_id, event.seq) == ("e-2", 2)


async def test_an_async_transaction_reaches_followers_too(ledger_url: str) -> None:
    """psycopg's async connection, awaited on its own loop."""
    site = Site(ledger_url)
    with site.gate:
        site.follow("executor")
        async with await psycopg.AsyncConnection.connect(ledger_url) as connection:
            await connection.execute("SELECT 1")  # begins a transaction
            await site.feed.publish(tenant="acme", event_id="e-1", key="W-1", data=1, tx=connection)
        assert site.waiting("executor") == 1


@pytest.mark.parametrize("bad", ["", "x" * 121, "tab\t", "ü"])
def test_a_type_that_cannot_travel_is_refused(site: Site, bad: str) -> None:
    """Nothing is published."""
    with pytest.raises(InputRefused, match="type"):
        site.publish("e-1", bad)


@pytest.mark.parametrize("bad", ["", "a*b", "x" * 121])
def test_a_pattern_that_matches_nothing_useful_is_refused(site: Site, bad: str) -> None:
    """A slip in a pattern would lose events in silence."""
    with pytest.raises(BadEndpoint, match="pattern"):
        site.follow("executor", types=(bad,))


async def test_push_poll_and_kafka_tell_the_same(tmp_path: Path, kafka: MockKafka) -> None:
    """One event has one id, key and seq, whichever way it goes."""
    site = Site(f"sqlite:///{tmp_path}/l.db")
    kafka.create("plans")
    with site.gate:
        site.follow("hook")
        site.follow("topic", f"kafka://{kafka.bootstrap}/plans?key=n")
        site.publish("e-1")
        site.publish("e-2", "task.planned", context=Context(planner_id="p-7"))
        page = await site.feed.read("reader", tenant="acme")
        async with DeliveryService(site.sender, runs=False) as service:
            service.engine.remove("hook")
            await service.engine.run_once()
        pushed = site.head("hook")
    polled = [(one.id, one.key, one.seq) for one in page.events]
    found = [
        {name: text.decode() for name, text in one.headers()}
        for one in records(kafka.bootstrap, "plans", 2)
    ]
    assert polled == [(one["id"], one["key"], int(one["seq"])) for one in found]
    assert polled[0] == (pushed.event_id, pushed.key, pushed.seq)
    assert (found[1]["type"], found[1]["planner-id"]) == ("task.planned", "p-7")
    assert json.loads(json.dumps(page.events[1].planner_id)) == "p-7"


@pytest.mark.parametrize("is_sync", [True, False])
async def test_one_emit_goes_to_several_endpoints_under_one_id(site: Site, is_sync: bool) -> None:
    """Those that do not take the type are left out; again with the same id it is one event."""
    for name, types in (("a", ()), ("b", ("task.*",)), ("c", ("order.*",))):
        site.sender.endpoints.add(new_endpoint(name, HOOK, types=types), BY_ANN)
    event: dict[str, Any] = {"key": "W-1", "type": "task.planned", "payload": {}, "event_id": "e-1"}
    for is_new in (True, False):
        names = ["a", "b", "c"]
        done = (
            site.sender.emit_to_sync(names, **event)
            if is_sync
            else await site.sender.emit_to(names, **event)
        )
        assert {name: (one.event_id, one.seq, one.is_new) for name, one in done.items()} == {
            "a": ("e-1", 1, is_new),
            "b": ("e-1", 1, is_new),
        }
    with pytest.raises(BadOutgoing, match="takes no events of type"):
        await site.sender.emit("c", **event)
