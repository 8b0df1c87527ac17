"""Delivery over real HTTP: signed, in order, retried, given up, throttled, replayed (B1-B6, trap 7)."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from oncegate.errors import ConfigError, StoreUnavailable
from oncegate.sender import delivery
from oncegate.sender.addresses import AddressPolicy
from oncegate.sender.delivery import DeliveryService
from oncegate.sender.endpoint_registry import EndpointChange
from oncegate.sender.endpoints import new_endpoint
from oncegate.sender.http import HttpClient
from oncegate.sender.operator_actions import LaneDecision, LaneVerb, OperatorActions, ReplayJob
from oncegate.store import DestinationState, HeadAnswer, LaneState, LaneView, replay_name
from oncegate.testing import ManualClock
from oncegate.testing.waiting import DEADLINE_SECONDS
from oncegate.wiring import open_store
from oncegate.wiring.sender import Sender
from tests.sender.scripted import Peer, serving

SECRET = "whsec_" + "c2VjcmV0" * 8
BY_ANN = EndpointChange("ann", "test")
WORD = LaneDecision("ann", "their server is back")
Answer = Callable[[dict[str, str], bytes], bytes]


@pytest.fixture(params=["sqlite", "postgres"])
def sender(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sender]:
    """A sender on a ledger of each kind, with a clock that the test moves."""
    clock = ManualClock()
    url = (
        request.getfixturevalue("ledger_url")
        if request.param == "postgres"
        else f"sqlite:///{tmp_path}/l.db"
    )
    policy = AddressPolicy.of(allow_http=True, allow_loopback=True)
    with Sender(store=open_store(url, clock=clock), clock=clock, policy=policy) as found:
        yield found


class Receiver:
    """Answers as told and keeps what it got."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.answer: Answer = lambda headers, body: b"HTTP/1.1 204 No Content\r\n\r\n"

    async def play(self, peer: Peer) -> None:
        while (request := await peer.request()) is not None:
            head, _, body = request.partition(b"\r\n\r\n")
            lines = head.decode().split("\r\n")[1:]
            headers = dict(line.split(": ", 1) for line in lines)
            self.got.append((headers, body))
            await peer.send(self.answer(headers, body))

    def seqs(self, key: str) -> list[int]:
        return [int(h["x-seq"]) for h, _ in self.got if h["x-key"] == key]


def refusing(status: str, *lines: str, when: Callable[[dict[str, str]], bool] = lambda h: True) -> Answer:
    extra = "".join(f"{line}\r\n" for line in lines)

    def answer(headers: dict[str, str], body: bytes) -> bytes:
        if not when(headers):
            return b"HTTP/1.1 204 No Content\r\n\r\n"
        return f"HTTP/1.1 {status}\r\ncontent-length: 0\r\n{extra}\r\n".encode()

    return answer


@asynccontextmanager
async def stage(sender: Sender, **settings: Any) -> Any:
    """A receiver behind the endpoint called orders, and a delivery that runs when told."""
    receiver = Receiver()
    async with serving(receiver.play) as site:
        url = f"http://127.0.0.1:{site.port}/hook"
        sender.endpoints.add(new_endpoint("orders", url, secret=SECRET, **settings), BY_ANN)
        async with DeliveryService(sender, jitter=lambda: 0.999, runs=False) as service:
            yield receiver, service


async def emit(sender: Sender, key: str, count: int = 1) -> None:
    for _ in range(count):
        await sender.emit("orders", key=key, type="order.updated", payload={"n": 1})


def lane(sender: Sender, key: str) -> LaneView:
    with sender.commits.store.look() as session:
        found = session.find_lane("orders", "", key)
        assert found is not None
        return found


def play(scenario: Awaitable[None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await scenario

    asyncio.run(bounded())


def test_each_event_goes_once_in_order_signed_and_named(sender: Sender) -> None:
    """All headers are there; the published verifier accepts the signature."""

    async def scenario() -> None:
        async with stage(sender, headers={"X-Team": "planning"}) as (receiver, service):
            await emit(sender, "A 1", 3)
            done = await service.engine.run_once()

            assert done.delivered == 3
            assert receiver.seqs("A%201") == [1, 2, 3]
            headers, body = receiver.got[0]
            assert headers["idempotency-key"] == f'"{headers["webhook-id"]}"'
            assert headers["x-team"] == "planning"
            assert json.loads(body)["key"] == "A 1"

    play(scenario())


def test_the_published_verifier_accepts_what_is_sent(tmp_path: Path) -> None:
    """With the real time, as a receiver would check it."""

    async def scenario() -> None:
        policy = AddressPolicy.of(allow_http=True, allow_loopback=True)
        with Sender(f"sqlite:///{tmp_path}/l.db", policy=policy) as sender:
            async with stage(sender) as (receiver, service):
                await emit(sender, "A")
                await service.engine.run_once()
                headers, body = receiver.got[0]
                assert Webhook(SECRET).verify(body, headers)["data"] == {"n": 1}

    play(scenario())


def test_a_failing_event_holds_its_key_back_and_no_other(sender: Sender) -> None:
    """Its successors are not sent before it; another key's events all arrive (B3)."""

    async def scenario() -> None:
        async with stage(sender) as (receiver, service):
            receiver.answer = refusing("500 Internal Server Error", when=lambda h: h["x-key"] == "bad")
            await emit(sender, "bad", 2)
            await emit(sender, "good", 5)
            await service.engine.run_once()

            assert receiver.seqs("bad") == [1]
            assert receiver.seqs("good") == [1, 2, 3, 4, 5]
            assert (lane(sender, "bad").attempts, lane(sender, "bad").waiting_behind) == (1, 1)

    play(scenario())


def test_retries_follow_the_schedule_and_end_in_a_dead_letter_that_blocks(sender: Sender) -> None:
    """1, 2, 4 s and the highest jitter; then the key waits for an operator, whose retry frees it."""

    async def scenario() -> None:
        async with stage(sender, attempts_max=3) as (receiver, service):
            receiver.answer = refusing("503 Service Unavailable")
            await emit(sender, "A", 2)
            waits = []
            for _ in range(3):
                waits.append((await service.engine.run_once()).next_due_in_ms)
                sender.clock.advance(4)  # type: ignore[attr-defined]
            assert waits == [1099, 2199, None]
            assert lane(sender, "A").state is LaneState.BLOCKED

            receiver.answer = refusing("200 OK")
            await service.engine.run_once()
            assert receiver.seqs("A") == [1, 1, 1]
            desk, blocked = OperatorActions(sender.commits, sender.clock), lane(sender, "A")
            answer = await asyncio.to_thread(desk.order, LaneVerb.RETRY, blocked.lane_id, 1, WORD)
            await service.engine.run_once()
            assert answer is HeadAnswer.DONE
            assert receiver.seqs("A") == [1, 1, 1, 1, 2]

    play(scenario())


def test_advance_lets_the_next_event_go_and_tells_what_was_left_out(sender: Sender) -> None:
    """The receiver learns from x-previous-seq that seq 1 will not come."""

    async def scenario() -> None:
        async with stage(sender, attempts_max=1, on_dead_letter=_advance()) as (receiver, service):
            receiver.answer = refusing("500 Oops", when=lambda h: h["x-seq"] in "12")
            await emit(sender, "A", 4)
            await service.engine.run_once()

            assert receiver.seqs("A") == [1, 2, 3, 4]
            assert [h["x-previous-seq"] for h, _ in receiver.got] == ["0", "0", "0", "3"]

    play(scenario())


def _advance() -> Any:
    from oncegate.sender.endpoints import OnDeadLetter

    return OnDeadLetter.ADVANCE


@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Service Unavailable"])
def test_a_receiver_that_asks_for_time_gets_it_at_no_attempt(sender: Sender, status: str) -> None:
    """The whole endpoint waits as long as asked; nothing is counted."""

    async def scenario() -> None:
        async with stage(sender) as (receiver, service):
            receiver.answer = refusing(status, "retry-after: 30")
            await emit(sender, "A")
            await service.engine.run_once()
            await emit(sender, "B")
            sender.clock.advance(29)  # type: ignore[attr-defined]
            await service.engine.run_once()
            assert len(receiver.got) == 1
            receiver.answer = refusing("200 OK")
            sender.clock.advance(2)  # type: ignore[attr-defined]
            assert (await service.engine.run_once()).delivered == 2
            assert lane(sender, "A").attempts == 0

    play(scenario())


@pytest.mark.parametrize("asked", ["30", "0"])
def test_an_event_that_a_receiver_has_locked_waits_alone_and_at_no_attempt(
    sender: Sender, asked: str
) -> None:
    """423 with Retry-After is about one event: its key waits, other keys do not (I11)."""

    async def scenario() -> None:
        async with stage(sender) as (receiver, service):
            receiver.answer = refusing("423 Locked", f"retry-after: {asked}")
            await emit(sender, "A", 2)
            await service.engine.run_once()
            receiver.answer = refusing("200 OK")
            await emit(sender, "B")
            assert (await service.engine.run_once()).delivered == 1
            assert (receiver.seqs("A"), receiver.seqs("B")) == ([1], [1])
            assert lane(sender, "A").attempts == 0
            sender.clock.advance(31)  # type: ignore[attr-defined]
            assert (await service.engine.run_once()).delivered == 2
            assert receiver.seqs("A") == [1, 1, 2]

    play(scenario())


def test_gone_disables_the_endpoint_and_keeps_its_events(sender: Sender) -> None:
    """410 stops everything there; resuming sends what was kept."""

    async def scenario() -> None:
        async with stage(sender) as (receiver, service):
            receiver.answer = refusing("410 Gone")
            await emit(sender, "A", 2)
            await service.engine.run_once()
            await service.engine.run_once()
            assert len(receiver.got) == 1
            receiver.answer = refusing("200 OK")
            desk = OperatorActions(sender.commits, sender.clock)
            await asyncio.to_thread(desk.steer, "orders", DestinationState.ACTIVE, WORD)
            await service.engine.run_once()
            assert receiver.seqs("A") == [1, 1, 2]

    play(scenario())


def test_a_redirect_is_a_failure_and_is_not_followed(sender: Sender) -> None:
    """One request, and the reason says so."""

    async def scenario() -> None:
        async with stage(sender) as (receiver, service):
            receiver.answer = refusing("302 Found", "location: http://127.0.0.1:1/elsewhere")
            await emit(sender, "A")
            await service.engine.run_once()
            assert len(receiver.got) == 1
            assert "redirects are not followed" in (lane(sender, "A").error or "")

    play(scenario())


def test_a_replay_has_the_same_idempotency_key_and_a_nonce_of_its_own(sender: Sender) -> None:
    """In order, and before anything newer of the key."""

    async def scenario() -> None:
        async with stage(sender) as (receiver, service):
            await emit(sender, "A", 3)
            await service.engine.run_once()
            desk = OperatorActions(sender.commits, sender.clock)
            job = ReplayJob(desk, desk.replay_wanted("orders", WORD))
            await asyncio.to_thread(job.run)
            await emit(sender, "A")
            await service.engine.run_once()

            assert receiver.seqs("A") == [1, 2, 3, 1, 2, 3, 4]
            ids = [headers["idempotency-key"] for headers, _ in receiver.got]
            assert ids[:3] == ids[3:6]
            replays = [headers.get("x-replay") for headers, _ in receiver.got]
            assert replays == [None] * 3 + [replay_name(job.wanted.nonce)] * 3 + [None]

    play(scenario())


def test_a_missing_secret_uses_no_attempt_up(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    """The endpoint waits and says why; once mended, everything goes."""

    async def scenario() -> None:
        async with stage(sender) as (receiver, service):
            monkeypatch.delenv("ORDERS_SECRET", raising=False)
            await asyncio.to_thread(
                sender.endpoints.change,
                "orders",
                lambda one: one.rotated("env:ORDERS_SECRET", sender.clock.wall_ms()),
                BY_ANN,
                "rotated",
            )
            await service.look()
            await emit(sender, "A")
            await service.engine.run_once()
            assert receiver.got == []
            assert "ORDERS_SECRET is not set" in (lane(sender, "A").error or "")
            monkeypatch.setenv("ORDERS_SECRET", SECRET)
            sender.clock.advance(31)  # type: ignore[attr-defined]
            assert (await service.engine.run_once()).delivered == 1
            assert lane(sender, "A").attempts == 0

    play(scenario())


def test_running_delivery_sends_what_is_emitted_and_notices_new_endpoints(tmp_path: Path) -> None:
    """The loop itself, with the real clock: no test of its own timing."""

    async def scenario() -> None:
        policy = AddressPolicy.of(allow_http=True, allow_loopback=True)
        receiver = Receiver()
        arrived = asyncio.Event()

        def note(headers: dict[str, str], body: bytes) -> bytes:
            if len(receiver.got) == 20:
                arrived.set()
            return b"HTTP/1.1 204 No Content\r\n\r\n"

        receiver.answer = note
        with Sender(f"sqlite:///{tmp_path}/l.db", policy=policy) as sender:
            async with serving(receiver.play) as site, sender.delivering():
                url = f"http://127.0.0.1:{site.port}/hook"
                endpoint = new_endpoint("orders", url, secret=SECRET)
                await asyncio.to_thread(sender.endpoints.add, endpoint, BY_ANN)
                await emit(sender, "A", 10)
                await emit(sender, "B", 10)
                await arrived.wait()
        assert receiver.seqs("A") == receiver.seqs("B") == list(range(1, 11))

    play(scenario())


def test_secret_signs_to_the_end_of_its_time_and_not_longer(sender: Sender) -> None:
    """What was worked out for an endpoint is not used past the end of one of its secrets."""

    async def scenario() -> None:
        async with stage(sender) as (receiver, service):
            now_ms = sender.clock.wall_ms()
            sender.endpoints.change(
                "orders",
                lambda one: one.rotated("whsec_" + "b3RoZXJz" * 8, now_ms, timedelta(milliseconds=500)),
                BY_ANN,
                "rotated",
            )
            await emit(sender, "A")
            await service.engine.run_once()
            assert isinstance(sender.clock, ManualClock)
            sender.clock.advance(1)  # less than the book is remembered for
            await emit(sender, "A")
            await service.engine.run_once()

            signatures = [headers["webhook-signature"].split() for headers, _ in receiver.got]
            assert [len(found) for found in signatures] == [2, 1]

    play(scenario())


def test_store_that_is_away_for_a_moment_costs_no_attempt(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Endpoints that were known a moment ago are still known; the request goes out."""

    def away() -> Any:
        raise StoreUnavailable("not now")

    async def scenario() -> None:
        async with stage(sender) as (_, service):
            await emit(sender, "A")
            sender.endpoints.get("orders")
            assert isinstance(sender.clock, ManualClock)
            sender.clock.advance(60)
            monkeypatch.setattr(sender.commits.store, "look", away)
            done = await service.engine.run_once()

            assert (done.delivered, done.failed) == (1, 0)

    play(scenario())


def test_endpoint_that_was_never_read_is_not_guessed(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any knowledge the store's own error is what one gets."""

    def away() -> Any:
        raise StoreUnavailable("not now")

    sender.commits.store.connect().close()
    monkeypatch.setattr(sender.commits.store, "look", away)
    with pytest.raises(StoreUnavailable):
        sender.endpoints.get("orders")


def test_the_loop_goes_on_while_endpoints_are_read(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow ledger delays those who ask for endpoints, nobody else; many who ask are one read."""
    look, reads = sender.commits.store.look, []
    begun, may_go = threading.Event(), threading.Event()

    def slow() -> Any:
        reads.append(threading.current_thread())
        begun.set()
        assert may_go.wait(60)
        return look()

    async def scenario() -> None:
        async with stage(sender):
            sender.endpoints.forget()
            monkeypatch.setattr(sender.commits.store, "look", slow)
            asking = [asyncio.create_task(sender.endpoints.find("orders")) for _ in range(5)]
            asking_all = asyncio.create_task(sender.endpoints.list_all())
            assert await asyncio.to_thread(begun.wait, 60)
            assert not any(task.done() for task in (*asking, asking_all))
            may_go.set()  # the loop that says so was not held up
            found = await asyncio.gather(*asking)
            assert {one.name for one in (*found, *await asking_all)} == {"orders"}
            assert len(reads) == 1
            assert reads[0] is not threading.current_thread()

    play(scenario())


def test_a_change_that_is_made_while_endpoints_are_read_is_not_missed(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read before the change does not count as fresh after it."""
    look = sender.commits.store.look

    def meanwhile() -> Any:
        sender.endpoints.forget()  # as whoever changes one does when it is done
        return look()

    async def scenario() -> None:
        async with stage(sender):
            sender.endpoints.forget()
            monkeypatch.setattr(sender.commits.store, "look", meanwhile)
            await sender.endpoints.list_all()
            assert sender.endpoints.peek("orders") is None
            monkeypatch.setattr(sender.commits.store, "look", look)
            assert (await sender.endpoints.find("orders")).name == "orders"
            assert sender.endpoints.peek("orders") is not None

    play(scenario())


@pytest.mark.slow
def test_a_name_that_leads_inside_the_network_uses_no_attempt_up(sender: Sender) -> None:
    """Whoever answers for the name may mend it: the endpoint waits and says why, nothing is given up."""
    answers = ["10.0.0.1"]

    async def resolve(host: str, port: int) -> list[str]:
        return answers

    async def scenario() -> None:
        sender.endpoints.add(new_endpoint("orders", "http://moved.example/", secret=SECRET), BY_ANN)
        client = HttpClient(sender.endpoints.policy, resolve=resolve, clock=sender.clock)
        async with DeliveryService(sender, client=client, runs=False) as service:
            await emit(sender, "A")
            for _ in range(20):
                await service.engine.run_once()
                sender.clock.advance(3600)  # type: ignore[attr-defined]
            found = lane(sender, "A")
            assert (found.attempts, found.state) == (0, LaneState.WAITING)
            assert "10.0.0.1 is not a public address" in (found.error or "")

    play(scenario())


@pytest.mark.slow
def test_an_endpoint_that_cannot_be_reached_uses_no_attempt_up_and_is_reached_again(sender: Sender) -> None:
    """Nothing was sent, so nothing is given up: when the receiver is back, the events arrive in order."""

    async def scenario() -> None:
        bound = socket.socket()
        bound.bind(("127.0.0.1", 0))  # refuses connections until something listens
        url = f"http://127.0.0.1:{bound.getsockname()[1]}/hook"
        sender.endpoints.add(new_endpoint("orders", url, secret=SECRET, attempts_max=2), BY_ANN)
        async with DeliveryService(sender, runs=False) as service:
            await emit(sender, "A", 2)
            for _ in range(20):
                await service.engine.run_once()
                sender.clock.advance(60)  # type: ignore[attr-defined]
            assert (lane(sender, "A").attempts, lane(sender, "A").state) == (0, LaneState.WAITING)
            assert "no connection" in (lane(sender, "A").error or "")

            receiver = Receiver()
            async with serving(receiver.play, bound=bound):
                await service.engine.run_once()
                assert receiver.seqs("A") == [1, 2]

    play(scenario())


def test_an_endpoint_that_cannot_be_read_does_not_end_the_looking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A row of a newer version: what is known goes on, it is said, and the block ends as it should."""
    monkeypatch.setattr(delivery, "LOOK_SECONDS", 0.01)

    async def scenario() -> None:
        receiver, looks = Receiver(), list[int]()
        seen_again, arrived = asyncio.Event(), asyncio.Event()
        policy = AddressPolicy.of(allow_http=True, allow_loopback=True)
        with Sender(f"sqlite:///{tmp_path}/l.db", policy=policy) as sender:
            service = DeliveryService(sender)
            look = service.look

            async def looking() -> None:
                looks.append(1)
                if len(looks) in (2, 3):
                    raise ConfigError("a stored endpoint cannot be read by this version")
                await look()
                if len(looks) > 3:
                    seen_again.set()

            def note(headers: dict[str, str], body: bytes) -> bytes:
                arrived.set()
                return b"HTTP/1.1 204 No Content\r\n\r\n"

            receiver.answer = note
            monkeypatch.setattr(service, "look", looking)
            async with serving(receiver.play) as site, service:
                await seen_again.wait()
                endpoint = new_endpoint("orders", f"http://127.0.0.1:{site.port}/hook", secret=SECRET)
                await asyncio.to_thread(sender.endpoints.add, endpoint, BY_ANN)
                await emit(sender, "A")
                await arrived.wait()

    play(scenario())
    assert caplog.text.count("cannot be read by this version") == 1
