"""The journey of an event, from its arrival through handlers and emitted events to the next one (D9)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from oncegate import Gate, Once
from oncegate.cli.main import main
from oncegate.errors import BadOutgoing, OncegateError
from oncegate.feed import Feed, through_gate
from oncegate.feed.values import Page
from oncegate.maintenance.accepted_events import AcceptedWork
from oncegate.maintenance.reconciler import Reconciler
from oncegate.model.states import State
from oncegate.model.trace import Context
from oncegate.receiver import Receiver
from oncegate.sender.addresses import AddressPolicy
from oncegate.sender.delivery import DeliveryService
from oncegate.sender.endpoint_registry import EndpointChange
from oncegate.sender.endpoints import new_endpoint
from oncegate.sender.trace import Hop, HopKind, journey, journey_of
from oncegate.store import EntryFilter
from oncegate.testing.waiting import DEADLINE_SECONDS
from oncegate.wiring import open_store
from oncegate.wiring.sender import Sender
from tests.sender.scripted import Peer, serving

SECRET = "whsec_" + "c2VjcmV0" * 8
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
POLICY = AddressPolicy.of(allow_http=True, allow_loopback=True)


class Ledger:
    """A gate and a sender on one ledger, with two endpoints."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.gate = Gate(store=open_store(url))
        self.sender = Sender(gate=self.gate, policy=POLICY)
        self.add_endpoint("planning", "http://127.0.0.1:9/hook")

    def add_endpoint(self, name: str, url: str) -> None:
        self.sender.endpoints.add(new_endpoint(name, url, secret=SECRET), EndpointChange("ann", "test"))

    def hops(self, text: str) -> list[Hop]:
        with self.gate.engine.store.look() as session:
            return list(journey(session, text).hops)

    def places(self, text: str) -> list[tuple[HopKind, str]]:
        return [(hop.kind, hop.place) for hop in self.hops(text)]


@pytest.fixture(params=["sqlite", "postgres"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    """A ledger of each kind."""
    is_postgres = request.param == "postgres"
    made = Ledger(request.getfixturevalue("ledger_url") if is_postgres else f"sqlite:///{tmp_path}/l.db")
    yield made
    made.gate.close()


def emitting(ledger: Ledger, **options: Any) -> None:
    """Registers a handler that emits one event for each that comes in."""

    @ledger.gate.handler("bookings", key="{id}", **options)
    def book(event: dict[str, Any]) -> str:
        emitted = ledger.sender.emit_sync("planning", key=event["order"], type="booked", payload={})
        return emitted.event_id


EVENT = {"id": "b-1", "order": "o-1", "trip": "trip 7"}
ARRIVED, EMITTED = HopKind.ARRIVED, HopKind.EMITTED
BOTH = [(ARRIVED, "bookings"), (EMITTED, "planning")]


def test_what_a_handler_emits_is_found_from_the_event_that_led_to_it(ledger: Ledger) -> None:
    """Without a correlation id the journey begins at the entry; any of its names leads to all of it."""
    emitting(ledger)
    admission = ledger.gate.admit_sync("bookings", EVENT)

    for text in (admission.key, admission.value, "o-1"):
        assert ledger.places(text) == BOTH, text
    arrived, emitted = ledger.hops("o-1")
    assert emitted.cause == arrived.id == admission.key
    assert emitted.state == "waiting"
    assert ledger.hops("nothing") == []


def test_correlation_id_of_the_event_names_the_journey(ledger: Ledger) -> None:
    """Two arrivals with the same one are one journey; one without is not part of it."""
    emitting(ledger, correlation="{trip}")
    ledger.gate.admit_sync("bookings", EVENT)
    ledger.gate.admit_sync("bookings", {"id": "b-2", "order": "o-2", "trip": "trip 7"})
    ledger.gate.admit_sync("bookings", {"id": "b-3", "order": "o-3"})

    assert sorted(ledger.places("trip 7"), key=str) == sorted(BOTH * 2, key=str)
    assert {hop.correlation_id for hop in ledger.hops("trip 7")} == {"trip 7"}
    assert len(ledger.hops("o-3")) == 2


def test_trace_context_goes_to_downstreams_and_to_what_is_emitted(ledger: Ledger) -> None:
    seen: list[dict[str, str]] = []

    @ledger.gate.handler("bookings", key="{id}")
    def book(event: dict[str, Any], once: Once) -> None:
        seen.append(once.headers)
        ledger.sender.emit_sync("planning", key="o-1", type="booked", payload={})

    ledger.gate.admit_sync("bookings", EVENT, context=Context(traceparent=PARENT, tracestate="a=1"))

    assert (seen[0]["traceparent"], seen[0]["tracestate"]) == (PARENT, "a=1")
    assert ledger.places(PARENT) == ledger.places("0af7651916cd43dd8448eb211c80319c") == BOTH


def test_what_a_handler_calls_is_a_hop_between_what_came_in_and_what_it_emits(ledger: Ledger) -> None:
    """Given a handler with an effect at a downstream; then its journey shows the call, with the key that
    went there."""
    terminal = ledger.gate.downstream("terminal", honours_key="7d")

    def claim_slot(idempotency_key: str) -> dict[str, int]:
        return {"id": 7}

    @ledger.gate.handler("bookings", key="{id}", correlation="{trip}")
    def book(event: dict[str, Any], once: Once) -> None:
        once.effect(terminal, claim_slot)
        ledger.sender.emit_sync("planning", key=event["order"], type="booked", payload={})

    admission = ledger.gate.admit_sync("bookings", EVENT)

    arrived, called, emitted = ledger.hops("trip 7")
    assert [hop.kind for hop in (arrived, called, emitted)] == [ARRIVED, HopKind.CALLED, EMITTED]
    assert (called.place, called.id) == ("terminal", f"{admission.key}:claim_slot")
    assert (called.cause, called.correlation_id) == (admission.key, "trip 7")
    assert called.state.startswith("done")


def test_a_call_that_may_have_happened_says_so_in_its_journey(ledger: Ledger) -> None:
    """Given a downstream that can neither be asked nor called twice, which did not answer."""
    printer = ledger.gate.downstream("printer")

    def print_label() -> None:
        raise TimeoutError

    @ledger.gate.handler("bookings", key="{id}")
    def book(event: dict[str, Any], once: Once) -> None:
        once.effect(printer, print_label)

    with suppress(TimeoutError, OncegateError):
        ledger.gate.admit_sync("bookings", EVENT, context=Context(correlation_id="trip 8"))

    _, called = ledger.hops("trip 8")
    assert (called.kind, called.place) == (HopKind.CALLED, "printer")
    assert called.state == "started, not known to be done"


def test_context_that_is_no_header_does_not_become_one(ledger: Ledger) -> None:
    """A correlation id with a line break names the journey and stays out of requests."""
    seen: list[dict[str, str]] = []
    ledger.gate.handler("bookings", key="{id}")(lambda event, once: seen.append(once.headers))
    for number, text in enumerate(("trip 7", "a\r\nx-evil: 1", "")):
        ledger.gate.admit_sync("bookings", {"id": number}, context=Context(correlation_id=text))
    assert [one.get("X-Correlation-Id") for one in seen] == ["trip 7", None, None]


def test_failed_attempt_that_is_taken_up_again_keeps_its_context(ledger: Ledger) -> None:
    """The second attempt comes without: a worker has only the event."""
    tries = []

    @ledger.gate.handler("bookings", key="{id}")
    def book(event: dict[str, Any], once: Once) -> None:
        tries.append(once.attempt)
        if len(tries) == 1:
            raise ConnectionError("not now")
        ledger.sender.emit_sync("planning", key="o-1", type="booked", payload={})

    with pytest.raises(ConnectionError):
        ledger.gate.admit_sync("bookings", EVENT, context=Context(correlation_id="c-9"))
    assert ledger.places("c-9") == BOTH[:1]
    ledger.gate.admit_sync("bookings", EVENT)

    assert ledger.places("c-9") == BOTH


@pytest.mark.parametrize("by", ["header", "field"])
def test_accepted_event_keeps_its_context_in_its_lane(ledger: Ledger, by: str) -> None:
    """It is found while it waits; what its handler emits later belongs to the same journey."""
    correlation = {"correlation": "{trip}"} if by == "field" else {}
    emitting(ledger, mode="accept", **correlation)
    given = None if by == "field" else Context(correlation_id="trip 7", traceparent=PARENT)
    ledger.gate.admit_sync("bookings", EVENT, context=given)
    assert ledger.places("trip 7") == [(HopKind.ACCEPTED, "bookings")]

    asyncio.run(AcceptedWork(ledger.gate).run_once())

    assert sorted(ledger.places("trip 7"), key=str) == sorted(
        [(HopKind.ACCEPTED, "bookings"), *BOTH], key=str
    )
    (emitted,) = [hop for hop in ledger.hops("trip 7") if hop.kind is EMITTED]
    assert (emitted.correlation_id, emitted.key) == ("trip 7", "o-1")


def test_what_a_handler_publishes_belongs_to_its_journey_and_its_readers_go_on_with_it(
    ledger: Ledger,
) -> None:
    """From the feed to an endpoint that follows, and through the gate of whoever polls."""
    feed = Feed(ledger.gate)
    follower = new_endpoint("follower", "http://127.0.0.1:9/hook", secret=SECRET, follows="acme")
    ledger.sender.endpoints.add(follower, EndpointChange("ann", "test"))

    @ledger.gate.handler("bookings", key="{id}")
    def book(event: dict[str, Any]) -> None:
        feed.publish_sync(tenant="acme", event_id="p-1", key=event["order"], data={})

    @ledger.gate.handler("next", key="{id}")
    async def take(event: dict[str, Any]) -> None: ...

    ledger.gate.admit_sync("bookings", EVENT, context=Context(correlation_id="trip 7", traceparent=PARENT))

    async def read() -> None:
        reader = feed.reader("executor", tenant="acme")
        page = await reader.read(None, 10, 0.0)
        assert [(e.correlation_id, e.traceparent) for e in page.events] == [("trip 7", PARENT)]
        assert msgspec.json.decode(msgspec.json.encode(page), type=Page) == page
        await through_gate(ledger.gate, "next")(page.events[0])

    asyncio.run(read())
    for text in ("trip 7", "p-1"):
        assert sorted(ledger.places(text), key=str) == sorted(
            [
                (ARRIVED, "bookings"),
                (HopKind.PUBLISHED, "feed"),
                (EMITTED, "follower"),
                (ARRIVED, "next"),
            ],
            key=str,
        )


def test_an_event_that_was_published_without_a_context_has_none(ledger: Ledger) -> None:
    feed = Feed(ledger.gate)
    feed.publish_sync(event_id="p-1", key="k", data={})
    page = feed.read_sync("executor", limit=1)
    assert set(msgspec.to_builtins(page.events[0])) == {
        "id",
        "key",
        "seq",
        "published_at",
        "data",
        "cursor",
    }
    assert page.events[0].context is None
    assert ledger.places("p-1") == [(HopKind.PUBLISHED, "feed")]


@pytest.mark.parametrize("how", ["held", "quarantined", "conflict"])
def test_event_that_waits_for_a_person_keeps_its_context(ledger: Ledger, how: str) -> None:
    """It is found while it waits, and once it was let through, with what its handler emits."""
    options: dict[str, dict[str, Any]] = {
        "held": {"approve_first": True},
        "quarantined": {"occurred_at": "at"},
        "conflict": {},
    }
    emitting(ledger, **options[how])
    if how == "conflict":
        ledger.gate.admit_sync("bookings", {**EVENT, "order": "o-0"})
    event = {**EVENT, "at": "2001-01-01T00:00:00Z"} if how == "quarantined" else EVENT
    ledger.gate.admit_sync("bookings", event, context=Context(correlation_id="trip 7"))
    assert ledger.places("trip 7") == [(ARRIVED, "bookings")]

    with ledger.gate.engine.store.look() as session:
        waiting = (State.HELD, State.QUARANTINED)
        (entry,) = session.entries(EntryFilter(waiting), None, 5)
    say = ledger.gate.people.approve if how == "held" else ledger.gate.people.release
    say(entry.entry_id, actor="Ada", reason="genuine")
    Reconciler(ledger.gate, at_once=True).run_once()

    assert ledger.places("trip 7") == BOTH


def test_outside_a_handler_nothing_is_inherited(ledger: Ledger) -> None:
    """Neither after one has run nor beside one; what is given explicitly counts."""
    emitting(ledger)
    ledger.gate.admit_sync("bookings", EVENT)
    ledger.sender.emit_sync("planning", key="o-8", type="t", payload={}, event_id="alone")
    ledger.sender.emit_sync(
        "planning", key="o-9", type="t", payload={}, context=Context(correlation_id="c-1")
    )

    assert [hop.trace_id for hop in ledger.hops("alone")] == [None]
    assert ledger.places("c-1") == [(EMITTED, "planning")]
    with pytest.raises(BadOutgoing):
        ledger.sender.emit_sync(
            "planning", key="k", type="t", payload={}, context=Context(correlation_id="é")
        )


def test_context_that_cannot_travel_is_left_out_and_the_event_runs(ledger: Ledger) -> None:
    emitting(ledger, correlation="{trip}")
    for number, trip in enumerate(["\n", "é", "x" * 600, ["a"], None, True]):
        event = {"id": f"b-{number}", "order": f"o-{number}", "trip": trip}
        assert ledger.gate.admit_sync("bookings", event).value is not None


def test_whole_journey_over_http_into_the_next_surface(
    ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    """Arrival, handler, delivery, arrival at the receiver, its handler's event: one journey."""
    receiver = Receiver(ledger.gate, "slots", secrets=[SECRET])

    @receiver.handler()
    async def slot(event: dict[str, Any]) -> None:
        await ledger.sender.emit("planning", key="slot-1", type="slotted", payload={})

    async def play(peer: Peer) -> None:
        while (request := await peer.request()) is not None:
            head, _, body = request.partition(b"\r\n\r\n")
            headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
            answer = await receiver.receive(headers, body)
            await peer.send(f"HTTP/1.1 {answer.status} X\r\ncontent-length: 0\r\n\r\n".encode())

    @ledger.gate.handler("bookings", key="{id}")
    async def book(event: dict[str, Any]) -> None:
        await ledger.sender.emit("slots", key="o-1", type="booked", payload={})

    async def scenario() -> None:
        async with serving(play) as site, asyncio.timeout(DEADLINE_SECONDS):
            ledger.add_endpoint("slots", f"http://127.0.0.1:{site.port}/hook")
            await ledger.gate.admit("bookings", EVENT)
            async with DeliveryService(ledger.sender, runs=False) as service:
                await service.engine.run_once()

    asyncio.run(scenario())

    expected = [(ARRIVED, "bookings"), (EMITTED, "slots"), (ARRIVED, "slots"), (EMITTED, "planning")]
    assert sorted(ledger.places("slot-1"), key=str) == sorted(expected, key=str)
    hops = {(hop.kind, hop.place): hop for hop in ledger.hops("o-1")}
    assert hops[EMITTED, "slots"].state == "delivered after 1 attempt"
    assert len({hop.trace_id for hop in hops.values()}) == 1

    assert main(["trace", "o-1", "--json", "--url", ledger.url]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {line["place"] for line in lines} == {"bookings", "slots", "planning"}
    assert main(["trace", "o-1", "--url", ledger.url]) == 0
    assert "delivered after 1 attempt" in capsys.readouterr().out
    assert main(["trace", "o-77", "--url", ledger.url]) == 1


def test_another_tenants_events_do_not_push_ones_own_hops_out(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More events of a stranger than are shown, under the same correlation id, before the own (I18)."""
    shown_max = 50
    monkeypatch.setattr("oncegate.sender.trace.HOPS_MAX", shown_max)

    @ledger.gate.handler("orders", key="{id}", tenant="tenant", correlation="{correlation}")
    def handle(event: dict[str, Any]) -> None:
        ledger.sender.emit_sync(
            "planning", key=event["id"], type="t", payload={}, tenant=event["tenant"],
            context=Context(correlation_id="incident-7"),
        )  # fmt: skip

    def send(tenant: str, name: str) -> None:
        event = {"id": name, "tenant": tenant, "correlation": "incident-7"}
        ledger.gate.admit_sync("orders", event)

    for number in range(shown_max // 2 + 10):
        send("loud", f"before-{number}")
    for number in range(3):
        send("quiet", f"own-{number}")

    with ledger.gate.engine.store.look() as session:
        own = journey(session, "incident-7", "quiet")
        everything = journey(session, "incident-7")
        entry = next(iter(session.entries(EntryFilter(label_contains="own-0"), None, 1)))
        of_entry = journey_of(session, entry)
        part = journey_of(session, entry, "quiet")
    wanted = {(kind, f"own-{n}") for kind in (HopKind.ARRIVED, HopKind.EMITTED) for n in range(3)}
    for found in (own, everything, of_entry, part):
        shown = {(hop.kind, hop.key) for hop in found.hops if hop.tenant == "quiet"}
        assert shown == wanted
    assert {hop.tenant for hop in (*own.hops, *part.hops)} == {"quiet"}
    assert (own.is_cut, part.is_cut, everything.is_cut, of_entry.is_cut) == (False, False, True, True)
    assert len(everything.hops) == shown_max
    assert list(everything.hops) == sorted(everything.hops, key=lambda hop: hop.at_ms)
