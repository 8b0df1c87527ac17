"""Lanes: seqs without gaps, one delivery under way for each, in order; fences (I4, I10)."""

from __future__ import annotations

from msgspec.structs import replace

from oncegate.store import (
    Acknowledgement,
    DestinationState,
    Failure,
    GivenUp,
    HeadHeld,
    HeadsWanted,
    LaneState,
    LogKind,
    Outgoing,
    Placed,
    Placing,
    Policy,
    Steering,
    Throttling,
)
from oncegate.testing.conformance.bench import LEASE_MS
from oncegate.testing.conformance.lane_bench import ENDPOINT, LaneBench, seqs


class LaneConformance(LaneBench):
    """What workers do."""

    def test_seqs_are_counted_from_one_for_each_lane(self) -> None:
        """Destination, tenant and key make a lane; each counts by itself, also within one call."""
        session = self.open()
        first = self.enqueue(
            session,
            self.outgoing("a1", "a"),
            self.outgoing("b1", "b"),
            self.outgoing("a2", "a"),
            self.outgoing("a3", "a", tenant="other"),
            self.outgoing("a1", "a", destination="elsewhere"),
        )
        again = self.enqueue(session, self.outgoing("a4", "a"), self.outgoing("b2", "b"))

        assert [placed.seq for placed in first] == [1, 1, 2, 1, 1]
        assert [placed.seq for placed in again] == [3, 2]
        assert len({placed.lane_id for placed in first + again}) == 4
        assert {placed.placing for placed in first + again} == {Placing.NEW}

    def test_full_lane_takes_no_more_until_something_has_gone(self) -> None:
        """Refused, not dropped: no seq is used, other lanes and known ids are not affected (I18)."""
        session = self.open()
        first = self.enqueue(session, self._few("k-1"), self._few("k-2"))

        refused, other, known = self.enqueue(
            session, self._few("k-3"), self._few("o-1", "o"), self._few("k-2")
        )

        assert [placed.placing for placed in first] == [Placing.NEW] * 2
        assert (refused.placing, other.placing, known.placing) == (Placing.FULL, Placing.NEW, Placing.KNOWN)
        assert self.lane("k").last_seq == 2
        for delivery in self.lease(session):
            self.finish(session, delivery)
        (again,) = self.enqueue(session, self._few("k-3"))
        assert (again.placing, again.seq) == (Placing.NEW, 3)

    def _few(self, event_id: str, key: str = "k") -> Outgoing:
        """An event for a lane that two may wait in."""
        return self.outgoing(event_id, key, backlog_max=2)

    def test_known_id_is_one_event(self) -> None:
        """Published again, in the same call or later, an id answers the first one's place."""
        session = self.open()
        event = self.outgoing("e")

        both = self.enqueue(session, event, event)
        later = self.enqueue(session, self.outgoing("other"), event)

        lane = both[0].lane_id
        assert both == [Placed(Placing.NEW, lane, 1), Placed(Placing.KNOWN, lane, 1)]
        assert later == [Placed(Placing.NEW, lane, 2), Placed(Placing.KNOWN, lane, 1)]
        assert self.lane().last_seq == 2

    def test_known_id_with_another_content_is_a_conflict(self) -> None:
        """Nothing is stored for it, in the same call or later, and no seq is used up."""
        session = self.open()
        event, other = self.outgoing("e"), self.outgoing("e", fingerprint=b"another")

        first = self.enqueue(session, event, other)
        second = self.enqueue(session, other, self.outgoing("next"), event)

        assert [placed.placing for placed in first] == [Placing.NEW, Placing.CONFLICT]
        assert [placed.placing for placed in second] == [Placing.CONFLICT, Placing.NEW, Placing.KNOWN]
        assert [placed.seq for placed in first + second] == [1, 1, 1, 2, 1]

    def test_undone_enqueueing_leaves_no_gap(self) -> None:
        """A unit that is undone takes its seqs, its lanes and its ids with it."""
        session = self.open()
        self.fill(session, 1)
        try:
            with session.unit():
                session.enqueue([self.outgoing("undone"), self.outgoing("new-lane", "n")])
                raise ArithmeticError
        except ArithmeticError:
            pass

        placed = self.enqueue(session, self.outgoing("undone"), self.outgoing("new-lane", "n"))

        assert [(p.placing, p.seq) for p in placed] == [(Placing.NEW, 2), (Placing.NEW, 1)]

    def test_head_is_leased_with_all_it_carries(self) -> None:
        """What was enqueued comes out as it went in, with its seq, a fence and the end of its lease."""
        session = self.open()
        event = self.outgoing("e", "käse \U0001f9c0", tenant="acme", payload=b"\x00\xff", context=b"c")
        (placed,) = self.enqueue(session, event)

        heads = self.heads(session)

        (delivery,) = heads.deliveries
        assert (delivery.lane_id, delivery.seq, delivery.attempt) == (placed.lane_id, 1, 1)
        assert (delivery.destination, delivery.tenant, delivery.key) == (ENDPOINT, "acme", event.key)
        assert (delivery.event_id, delivery.type) == (event.event_id, event.type)
        assert (delivery.payload, delivery.context) == (event.payload, event.context)
        assert delivery.created_at_ms == event.created_at_ms
        assert delivery.lease_until_ticks == heads.now_ticks + LEASE_MS == self.now() + LEASE_MS
        assert delivery.nonce is None

    def test_only_one_delivery_of_a_lane_is_under_way(self) -> None:
        """While the head is leased there is nothing else to lease; other lanes are not kept waiting."""
        session = self.open()
        self.fill(session, 3, "a")
        self.fill(session, 2, "b")

        assert sorted((d.key, d.seq) for d in self.lease(session)) == [("a", 1), ("b", 1)]
        assert self.lease(session) == []

    def test_finishing_makes_the_next_one_ready_at_once(self) -> None:
        """In order, to the end; then the lane is idle, and a new event wakes it."""
        session = self.open()
        self.fill(session, 3)

        assert seqs(self.deliver_all(session)) == [1, 2, 3]
        assert self.lane().state is LaneState.IDLE
        assert self.open_lanes() == []
        self.enqueue(session, self.outgoing("more"))
        assert seqs(self.deliver_all(session)) == [4]

    def test_successor_may_be_leased_in_the_same_step(self) -> None:
        """The answer to an acknowledgement brings the next event, under a new fence, as a first attempt."""
        session = self.open()
        self.fill(session, 2)
        first = self.lease_one(session)
        self.fail(session, first, 0)
        again = self.lease_one(session)

        second = self.finish(session, again, chain=True).successor

        assert second is not None
        assert (second.seq, second.attempt, second.event_id) == (2, 1, "k-2")
        assert (second.key, second.destination) == (again.key, again.destination)
        assert second.fence > again.fence
        assert second.lease_until_ticks > self.now() + LEASE_MS // 3
        assert self.lease(session) == []
        assert self.finish(session, second, chain=True).successor is None
        assert self.lane().state is LaneState.IDLE

    def test_long_row_of_successors_never_runs_out_of_lease(self) -> None:
        """Each successor's lease is at least half as long as it was asked for, however late in the row."""
        session = self.open()
        self.fill(session, 8)
        delivery = self.lease_one(session)
        for _ in range(7):
            self.clock.advance(LEASE_MS / 1000 * 0.4)
            delivery = self.finish(session, delivery, chain=True).successor or delivery
            assert delivery.lease_until_ticks >= self.now() + LEASE_MS // 2

        assert delivery.seq == 8

    def test_attempts_grow_with_failures_only(self) -> None:
        """Leasing, releasing, lapsing and failures that do not count use no attempt up."""
        session = self.open()
        self.fill(session, 1)
        first = self.lease_one(session)
        with session.unit():
            assert session.release([HeadHeld(first.lane_id, first.fence, first.holder)]) == [True]
        self.lease_one(session)
        self.let_lapse()
        lapsed = self.lease_one(session)
        self.fail(session, lapsed, 0, counts=False)
        uncounted = self.lease_one(session)
        assert uncounted.attempt == 1

        self.fail(session, uncounted, 0)

        assert self.lease_one(session).attempt == 2

    def test_failed_head_waits_and_blocks_its_lane_only(self) -> None:
        """It is due again after its wait, not before; what is behind it does not overtake."""
        session = self.open()
        self.fill(session, 2, "a")
        self.fill(session, 1, "b")
        by_key = {d.key: d for d in self.lease(session)}
        self.finish(session, by_key["b"])
        assert self.fail(session, by_key["a"], 5_000)

        heads = self.heads(session)
        assert heads.deliveries == ()
        assert heads.next_due_ticks == heads.now_ticks + 5_000
        view = self.lane("a")
        assert (view.state, view.attempts, view.error) == (LaneState.WAITING, 1, "500")
        assert (view.next_try_in_ms, view.waiting_behind) == (5_000, 1)
        self.clock.advance(4.999)
        assert self.lease(session) == []
        self.clock.advance(0.001)
        assert [(d.key, d.seq, d.attempt) for d in self.lease(session)] == [("a", 1, 2)]

    def test_lapsed_lease_is_taken_over_under_a_larger_fence(self) -> None:
        """A worker that died keeps its lane for its lease and no longer."""
        session = self.open()
        self.fill(session, 1)
        dead = self.lease_one(session)
        self.clock.advance((LEASE_MS - 1) / 1000)
        assert self.lease(session) == []
        self.clock.advance(0.001)

        taken_over = self.lease_one(session)

        assert (taken_over.seq, taken_over.attempt) == (1, 1)
        assert taken_over.fence > dead.fence

    def test_extended_lease_is_not_lapsed(self) -> None:
        """An extension counts from now."""
        session = self.open()
        self.fill(session, 1)
        held = self.lease_one(session)
        self.clock.advance(LEASE_MS / 1000 * 0.9)
        with session.unit():
            assert session.extend([HeadHeld(held.lane_id, held.fence, held.holder, LEASE_MS)]) == [True]
        self.clock.advance(LEASE_MS / 1000 * 0.9)

        assert self.lease(session) == []
        assert self.finish(session, held).done

    def test_worker_with_an_old_fence_changes_nothing_and_is_told(self) -> None:
        """Whatever a worker tries whose head was taken over, finished or given back (I4)."""
        session = self.open()
        self.fill(session, 2)
        old = self.lease_one(session)
        self.let_lapse()
        new = self.lease_one(session)
        self._assert_powerless(session, old)
        self.finish(session, new, chain=True)
        self._assert_powerless(session, old)
        self._assert_powerless(session, new)

    def _assert_powerless(self, session, old) -> None:  # type: ignore[no-untyped-def]
        before, held = self.lane_picture(), (old.lane_id, old.fence, old.holder)
        lease = (old.lane_id, old.seq, old.fence, old.holder, old.event_id)
        with session.unit():
            acks = session.finish([Acknowledgement(*lease, 1, "", LEASE_MS, 9)])
            failed = session.fail([Failure(*held, 0, "old")])
            rest = session.release([HeadHeld(*held)]) + session.extend([HeadHeld(*held, 9)])
            for policy in Policy:
                acks += session.dead_letter([GivenUp(*lease, 1, "old", policy, "x")])
        assert [ack.done for ack in acks] == [False] * 3
        assert [ack.successor for ack in acks] == [None] * 3
        assert failed + rest == [False] * 3
        assert self.lane_picture() == before

    def test_lease_ends_once_also_in_one_call(self) -> None:
        """The same acknowledgement twice moves the lane on by one; others in the call are not disturbed."""
        session = self.open()
        self.fill(session, 3, "a")
        self.fill(session, 3, "b")
        a, b = sorted(self.lease(session), key=lambda delivery: delivery.key)
        stale = Acknowledgement(b.lane_id, 1, b.fence + 5, b.holder, b.event_id, 1)

        ack = self.lane_ack(a)
        with session.unit():
            answers = session.finish([self.lane_ack(b), ack, ack, stale])

        assert [answer.done for answer in answers] == [True, True, False, False]
        assert (self.lane("a").head_seq, self.lane("b").head_seq) == (2, 2)

    def test_blocking_dead_letter_blocks_its_lane(self) -> None:
        """Nothing of the lane goes until an operator acts; one log record says so (B5)."""
        session = self.open()
        self.fill(session, 2)
        delivery = self.lease_one(session)

        assert self.give_up(session, delivery, chain=True).done

        assert self.lease(session) == []
        self.let_lapse()
        assert self.heads(session).next_due_ticks is None
        view = self.lane()
        assert (view.state, view.head_seq, view.error) == (LaneState.BLOCKED, 1, "gave up")
        (record,) = self.log()
        assert (record.kind, record.entry_id) == (LogKind.DEAD_LETTERED, -delivery.lane_id)

    def test_advancing_dead_letter_lets_the_next_one_go(self) -> None:
        """The dead letter stays on the list; the lane goes on, at once if that was asked for (B5)."""
        session = self.open()
        self.fill(session, 3)

        second = self.give_up(session, self.lease_one(session), Policy.ADVANCE, chain=True).successor

        assert second is not None
        assert second.seq == 2
        self.give_up(session, second, Policy.ADVANCE)
        assert seqs(self.deliver_all(session)) == [3]
        assert [record.kind for record in self.log()] == [LogKind.DEAD_LETTERED] * 2

    def test_paused_destination_is_left_alone_and_its_events_are_kept(self) -> None:
        """Neither leased nor chained to while it is paused; resumed, it goes on where it stopped."""
        session = self.open()
        self.fill(session, 2)
        self.fill(session, 1, "x", destination="elsewhere")
        first = self.lease_one(session)
        self._steer(session, DestinationState.PAUSED)

        advanced = self.finish(session, first, chain=True)

        assert (advanced.done, advanced.successor) == (True, None)
        self.enqueue(session, self.outgoing("more"))
        heads = self.heads(session, 10, ENDPOINT, "elsewhere")
        assert [d.destination for d in heads.deliveries] == ["elsewhere"]
        self._steer(session, DestinationState.ACTIVE)
        assert seqs(self.deliver_all(session)) == [2, 3]

    def _steer(self, session, state: DestinationState) -> bool:  # type: ignore[no-untyped-def]
        with session.unit():
            return bool(session.steer(Steering(ENDPOINT, state, "olga", "maintenance", 1)))

    def test_throttled_destination_waits_for_its_time(self) -> None:
        """A shorter throttle does not shorten a longer one, and the end is the next due time."""
        session = self.open()
        self.fill(session, 1)
        with session.unit():
            session.throttle(Throttling(ENDPOINT, 3_000))
            session.throttle(Throttling(ENDPOINT, 1_000))

        heads = self.heads(session)
        assert (heads.deliveries, heads.next_due_ticks) == ((), heads.now_ticks + 3_000)
        self.clock.advance(3)
        assert seqs(self.lease(session)) == [1]

    def test_limits_are_kept_for_each_destination(self) -> None:
        """No more heads than were asked for, the longest due first."""
        session = self.open()
        for number in range(4):
            self.fill(session, 1, f"k{number}")
            self.fill(session, 1, f"x{number}", destination="elsewhere")
            self.clock.advance(0.01)

        with session.unit():
            heads = session.lease_heads(HeadsWanted((("elsewhere", 1), (ENDPOINT, 2)), LEASE_MS, 1))

        assert sorted(d.key for d in heads.deliveries) == ["k0", "k1", "x0"]

    def test_unknown_destination_has_nothing_to_do(self) -> None:
        """Asking for it is no error."""
        session = self.open()

        heads = self.heads(session, 5, "nowhere")

        assert (heads.deliveries, heads.next_due_ticks) == ((), None)

    def test_what_a_holder_has_can_be_read_back(self) -> None:
        """After a doubtful commit: what is leased to us, and whether a lease was ended by us."""
        session = self.open()
        self.fill(session, 2, "a")
        self.fill(session, 1, "b")
        leased = self.heads(session, 10, holder=41).deliveries
        with self.looking() as reader:
            key = lambda delivery: delivery.lane_id  # noqa: E731
            assert sorted(reader.leased_by((41,)), key=key) == sorted(leased, key=key)
            assert reader.leased_by((42,)) == []
            assert not any(reader.lease_ended(self.lane_ack(d)) for d in leased)
        a, b = sorted(leased, key=lambda delivery: delivery.key)
        self.finish(session, a, chain=True)
        self.fail(session, b)
        with self.looking() as reader:
            assert reader.lease_ended(self.lane_ack(a))
            assert reader.lease_ended(self.lane_ack(b))
            assert not reader.lease_ended(replace(self.lane_ack(a), fence=a.fence + 1))
            assert not reader.lease_ended(replace(self.lane_ack(a), event_id="another"))
            assert not reader.lease_ended(replace(self.lane_ack(b), event_id="another"))
            assert [d.seq for d in reader.leased_by((7,))] == [2]

    def test_wall_clock_steps_neither_end_nor_keep_a_lease(self) -> None:
        """Leases and waits are in the ledger's own time (I15)."""
        session = self.open()
        self.fill(session, 1)
        held = self.lease_one(session)
        for step in (365 * 86_400.0, -2 * 365 * 86_400.0):
            self.clock.step_wall(step)
            assert self.lease(session) == []
        self.fail(session, held, 1_000)
        self.clock.step_wall(-7_200)
        self.clock.advance(1)

        assert seqs(self.lease(session)) == [1]

    def test_everything_is_there_after_reopening(self) -> None:
        """Lanes, seqs, waits and dead letters outlive the session."""
        session = self.open()
        self.fill(session, 2, "a")
        self.fill(session, 2, "b")
        for delivery in self.lease(session):
            if delivery.key == "a":
                self.give_up(session, delivery)
            else:
                self.fail(session, delivery)
        before = self.lane_picture()
        session.close()

        reopened = self.open()

        assert self.lane_picture() == before
        assert [p.seq for p in self.enqueue(reopened, self.outgoing("a-3", "a"))] == [3]
