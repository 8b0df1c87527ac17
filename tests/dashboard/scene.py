"""A ledger in the middle of an ordinary bad morning, made by the real gate, feed and lanes.

Used by the tests of the operations page and by the tool that makes the pictures in the docs.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec

from oncegate import Content, Gate, Once
from oncegate.clock import from_wall_ms
from oncegate.commit.notice_operations import PostNotice
from oncegate.errors import OncegateError
from oncegate.feed import Feed
from oncegate.lanes.circuit_status import CircuitWord
from oncegate.maintenance.content_scan import ContentScan
from oncegate.model.states import State
from oncegate.model.timestamps import format_timestamp
from oncegate.sender.operator_actions import LaneDecision, OperatorActions
from oncegate.store import (
    Acknowledgement,
    EntryFilter,
    GivenUp,
    HeadsWanted,
    Outgoing,
    Policy,
    Posting,
    ReplayWanted,
)
from oncegate.store.feed import FeedAck
from oncegate.store.notices import WORKER, WorkerWord

HOSTILE = "<script>alert(1)</script>\u202eevil\x1b[31m javascript:alert(2)"
BIG = 2**63 - 1
DUE = "31 October"
ERROR = "HTTP 500: <b>boom</b>"


class Scene:
    """Fills a ledger; every part may be asked for by itself."""

    def __init__(self, url: str) -> None:
        self.gate = Gate(url)
        self._sent = 0
        self._declare()

    def _declare(self) -> None:
        gate = self.gate
        terminal = gate.downstream("terminal")
        delta = gate.downstream("ect-delta", honours_key="7d")

        @gate.handler("portbase.cis", key="{id}")
        def book(event: dict[str, Any], once: Once) -> dict[str, str]:
            def claim_slot(idempotency_key: str) -> str:
                return f"SLOT-{event['id']}"

            return {"slot": once.effect(delta, claim_slot)}

        @gate.handler(
            "payouts", key="{id}", tenant="tenant", approve_first=True, show=("due", "payee.name")
        )
        def pay(event: dict[str, Any], once: Once) -> str:
            return "paid"

        @gate.handler("gate.in", key="{id}")
        def claim(event: dict[str, Any], once: Once) -> str:
            def claim_slot() -> str:
                raise ConnectionResetError("the connection broke after the request was sent")

            return once.effect(terminal, claim_slot)

        @gate.handler("routes", key="{id}", occurred_at="at")
        def route(event: dict[str, Any], once: Once) -> str:
            return "routed"

        changes = Content(("date", "stops"), "{client}", compensation="cancel route {id}")

        @gate.handler("plans", key="{id}", content=changes, show=("date", "stops"))
        def plan(event: dict[str, Any], once: Once) -> str:
            if event.get("fails"):
                raise ConnectionResetError("the planner is away")
            return "planned"

    def plan_twice(self) -> None:
        """One change under two keys, found by the scan."""
        for number in (1, 2):
            self.admit("plans", id=f"PLAN-{number}", client="c-7", date="2026-10-25", stops=[1, 2])
        ContentScan(self.gate.engine.store, self.gate.engine.clock).run_once()

    def stop_pairs(self, pairs: int, singles: int = 0) -> None:
        """Changes wanted twice, neither of which ran: both are in quarantine. And some without a twin."""
        for number in range(pairs):
            for key in ("a", "b"):
                self.admit(
                    "plans", id=f"S-{number}{key}", client=f"c{number}", date="d", stops=[1], fails=True
                )
        ContentScan(self.gate.engine.store, self.gate.engine.clock).run_once()
        for number in range(singles):
            self.admit("plans", id=f"T-{number}", date="d", stops=[1])

    def work(self) -> None:
        """A worker that reports."""
        now_ms = self.gate.engine.clock.wall_ms()
        surfaces = tuple(one.name for one in self.gate.engine.surfaces)
        word = msgspec.json.encode(WorkerWord(15_000, surfaces))
        self.gate.engine.commits.submit(
            PostNotice(Posting(WORKER, WORKER, "worker-1", word, now_ms, 3_600_000))
        )

    def admit(self, surface: str, **event: Any) -> None:
        """Admits one event, whatever comes of it."""
        with suppress(OncegateError, ConnectionResetError):
            self.gate.admit_sync(surface, event)

    def waiting(self, state: State, surface: str) -> int:
        """The number of an entry that is in a state."""
        with self.gate.engine.store.look() as session:
            return session.entries(EntryFilter((state,), surface), None, 1)[0].entry_id

    def time(self, **before: float) -> str:
        """A time of some while ago."""
        return format_timestamp(from_wall_ms(self.gate.engine.clock.wall_ms()) - timedelta(**before))

    def quiet(self, events: int = 12) -> None:
        """Ordinary traffic: new events and a repeat."""
        for number in range(events):
            self.admit("portbase.cis", id=f"MSKU{number:04}", terminal="Delta")
        self.admit("portbase.cis", id="MSKU0001", terminal="Delta")
        self.gate.engine.sightings.flush()

    def incident(self) -> None:
        """Things that wait: approvals, doubts, quarantines, a conflict, blocked keys, a slow reader."""
        for number, tenant in enumerate(("acme", "acme", "globex")):
            self.admit("payouts", id=f"PAY-{number}", tenant=tenant, amount=BIG, due=DUE)
        self.admit("gate.in", id="TRUCK-7")
        for number in range(3):
            self.admit("routes", id=f"R-{number}", at=self.time(hours=2 + number), who=HOSTILE)
        self.admit("routes", id=HOSTILE, at=self.time(hours=3))
        self.admit("routes", id="R-9", at="2026-10-25T02:30:00")
        self.admit("portbase.cis", id="MSKU0002", terminal="Changed")
        self.block("orders", "A-17", "acme", events=4)
        self.block("orders", "B-2", "", events=1)
        self.open_circuit("orders")
        self.publish()
        self.gate.engine.sightings.flush()

    def open_circuit(self, destination: str, rest_ms: int = 30_000) -> None:
        """A circuit that a sender has opened a moment ago."""
        now_ms = self.gate.engine.clock.wall_ms()
        word = msgspec.json.encode(CircuitWord(now_ms - 90_000, 7, rest_ms, 5, ERROR))
        posting = Posting("circuit", destination, "sender-1, process 7", word, now_ms, 7_200_000)
        self.gate.engine.commits.submit(PostNotice(posting))

    def block(self, destination: str, key: str, tenant: str, events: int) -> None:
        """A lane whose head was given up."""
        at_ms = self.gate.engine.clock.wall_ms()
        with self.gate.engine.commits.transaction() as session:
            for _ in range(events):
                self._sent += 1
                name = f"evt-{self._sent}"
                event = Outgoing(destination, tenant, key, name, "order.changed", b"{}", b"f" * 16, at_ms)
                session.enqueue([event])
        self.give_up(destination, key, Policy.BLOCK)

    def give_up(self, destination: str, key: str, policy: Policy) -> None:
        """Gives up what a lane would send next."""
        at_ms = self.gate.engine.clock.wall_ms()
        with self.gate.engine.commits.transaction() as session:
            heads = session.lease_heads(HeadsWanted(((destination, 10),), 60_000, 7)).deliveries
            (head,) = (one for one in heads if one.key == key)
            given_up = GivenUp(
                head.lane_id,
                head.seq,
                head.fence,
                head.holder,
                head.event_id,
                at_ms,
                ERROR,
                policy,
                "sender",
            )
            session.dead_letter([given_up])

    def deliver(self, destination: str, key: str, tenant: str, events: int) -> int:
        """A lane whose events were all acknowledged; returns its number."""
        at_ms, lane = self.gate.engine.clock.wall_ms(), 0
        for number in range(1, events + 1):
            name = f"{key}-{number}"
            event = Outgoing(destination, tenant, key, name, "order.changed", b"{}", b"f" * 16, at_ms)
            with self.gate.engine.commits.transaction() as session:
                lane = session.enqueue([event])[0].lane_id
                heads = session.lease_heads(HeadsWanted(((destination, 10),), 60_000, 7)).deliveries
                session.finish(
                    [Acknowledgement(d.lane_id, d.seq, d.fence, d.holder, d.event_id, at_ms) for d in heads]
                )
        return lane

    def replay(self, destination: str, nonce: int, reason: str = "they lost a day", **more: Any) -> None:
        """A replay that Bob has begun."""
        at_ms = self.gate.engine.clock.wall_ms()
        with self.gate.engine.commits.transaction() as session:
            done = session.replay(ReplayWanted(destination, nonce, "Bob", reason, at_ms, **more))
        assert done.deliveries

    def replaying(self) -> None:
        """Replays: one ended, one cancelled, one of a key and one of a whole destination under way."""
        lane, desk = (
            self.deliver("orders", "C-3", "acme", 5),
            OperatorActions(self.gate.engine.commits, self.gate.engine.clock),
        )
        other = self.deliver("orders", "D-4", "globex", 3)
        self.replay("orders", 0xE4D, lane_id=lane, seq_to=2)
        self.finish_replay("orders", 2)
        self.replay("orders", 0xC0DE, lane_id=other)
        desk.cancel_replay(0xC0DE, LaneDecision("Ada", "the wrong customer"))
        self.replay("orders", 0xABC, lane_id=lane, seq_from=2, seq_to=5)
        for key in ("X-1", "X-2", "X-3"):
            self.deliver("billing", key, "acme", 2)
        self.replay("billing", 0xB16, "their database was restored")
        self.finish_replay("billing", 1)

    def finish_replay(self, destination: str, rounds: int) -> None:
        """Lets what is replayed at a destination be acknowledged, event after event of each key."""
        at_ms = self.gate.engine.clock.wall_ms()
        for _ in range(rounds):
            with self.gate.engine.commits.transaction() as session:
                heads = session.lease_heads(HeadsWanted(((destination, 10),), 60_000, 7)).deliveries
                session.finish(
                    [Acknowledgement(d.lane_id, d.seq, d.fence, d.holder, d.event_id, at_ms) for d in heads]
                )

    def publish(self) -> None:
        """A feed with a reader that is behind."""
        feed = Feed(self.gate)
        for number in range(3):
            feed.publish_sync(tenant="acme", key="W1", event_id=f"pub-{number}", data={"n": number})
        with self.gate.engine.commits.transaction() as session:
            session.ack_feed([FeedAck("acme", "exec-1", 1, self.gate.engine.clock.wall_ms())])
