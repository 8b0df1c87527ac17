"""The last failed attempts of deliveries, and replays by time and type (B6, I18)."""

from __future__ import annotations

from oncegate.store import Attempt, Delivery, LanePruning, ReplayFilter, Session
from oncegate.store.attempts import ATTEMPTS_KEPT
from oncegate.testing.conformance.lane_bench import LaneBench


class AttemptConformance(LaneBench):
    """What is kept of attempts, and which past events a replay by time or type means."""

    def attempt(self, delivery: Delivery, number: int, error: str = "HTTP 500: no") -> Attempt:
        """One failed attempt, under a fence of its own."""
        return Attempt(delivery.lane_id, delivery.seq, number, 1_000 * number, 12, 500, error)

    def keep(self, session: Session, *attempts: Attempt) -> None:
        """Keeps attempts, in a unit of its own."""
        with session.unit():
            session.note_attempts(attempts)

    def test_the_last_attempts_of_a_delivery_are_kept_in_order(self) -> None:
        """A bounded number of each delivery; the oldest make room."""
        session = self.open()
        self.fill(session, 2)
        delivery = self.lease_one(session)
        attempts = [self.attempt(delivery, number) for number in range(1, ATTEMPTS_KEPT + 4)]
        other = Attempt(delivery.lane_id, 2, 1, 5, 7, None, "no connection")
        self.keep(session, other, *attempts[:5])
        for one in attempts[5:]:
            self.keep(session, one)
        with self.looking() as reader:
            assert reader.attempts(delivery.lane_id, delivery.seq) == attempts[-ATTEMPTS_KEPT:]
            assert reader.attempts(delivery.lane_id, 2) == [other]
            assert reader.attempts(delivery.lane_id, 3) == []

    def test_an_attempt_that_is_noted_twice_is_kept_once(self) -> None:
        """A doubtful commit may be repeated."""
        session = self.open()
        self.fill(session, 1)
        attempt = self.attempt(self.lease_one(session), 1, "odd \0 \N{RIGHT-TO-LEFT OVERRIDE} text")
        self.keep(session, attempt)
        self.keep(session, attempt)
        with self.looking() as reader:
            (kept,) = reader.attempts(attempt.lane_id, attempt.seq)
        assert kept.error.replace("\N{SYMBOL FOR NULL}", "\0") == attempt.error

    def test_attempts_go_when_their_delivery_is_pruned(self) -> None:
        """Nothing is left of a delivery that was removed."""
        session = self.open()
        self.fill(session, 1)
        delivery = self.lease_one(session)
        self.keep(session, self.attempt(delivery, 1))
        assert self.finish(session, delivery).done
        with session.unit():
            assert session.prune_deliveries(LanePruning(None, 2**60)).removed == 1
        with self.looking() as reader:
            assert reader.attempts(delivery.lane_id, delivery.seq) == []

    def test_a_replay_by_time_takes_the_events_emitted_then(self) -> None:
        """From the first moment on and before the second, in the order of the key."""
        session = self.open()
        for number in range(1, 6):
            self.enqueue(session, self.outgoing(f"e{number}", created_at_ms=1_000 * number))
        self.deliver_all(session)
        window = {"since_ms": 2_000, "until_ms": 4_000}
        assert self.replay(session, dry_run=True, **window).deliveries == 2
        assert self.replay(session, **window).deliveries == 2
        assert [one.event_id for one in self.deliver_all(session)] == ["e2", "e3"]
        with self.looking() as reader:
            (order,) = reader.replay_orders(ReplayFilter(), None, 1)
        assert (order.since_ms, order.until_ms, order.type) == (2_000, 4_000, None)
        assert self.replay(session, nonce=7, since_ms=5_000).deliveries == 1
        assert [one.event_id for one in self.deliver_all(session)] == ["e5"]
        assert self.replay(session, nonce=8, until_ms=1_000).deliveries == 0

    def test_a_replay_by_type_takes_events_of_that_type_alone(self) -> None:
        """A type that was never heard of takes nothing."""
        session = self.open()
        for number, kind in enumerate(("paid", "sent", "paid")):
            self.enqueue(session, self.outgoing(f"e{number}", type=kind))
        self.deliver_all(session)
        assert self.replay(session, dry_run=True, type="never heard of").deliveries == 0
        assert self.replay(session, type="paid").deliveries == 2
        assert [one.event_id for one in self.deliver_all(session)] == ["e0", "e2"]
        with self.looking() as reader:
            (order,) = reader.replay_orders(ReplayFilter(), None, 1)
        assert (order.type, order.deliveries) == ("paid", 2)
