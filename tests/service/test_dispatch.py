"""One event, published once: push and poll tell the same id, key and seq (B1-B3, C4)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from oncegate import Gate
from oncegate.errors import BadEndpoint, BadOutgoing
from oncegate.feed import Feed
from oncegate.feed.operations import Publish
from oncegate.model.backlog import Backlog
from oncegate.model.canonical import canonical_json
from oncegate.model.trace import Context
from oncegate.receiver.incoming import LanePosition
from oncegate.receiver.lanes import Turn, turn_of
from oncegate.sender.addresses import AddressPolicy
from oncegate.sender.emission import wire_event
from oncegate.sender.endpoint_registry import EndpointChange
from oncegate.sender.endpoints import new_endpoint
from oncegate.sender.sender import SenderOnCommits
from oncegate.service.settings import DeliverySettings
from oncegate.store import Delivery, HeadsWanted, Store
from oncegate.stores.postgres import PostgresStore
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing.waiting import wait_until
from tests.service.site import Site, TeamHandler, settings

POLICY = AddressPolicy.of(allow_http=True, allow_loopback=True)
WORD = EndpointChange("ann", "a test")


def _follow(sender: SenderOnCommits, name: str, tenant: str, url: str = "http://127.0.0.1:9/") -> None:
    sender.endpoints.add(new_endpoint(name, url, follows=tenant), WORD)


def _pushed(team: TeamHandler) -> list[tuple[str, str, int]]:
    bodies = [(key.strip('"'), json.loads(body)) for key, body in team.got]
    return [(event_id, body["key"], body["seq"]) for event_id, body in bodies]


def _publish(site: Site, event_id: str, key: str = "k") -> dict[str, Any]:
    answer = site.partner("POST", "/v1/events", {"id": event_id, "key": key, "data": {"n": event_id}})
    assert answer.status == 200
    return dict(answer.document)


def test_push_and_poll_deliver_the_same_id_key_and_seq(site: Site) -> None:
    """Also to an endpoint that began to follow when there were events already; nobody else's come."""
    team, late, stranger = TeamHandler(), TeamHandler(), TeamHandler()
    with team.serving() as url, late.serving() as late_url, stranger.serving() as other_url:
        _follow(site.service.sender, "from-the-start", "acme", url)
        _follow(site.service.sender, "others", "other", other_url)
        _publish(site, "e-1")
        _follow(site.service.sender, "late", "acme", late_url)
        for number in (2, 3, 4):
            _publish(site, f"e-{number}", "k" if number < 4 else "another")
        assert _publish(site, "e-3")["replay"] is True
        wait_until(lambda: len(team.got) == 4 and len(late.got) == 3, what="the deliveries")
        polled = site.partner("GET", "/wes/v1/dispatch/pending").document["events"]

    told = [(event["id"], event["key"], event["seq"]) for event in polled]
    assert told == [("e-1", "k", 1), ("e-2", "k", 2), ("e-3", "k", 3), ("e-4", "another", 1)]
    for got in (team, late):
        pushed = _pushed(got)
        assert [one for one in pushed if one[1] == "k"] == [one for one in told if one[1] == "k"][
            -len(pushed) + 1 :
        ]
        assert ("e-4", "another", 1) in pushed
    assert stranger.got == []


def test_what_was_published_while_nobody_delivered_is_sent_later(tmp_path: Path) -> None:
    """Given a process that does not deliver; when another one does; then it sends what is there."""
    team = TeamHandler()
    with team.serving() as url:
        with Site(tmp_path, settings(delivery=DeliverySettings(enabled=False))).serving() as site:
            _follow(site.service.sender, "team", "acme", url)
            _publish(site, "e-1")
        assert team.got == []
        with Site(tmp_path, settings()).serving():
            wait_until(lambda: len(team.got) == 1, what="the delivery")

    assert _pushed(team) == [("e-1", "k", 1)]


def test_a_follower_that_takes_nothing_stops_publishing_and_leaves_no_gap(tmp_path: Path) -> None:
    """Given a limit of two; the third is 429 and not in the feed; another tenant is not concerned (I18)."""
    with Site(tmp_path, settings(delivery=DeliverySettings(enabled=False))).serving() as site:
        site.service.sender.backlog = Backlog(2)
        _follow(site.service.sender, "down", "acme")
        event = {"key": "k", "data": 1}
        answers = [site.partner("POST", "/v1/events", {"id": f"e-{n}", **event}) for n in range(3)]
        other = site.partner("POST", "/v1/events", {"id": "e-9", **event}, site.other)
        kept = site.partner("GET", "/wes/v1/dispatch/pending").document["events"]

    assert [answer.status for answer in answers] == [200, 200, 429]
    assert (answers[2].problem, int(answers[2].headers["retry-after"]) > 0) == ("too-many", True)
    assert other.status == 200
    assert [event["id"] for event in kept] == ["e-0", "e-1"]


@pytest.mark.parametrize("event_id", ["a.b", "", "é", "a\nb", 7, None, "x" * 256])
def test_an_id_that_could_not_be_sent_is_400_whoever_follows(shared: Site, event_id: Any) -> None:
    answer = shared.partner("POST", "/v1/events", {"id": event_id, "key": "k", "data": 1})
    assert (answer.status, answer.problem) == (400, "malformed")


@pytest.fixture(params=["sqlite", "postgres"])
def gate(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Gate]:
    """A gate on each of the stores."""
    store: Store
    if request.param == "sqlite":
        store = SqliteStore(tmp_path / "ledger.db")
    else:
        store = PostgresStore(request.getfixturevalue("ledger_url"))
    with Gate(store=store) as opened:
        opened.engine.store.migrate()
        yield opened


def _leased(gate: Gate, name: str) -> list[Delivery]:
    session = gate.engine.store.connect()
    try:
        with session.unit():
            return list(session.lease_heads(HeadsWanted(((name, 10),), 1000, 7)).deliveries)
    finally:
        session.close()


def test_publication_and_deliveries_are_one_transaction(gate: Gate) -> None:
    """Given a unit that is undone after it published; then neither is there, and the seq is given again."""
    sender, feed = SenderOnCommits(gate.engine.commits, policy=POLICY), Feed(gate)
    _follow(sender, "team", "acme")
    item = feed.item("acme", "e-1", "k", 1)
    session = gate.engine.store.connect()
    with contextlib.suppress(ZeroDivisionError), session.unit():
        assert Publish.run(session, [Publish(item)])[0].seq == 1
        raise ZeroDivisionError
    session.close()
    assert (feed.read_sync("r", tenant="acme").events, _leased(gate, "team")) == ((), [])

    assert feed.publish_sync(tenant="acme", event_id="e-2", key="k", data=2).seq == 1
    (event,) = feed.read_sync("r", tenant="acme").events
    (delivery,) = _leased(gate, "team")
    assert (event.id, event.seq) == (delivery.event_id, wire_event(delivery).seq) == ("e-2", 1)


def test_a_batch_keeps_the_order_of_each_key(gate: Gate) -> None:
    sender, feed = SenderOnCommits(gate.engine.commits, policy=POLICY), Feed(gate)
    _follow(sender, "team", "acme")
    session = gate.engine.store.connect()
    with session.unit():
        wanted = [Publish(feed.item("acme", f"e-{n}", f"k-{n % 2}", n)) for n in range(6)]
        answers = Publish.run(session, wanted)
    with session.unit():
        lanes = [session.find_lane("team", "acme", f"k-{n}") for n in (0, 1)]
        told = [
            [(one.event_id, one.seq) for one in session.deliveries(lane.lane_id, 1, 10)]
            for lane in lanes
            if lane is not None
        ]
    session.close()

    assert [answer.seq for answer in answers] == [1, 1, 2, 2, 3, 3]
    assert told == [[("e-0", 1), ("e-2", 2), ("e-4", 3)], [("e-1", 1), ("e-3", 2), ("e-5", 3)]]


def test_a_followers_lanes_have_no_gaps(gate: Gate) -> None:
    """What would make one is refused: another's events, a name used before, a change of whom it follows."""
    sender, feed = SenderOnCommits(gate.engine.commits, policy=POLICY), Feed(gate)
    _follow(sender, "team", "acme")
    feed.publish_sync(tenant="acme", event_id="e-1", key="k", data=1)
    with pytest.raises(BadOutgoing, match="published for acme"):
        sender.emit_sync("team", key="k", type="t", payload=1)
    with pytest.raises(BadEndpoint, match="cannot be changed"):
        sender.endpoints.change(
            "team", lambda one: msgspec.structs.replace(one, follows="other"), WORD, "changed"
        )
    sender.endpoints.remove("team", WORD)
    with pytest.raises(BadEndpoint, match="another name"):
        _follow(sender, "team", "acme")


@pytest.mark.parametrize(
    ("seq", "previous", "published", "wire"),
    [
        (1, None, 1, (1, None)),  # followed from the start
        (1, None, 8, (8, 0)),  # began to follow later
        (3, None, 10, (10, None)),
        (3, 1, 10, (10, 8)),  # lane seq 2, published as 9, was given up
        (3, 0, 10, (10, 0)),  # all before it were
        (3, 1, None, (3, 1)),  # emitted, not published
    ],
)
def test_receivers_see_the_feeds_seq(
    seq: int, previous: int | None, published: int | None, wire: tuple[int, int | None]
) -> None:
    context = msgspec.json.encode(Context(seq=published))
    delivery = Delivery(
        1, 1, 7, "team", "acme", "k", seq, 1, "e", "event", b"1", context, 0, 0, previous_seq=previous
    )

    event = wire_event(delivery)

    assert (event.seq, event.previous_seq) == wire
    place = LanePosition(
        "k", event.seq, event.seq - 1 if event.previous_seq is None else event.previous_seq
    )
    if wire[1] == 0:
        assert turn_of(place, 0) is Turn.NOW


def test_an_event_is_passed_on_as_it_is_stored(site: Site) -> None:
    """Taking it apart for every reader would keep the loop of all tenants busy."""
    data = {"ä": [1, 2.5, None, True, {"deep": "\u2028</script>"}], "big": 2**53 - 1, "empty": {}}
    assert site.partner("POST", "/v1/events", {"id": "e-1", "key": "k", "data": data}).status == 200

    (told,) = site.partner("GET", "/wes/v1/dispatch/pending").document["events"]
    (event,) = site.service.feed.read_sync("other", tenant="acme").events

    assert told["data"] == data
    assert bytes(event.data) == canonical_json(data)
