"""What is kept apart: readers of a feed, events of a tenant, and a lane from whoever has given it back.

Each test is here because a clause of a statement could be left out and no other test missed it.
"""

from __future__ import annotations

from oncegate.store import DestinationState, HeadHeld, Steering, Throttling
from oncegate.store.feed import FeedAck, FeedWanted, Publication
from oncegate.testing.conformance.bench import LEASE_MS
from oncegate.testing.conformance.lane_bench import ENDPOINT, LaneBench


class ApartConformance(LaneBench):
    """Nobody sees or moves what is another's."""

    def test_readers_of_a_feed_stand_each_at_their_own_place(self) -> None:
        """One that is far ahead takes nothing from one that has just begun (I12)."""
        session = self.open()
        with session.unit():
            session.publish([Publication("acme", f"e-{n}", "k", b"{}", b"%d" % n, 1) for n in range(4)])
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
            session.publish([Publication("acme", name, "k", b"{}", name.encode(), 1) for name in "abc"])

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
            extended = session.extend([HeadHeld(held.lane_id, held.fence, LEASE_MS)])
            released = session.release([HeadHeld(held.lane_id, held.fence)])

        assert (extended, released) == ([False], [False])
        assert not self.finish(session, held).done
        assert self.lane_picture() == before

    def test_paused_destination_has_no_time_at_which_it_opens(self) -> None:
        """Also if it is throttled: whoever waits for it waits for an operator."""
        session = self.open()
        self.fill(session, 1)
        with session.unit():
            session.throttle(Throttling(ENDPOINT, 3_000))
            session.steer(Steering(ENDPOINT, DestinationState.PAUSED, "olga", "maintenance", 1))

        assert self.heads(session).next_due_ticks is None


_READERS = ("ahead", "behind", "new")
