"""What the lanes' part of the suite stands on: events, workers, and a picture of all lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from oncegate.store import (
    Acknowledgement,
    Advanced,
    Delivery,
    Failure,
    GivenUp,
    HeadAnswer,
    HeadOrder,
    Heads,
    HeadsWanted,
    LaneFilter,
    LaneState,
    LaneView,
    Outgoing,
    Placed,
    Policy,
    Replaying,
    ReplayWanted,
    Session,
)
from oncegate.testing.conformance.bench import ALL, LEASE_MS, StoreBench

ENDPOINT: Final = "endpoint"


class LaneBench(StoreBench):
    """Makes events and plays the worker."""

    def outgoing(self, event_id: str, key: str = "k", **changes: Any) -> Outgoing:
        """An event."""
        wanted: dict[str, Any] = {
            "destination": ENDPOINT,
            "tenant": "",
            "key": key,
            "event_id": event_id,
            "type": "order.updated",
            "payload": event_id.encode(),
            "fingerprint": b"content-of-" + event_id.encode(),
            "created_at_ms": self.clock.wall_ms(),
            "context": b"trace",
        }
        return Outgoing(**{**wanted, **changes})

    def enqueue(self, session: Session, *events: Outgoing) -> list[Placed]:
        """Enqueues, in a unit of its own."""
        with session.unit():
            return session.enqueue(events)

    def fill(self, session: Session, count: int, key: str = "k", **changes: Any) -> list[Placed]:
        """Enqueues events `key-1`, `key-2`, …"""
        events = [self.outgoing(f"{key}-{number}", key, **changes) for number in range(1, count + 1)]
        return self.enqueue(session, *events)

    def heads(self, session: Session, limit: int = 100, *names: str, holder: int = 7) -> Heads:
        """Leases heads, in a unit of its own."""
        wanted = tuple((name, limit) for name in names or (ENDPOINT,))
        with session.unit():
            return session.lease_heads(HeadsWanted(wanted, LEASE_MS, holder))

    def lease(self, session: Session, limit: int = 100, *names: str) -> list[Delivery]:
        """The heads that were leased."""
        return list(self.heads(session, limit, *names).deliveries)

    def lease_one(self, session: Session) -> Delivery:
        """The only head there is to lease."""
        (delivery,) = self.lease(session)
        return delivery

    def lane_ack(self, delivery: Delivery, *, chain: bool = False) -> Acknowledgement:
        """An acknowledgement, with the next event asked for or not."""
        lease_ms = LEASE_MS if chain else 0
        at_ms = self.clock.wall_ms()
        return Acknowledgement(
            delivery.lane_id,
            delivery.seq,
            delivery.fence,
            delivery.holder,
            delivery.event_id,
            at_ms,
            "200",
            lease_ms,
            7,
        )

    def finish(self, session: Session, delivery: Delivery, *, chain: bool = False) -> Advanced:
        """Acknowledges, in a unit of its own."""
        with session.unit():
            return session.finish([self.lane_ack(delivery, chain=chain)])[0]

    def fail(self, session: Session, delivery: Delivery, retry_in_ms: int = 1_000, **more: Any) -> bool:
        """Fails an attempt, in a unit of its own."""
        failure = Failure(delivery.lane_id, delivery.fence, delivery.holder, retry_in_ms, "500", **more)
        with session.unit():
            return session.fail([failure])[0]

    def give_up(
        self, session: Session, delivery: Delivery, policy: Policy = Policy.BLOCK, *, chain: bool = False
    ) -> Advanced:
        """Makes a dead letter, in a unit of its own."""
        at_ms, lease_ms = self.clock.wall_ms(), LEASE_MS if chain else 0
        lease = (delivery.lane_id, delivery.seq, delivery.fence, delivery.holder, delivery.event_id)
        given_up = GivenUp(*lease, at_ms, "gave up", policy, "suite", lease_ms, 7)
        with session.unit():
            return session.dead_letter([given_up])[0]

    def deliver_all(self, session: Session, limit: int = 1_000) -> list[Delivery]:
        """Delivers everything that is due now; returns it in order."""
        done: list[Delivery] = []
        while heads := self.lease(session):
            for delivery in heads:
                assert self.finish(session, delivery).done
                done.append(delivery)
            assert len(done) <= limit, "there is no end to it"
        return done

    def replay(self, session: Session, **changes: Any) -> Replaying:
        """Asks for a replay, in a unit of its own."""
        wanted: dict[str, Any] = {
            "destination": ENDPOINT,
            "nonce": 0xABC,
            "actor": "olga",
            "reason": "lost at theirs",
            "at_ms": self.clock.wall_ms(),
        }
        with session.unit():
            return session.replay(ReplayWanted(**{**wanted, **changes}))

    def order(self, lane_id: int, seq: int) -> HeadOrder:
        """An operator's order."""
        return HeadOrder(lane_id, seq, "olga", "because", self.clock.wall_ms())

    def retry(self, session: Session, lane_id: int, seq: int) -> HeadAnswer:
        """Retries a head, in a unit of its own."""
        with session.unit():
            return session.retry_head(self.order(lane_id, seq))

    def skip(self, session: Session, lane_id: int, seq: int) -> HeadAnswer:
        """Skips a head, in a unit of its own."""
        with session.unit():
            return session.skip_head(self.order(lane_id, seq))

    def lane(self, key: str = "k", destination: str = ENDPOINT, tenant: str = "") -> LaneView:
        """Reads one lane that must be there."""
        with self.looking() as session:
            found = session.find_lane(destination, tenant, key)
        assert found is not None
        return found

    def open_lanes(self, *states: LaneState) -> list[LaneView]:
        """Lists lanes that are not idle."""
        with self.looking() as session:
            return session.lanes(LaneFilter(states=states), 0, ALL)

    def lane_picture(self) -> dict[str, Any]:
        """Everything there is of lanes."""
        self.wait_for_readers()
        with self.looking() as reader:
            lanes = reader.lanes(LaneFilter(), 0, ALL)
            return {
                "lanes": lanes,
                "deliveries": [reader.deliveries(lane.lane_id, 1, ALL) for lane in lanes],
                "dead": reader.dead_letters(LaneFilter(), (0, 0), ALL),
                "destinations": reader.destinations(),
                "log": reader.read_log(0, ALL),
            }


def seqs(deliveries: Sequence[Delivery]) -> list[int]:
    """The seqs of deliveries."""
    return [delivery.seq for delivery in deliveries]
