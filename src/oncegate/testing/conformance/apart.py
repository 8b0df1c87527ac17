"""What is kept apart: readers of a feed, events of a tenant, and a lane from a worker that has released it.

Each test is here because a clause of a statement could be left out and no other test missed it.
"""

from __future__ import annotations

from msgspec.structs import replace

from oncegate.model.states import Decision
from oncegate.store import DestinationState, HeadHeld, Policy, ReplayWanted, Session, Steering, Throttling
from oncegate.store.feed import EventToPublish, FeedAck, FeedWanted
from oncegate.testing.conformance.bench import LEASE_MS
from oncegate.testing.conformance.lane_bench import ENDPOINT, LaneBench


class ApartConformance(LaneBench):
    """No reader or worker sees or moves what is another's."""

    def test_readers_of_a_feed_stand_each_at_their_own_place(self) -> None:
        """One that is far ahead takes nothing from one that has just begun (I12)."""
        session = self.open()
        with session.unit():
            session.publish([EventToPublish("acme", f"e-{n}", "k", b"{}", b"%d" % n, 1) for n in range(4)])
            session.read_feed(FeedWanted("acme", "ahead", 0, 10))
            session.ack_feed([FeedAck("acme", "ahead", 3, 1)])
            session.ack_feed([FeedAck("acme", "behind", 1, 1)])

        with session.unit():
            stands = [session.read_feed(FeedWanted("acme", name, None, 10)).after for name in _READERS]

        assert stands == [3, 1, 0]

    def test_each_published_event_is_found_by_its_own_id(self) -> None:
        """Not any other of its tenant."""
        session = self.open()
        with session.unit():
            session.publish([EventToPublish("acme", name, "k", b"{}", name.encode(), 1) for name in "abc"])

        with session.unit():
            events = [session.published_event("acme", name) for name in "cab"]
            prints = [session.find_published("acme", name) for name in "cab"]

        assert [event and event.event_id for event in events] == ["c", "a", "b"]
        assert [found and found[0] for found in prints] == [b"c", b"a", b"b"]

    def test_whoever_has_given_a_head_back_can_neither_keep_nor_move_it(self) -> None:
        """Its fence is still the lane's; what it does not have any more is the lease (I4)."""
        session = self.open()
        self.fill(session, 1)
        held = self.lease_one(session)
        self.fail(session, held, 60_000)
        before = self.lane_picture()

        with session.unit():
            extended = session.extend([HeadHeld(held.lane_id, held.fence, held.holder, LEASE_MS)])
            released = session.release([HeadHeld(held.lane_id, held.fence, held.holder)])

        assert (extended, released) == ([False], [False])
        assert not self.finish(session, held).done
        assert self.lane_picture() == before

    def test_worker_with_the_right_fence_but_another_lease_changes_nothing_and_is_told(self) -> None:
        """A ledger that went back gives fences out again; the holder's random number tells leases apart."""
        session = self.open()
        self.fill(session, 2)
        held = self.lease_one(session)

        other, before = replace(held, holder=held.holder + 1), self.lane_picture()
        named = HeadHeld(other.lane_id, other.fence, other.holder, LEASE_MS)
        assert not self.finish(session, other, chain=True).done
        assert not self.fail(session, other)
        assert not any(self.give_up(session, other, policy).done for policy in Policy)
        with session.unit():
            assert (session.extend([named]), session.release([named])) == ([False], [False])
        assert self.lane_picture() == before

        with session.unit():
            answers = session.finish([replace(self.lane_ack(held), holder=1), self.lane_ack(held)])
        assert [answer.done for answer in answers] == [False, True]

    def test_each_lease_names_its_holder(self) -> None:
        """The heads of one call have the number that was asked with, a successor has its own."""
        session = self.open()
        self.fill(session, 3)
        (first,) = self.heads(session, 10, holder=41).deliveries
        with session.unit():
            (second,) = session.finish([replace(self.lane_ack(first, chain=True), next_holder=42)])
        assert second.successor is not None
        given_up = self.give_up(session, second.successor, Policy.ADVANCE, chain=True).successor

        assert given_up is not None
        assert (first.holder, second.successor.holder, given_up.holder) == (41, 42, 7)
        with self.looking() as reader:
            assert reader.leased_by((1, 7)) == [given_up]

    def test_an_end_under_another_fence_is_not_taken_for_ones_own(self) -> None:
        """A worker that does not know whether its end was committed asks for its own (I5)."""
        session = self.open()
        self.fill(session, 1, "acknowledged")
        self.fill(session, 1, "dead")
        old = self.lease(session)
        self.let_lapse()
        new = self.lease(session)
        for delivery in new:
            end = self.give_up if delivery.key == "dead" else self.finish
            end(session, delivery)

        with session.unit():
            ended = [session.lease_ended(self.lane_ack(one)) for one in (*old, *new)]

        assert ended == [False, False, True, True]

    def test_paused_destination_has_no_time_at_which_it_opens(self) -> None:
        """Also if it is throttled: only an operator opens it."""
        session = self.open()
        self.fill(session, 1)
        with session.unit():
            session.throttle(Throttling(ENDPOINT, 3_000))
            session.steer(Steering(ENDPOINT, DestinationState.PAUSED, "olga", "maintenance", 1))

        assert self.heads(session).next_due_ticks is None

    def test_many_arrivals_of_a_known_key_in_one_batch_are_all_answered(self) -> None:
        """However many: a provider that re-fires does it in bursts."""
        session = self.open()
        claim = self.reserve(session)
        self.settle(session, claim, outcome=b"{}")

        with session.unit():
            answers = session.reserve([self.reservation(token=number) for number in range(40)])

        assert {(answer.decision, answer.outcome) for answer in answers} == {(Decision.REPLAY, b"{}")}

    def test_event_after_dead_letters_is_told_the_last_seq_before_them(self) -> None:
        """So that a receiver which refuses gaps can tell this one from a lost event (B7)."""
        session = self.open()
        self.fill(session, 5)
        first = self.lease_one(session)
        told = [first.previous_seq]
        self.finish(session, first)
        for _ in range(2):
            self.give_up(session, self.lease_one(session), Policy.ADVANCE)
        fourth = self.lease_one(session)
        told.append(fourth.previous_seq)
        self.finish(session, fourth)
        told.append(self.lease_one(session).previous_seq)

        assert told == [None, 1, None]

    def test_next_due_is_told_also_where_more_is_due_than_was_asked_for(self) -> None:
        """What is due already is not what is due next."""
        session = self.open()
        self.fill(session, 1, "later")
        self.fail(session, self.lease_one(session), 60_000)
        self.fill(session, 1, "now")
        self.fill(session, 1, "now too")

        heads = self.heads(session, 1)

        assert len(heads.deliveries) == 1
        assert heads.next_due_ticks is not None
        assert heads.now_ticks < heads.next_due_ticks <= heads.now_ticks + 60_000

    def test_replayed_event_that_is_given_up_is_out_of_its_replay(self) -> None:
        """The replay goes on with the next one, comes to its end, and another may follow (B6)."""
        session = self.open()
        lane = self.fill(session, 2)[0].lane_id
        self.deliver_all(session)
        self._replay(session, lane, 1)

        self.give_up(session, self.lease_one(session), Policy.ADVANCE)

        assert [(one.seq, one.nonce) for one in self.deliver_all(session)] == [(2, 1)]
        assert self._replay(session, lane, 2) == (2, 0)
        assert [(one.seq, one.nonce) for one in self.deliver_all(session)] == [(1, 2), (2, 2)]

    def _replay(self, session: Session, lane_id: int, nonce: int) -> tuple[int, int]:
        wanted = ReplayWanted(ENDPOINT, nonce=nonce, actor="olga", reason="lost", at_ms=1, lane_id=lane_id)
        with session.unit():
            answer = session.replay(wanted)
        return answer.deliveries, answer.refused


_READERS = ("ahead", "behind", "new")
