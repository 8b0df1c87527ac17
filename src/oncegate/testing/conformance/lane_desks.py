"""The lanes' desk: operators' verbs are fenced, journalled and happen once (I20); lists; pruning."""

from __future__ import annotations

from typing import Any

from oncegate.store import (
    DestinationState,
    HeadAnswer,
    LaneFilter,
    LanePruned,
    LanePruning,
    LaneState,
    LogKind,
    Policy,
    Session,
    Steering,
)
from oncegate.testing.conformance.bench import ALL
from oncegate.testing.conformance.lane_bench import ENDPOINT, LaneBench, seqs


class LaneDeskConformance(LaneBench):
    """What operators and workers do."""

    def blocked(self, session: Session, key: str = "k", count: int = 3) -> int:
        """A lane whose first event is a dead letter."""
        lane = self.fill(session, count, key)[0].lane_id
        for delivery in self.lease(session):
            if delivery.lane_id == lane:
                self.give_up(session, delivery)
        return lane

    def kinds(self) -> list[LogKind]:
        """What the log tells."""
        return [record.kind for record in self.log()]

    def test_retried_head_goes_again_with_all_its_attempts(self) -> None:
        """The lane is blocked no more, the order of its events is kept, and the record says who and why."""
        session = self.open()
        lane = self.blocked(session)

        assert self.retry(session, lane, 1) is HeadAnswer.DONE
        assert self.retry(session, lane, 1) is HeadAnswer.DONE

        assert [(d.seq, d.attempt) for d in self.deliver_all(session)] == [(1, 1), (2, 1), (3, 1)]
        assert self.kinds() == [LogKind.DEAD_LETTERED, LogKind.HEAD_RETRIED]
        record = self.log()[-1]
        assert (record.actor, record.entry_id, record.note) == ("olga", -lane, "seq 1: because")
        with self.looking() as reader:
            assert reader.dead_letters(LaneFilter(), (0, 0), ALL) == []

    def test_lanes_are_known_by_name_whatever_their_state(self) -> None:
        """For records, which name a lane by its number: blocked or idle, but not one that never was."""
        session = self.open()
        blocked = self.blocked(session)
        idle = self.fill(session, 1, "other")[0].lane_id
        self.deliver_all(session)

        with self.looking() as reader:
            found = reader.lane_names([blocked, idle, blocked, idle + 1_000])
            assert reader.lane_names([]) == {}

        assert {number: name.key for number, name in found.items()} == {blocked: "k", idle: "other"}
        assert {name.destination for name in found.values()} == {ENDPOINT}

    def test_retrying_cuts_a_wait_short(self) -> None:
        """A head that waits for its next try is due now."""
        session = self.open()
        lane = self.fill(session, 1)[0].lane_id
        self.fail(session, self.lease_one(session), 60_000)

        assert self.retry(session, lane, 1) is HeadAnswer.DONE

        assert self.lease_one(session).attempt == 1

    def test_skipped_head_is_left_out_for_good(self) -> None:
        """What is behind it goes on; it stays on the list of dead letters; a second click does nothing."""
        session = self.open()
        lane = self.blocked(session)

        assert self.skip(session, lane, 1) is HeadAnswer.DONE
        assert self.skip(session, lane, 1) is HeadAnswer.NOT_HEAD

        assert seqs(self.deliver_all(session)) == [2, 3]
        assert self.kinds() == [LogKind.DEAD_LETTERED, LogKind.HEAD_SKIPPED]
        with self.looking() as reader:
            (dead,) = reader.dead_letters(LaneFilter(), (0, 0), ALL)
        assert (dead.seq, dead.error, dead.is_head, dead.event_id) == (1, "gave up", False, "k-1")

    def test_skipping_a_head_that_was_never_given_up_makes_it_a_dead_letter(self) -> None:
        """So that nothing is ever left out without a trace."""
        session = self.open()
        lane = self.fill(session, 1)[0].lane_id

        assert self.skip(session, lane, 1) is HeadAnswer.DONE

        assert self.lane().state is LaneState.IDLE
        with self.looking() as reader:
            (dead,) = reader.dead_letters(LaneFilter(key="k"), (0, 0), ALL)
        assert dead.error == "skipped by olga: because"

    def test_orders_for_anything_but_a_free_head_are_refused(self) -> None:
        """Not the head, in flight, an idle lane, no such lane: nothing changes and the answer says why."""
        session = self.open()
        lane = self.fill(session, 3)[0].lane_id
        idle = self.fill(session, 1, "idle")[0].lane_id
        leased = {d.lane_id: d for d in self.lease(session)}
        self.finish(session, leased[idle])
        before = self.lane_picture()

        for verb in (self.retry, self.skip):
            assert verb(session, lane, 1) is HeadAnswer.IN_FLIGHT
            assert verb(session, lane, 2) is HeadAnswer.NOT_HEAD
            assert verb(session, idle, 1) is HeadAnswer.NOT_HEAD
            assert verb(session, idle, 2) is HeadAnswer.NOT_HEAD
            assert verb(session, 10**9, 1) is HeadAnswer.UNKNOWN

        assert self.lane_picture() == before

    def test_steering_twice_is_one_action(self) -> None:
        """Each change of a destination's state has one record; the list shows it with its reason."""
        session = self.open()
        self.fill(session, 1)
        states = (DestinationState.PAUSED, DestinationState.DISABLED, DestinationState.ACTIVE)
        done = []
        for state in states:
            for _ in range(2):
                with session.unit():
                    done.append(session.steer(Steering(ENDPOINT, state, "olga", state.label, 77)))
            with self.looking() as reader:
                (view,) = reader.destinations()
            assert (view.state, view.reason, view.since_ms) == (state, state.label, 77)

        assert done == [True, False] * 3
        assert self.kinds() == [
            LogKind.DESTINATION_PAUSED,
            LogKind.DESTINATION_DISABLED,
            LogKind.DESTINATION_RESUMED,
        ]

    def test_replay_goes_in_order_before_anything_newer(self) -> None:
        """Past events go once more under the replay's nonce; then the lane goes on where it was (B6)."""
        session = self.open()
        lane = self.fill(session, 5)[0].lane_id
        for _ in range(3):
            self.finish(session, self.lease_one(session))

        answer = self.replay(session, lane_id=lane, seq_from=2, seq_to=9)

        assert (answer.deliveries, answer.lanes, answer.is_end) == (2, 1, True)
        done = self.deliver_all(session)
        assert [(d.seq, d.nonce) for d in done] == [(2, 0xABC), (3, 0xABC), (4, None), (5, None)]
        assert [d.event_id for d in done] == ["k-2", "k-3", "k-4", "k-5"]
        assert self.kinds() == [LogKind.REPLAY_STARTED]

    def test_replay_wakes_an_idle_lane_and_leaves_it_idle(self) -> None:
        """With nothing else to do the lane is idle again afterwards, and new events wake it."""
        session = self.open()
        self.fill(session, 2)
        self.deliver_all(session)

        self.replay(session)
        first = self.lease_one(session)
        self.enqueue(session, self.outgoing("meanwhile"))
        assert self.lease(session) == []
        second = self.finish(session, first, chain=True).successor

        assert second is not None
        assert (second.seq, second.nonce) == (2, 0xABC)
        self.finish(session, second)
        assert [(d.seq, d.nonce) for d in self.deliver_all(session)] == [(3, None)]
        assert self.lane().state is LaneState.IDLE
        self.enqueue(session, self.outgoing("after"))
        assert seqs(self.deliver_all(session)) == [4]

    def test_replay_asked_for_in_flight_begins_when_the_attempt_has_ended(self) -> None:
        """Whether that attempt succeeds or fails; a failed head comes after the replay."""
        session = self.open()
        lane = self.fill(session, 3)[0].lane_id
        self.finish(session, self.lease_one(session))
        head = self.lease_one(session)
        self.replay(session, lane_id=lane)
        assert self.lease(session) == []

        self.fail(session, head, 60_000)

        assert [(d.seq, d.nonce is None) for d in self.deliver_all(session)] == [
            (1, False),
            (2, True),
            (3, True),
        ]

    def test_replay_leaves_a_blocked_lane_blocked(self) -> None:
        """What was lost before the dead letter is sent again; the dead letter waits as before."""
        session = self.open()
        lane = self.fill(session, 3)[0].lane_id
        self.finish(session, self.lease_one(session))
        self.give_up(session, self.lease_one(session))

        self.replay(session, lane_id=lane)

        assert seqs(self.deliver_all(session)) == [1]
        view = self.lane()
        assert (view.state, view.head_seq) == (LaneState.BLOCKED, 2)
        self.retry(session, lane, 2)
        assert seqs(self.deliver_all(session)) == [2, 3]

    def test_dead_letters_alone_can_be_replayed(self) -> None:
        """Of a whole destination, in steps of lanes; delivered now, they are dead letters no more."""
        session = self.open()
        for key in ("a", "b", "c"):
            self.fill(session, 3, key)
        self.fill(session, 1, "x", destination="elsewhere")
        for _ in range(3):
            for delivery in self.lease(session):
                if delivery.seq == 2 and delivery.key != "c":
                    self.give_up(session, delivery, Policy.ADVANCE)
                else:
                    self.finish(session, delivery)
        planned = self.replay(session, only_dead=True, dry_run=True)
        assert (planned.deliveries, planned.lanes) == (2, 2)

        steps = [self.replay(session, only_dead=True, limit=2)]
        while not steps[-1].is_end:
            steps.append(self.replay(session, only_dead=True, limit=2, after_lane=steps[-1].last_lane))

        assert sum(step.deliveries for step in steps) == 2
        done = self.deliver_all(session)
        assert sorted((d.key, d.seq) for d in done) == [("a", 2), ("b", 2)]
        with self.looking() as reader:
            assert reader.dead_letters(LaneFilter(), (0, 0), ALL) == []

    def test_lane_is_in_one_replay_at_a_time(self) -> None:
        """A second one is refused until the first is done: seqs would go backwards."""
        session = self.open()
        lane = self.fill(session, 2)[0].lane_id
        self.deliver_all(session)
        self.replay(session, lane_id=lane)

        again = self.replay(session, lane_id=lane, nonce=2)

        assert (again.deliveries, again.refused) == (0, 1)
        assert [d.nonce for d in self.deliver_all(session)] == [0xABC] * 2
        assert self.replay(session, lane_id=lane, nonce=2).deliveries == 2

    def test_cancelled_replay_is_taken_back(self) -> None:
        """What is in flight ends; the rest never goes; the lane goes on with what is new."""
        session = self.open()
        self.fill(session, 3)
        self.deliver_all(session)
        self.fill(session, 2, "b")
        self.deliver_all(session)
        self.replay(session)
        (in_flight,) = self.lease(session, 1)
        self.enqueue(session, self.outgoing("new", in_flight.key))
        newest = self.lane(in_flight.key).last_seq

        with session.unit():
            taken_back = session.cancel_replay(0xABC, "olga", "enough", 1)
            assert session.cancel_replay(0xABC, "olga", "enough", 1) == 0

        assert taken_back == 4
        assert self.finish(session, in_flight).done
        assert [(d.seq, d.nonce) for d in self.deliver_all(session)] == [(newest, None)]
        assert self.open_lanes() == []
        assert self.kinds() == [LogKind.REPLAY_STARTED, LogKind.REPLAY_CANCELLED]

    def test_lists_show_what_waits_and_why(self) -> None:
        """Lanes in order, by state; what is behind, attempts, errors; lag for each destination."""
        session = self.open()
        lane = self.blocked(session, "blocked")
        self.clock.advance(1)
        self.fill(session, 2, "ready")
        self.fill(session, 1, "x", destination="elsewhere")

        (view,) = self.open_lanes(LaneState.BLOCKED)
        assert (view.lane_id, view.key, view.waiting_behind, view.attempts) == (lane, "blocked", 2, 1)
        assert view.oldest_created_at_ms == self.clock.wall_ms() - 1_000
        with self.looking() as reader:
            here = reader.lanes(LaneFilter(destination=ENDPOINT), 0, ALL)
            after = reader.lanes(LaneFilter(destination=ENDPOINT), lane, ALL)
            elsewhere, endpoint = reader.destinations()
            events = reader.deliveries(lane, 1, 2)
        assert [view.key for view in here] == ["blocked", "ready"]
        assert [view.key for view in after] == ["ready"]
        assert (endpoint.waiting, endpoint.blocked, endpoint.events, endpoint.dead_letters) == (1, 1, 5, 1)
        assert endpoint.oldest_created_at_ms == self.clock.wall_ms() - 1_000
        assert endpoint.oldest_blocked_at_ms == self.clock.wall_ms() - 1_000
        assert elsewhere.oldest_blocked_at_ms is None
        assert (elsewhere.name, elsewhere.events, elsewhere.blocked) == ("elsewhere", 1, 0)
        assert [(event.seq, event.is_dead, event.note) for event in events] == [
            (1, True, "gave up"),
            (2, False, None),
        ]

    def test_idle_lanes_are_listed_where_they_are_asked_for(self) -> None:
        """Up to a number, with those that are not idle; by a part of their keys, too."""
        session = self.open()
        blocked = self.blocked(session, "order-1")
        idle = self.fill(session, 1, "order-2")[0].lane_id
        other = self.fill(session, 1, "visit-3")[0].lane_id
        self.deliver_all(session)

        def keys(after: int = 0, **wanted: Any) -> list[str]:
            with self.looking() as reader:
                return [view.key for view in reader.lanes(LaneFilter(**wanted), after, ALL)]

        assert keys() == ["order-1"]
        assert keys(idle_upto=other) == ["order-1", "order-2", "visit-3"]
        assert keys(idle_upto=idle) == ["order-1", "order-2"]
        assert keys(idle_upto=other, after=blocked) == ["order-2", "visit-3"]
        assert keys(idle_upto=other, states=(LaneState.IDLE,)) == ["order-2", "visit-3"]
        assert keys(idle_upto=other, key_contains="order") == ["order-1", "order-2"]
        assert keys(key_contains="order") == ["order-1"]
        assert keys(idle_upto=other, key_contains="%") == []
        assert keys(idle_upto=other, destination="elsewhere") == []

    def test_acknowledged_deliveries_are_listed_with_attempts_and_status(self) -> None:
        """How often it was tried, when it was acknowledged and what the answer was."""
        session = self.open()
        lane = self.fill(session, 1)[0].lane_id
        self.fail(session, self.lease_one(session), 0)
        self.clock.advance(1)
        self.finish(session, self.lease_one(session))

        with self.looking() as reader:
            (event,) = reader.deliveries(lane, 1, 10)
        assert (event.attempts, event.note, event.is_dead) == (2, "200", False)
        assert event.acknowledged_at_ms == self.clock.wall_ms()

    def test_pruning_removes_what_was_acknowledged_long_ago(self) -> None:
        """In bounded steps; dead letters, replays and what is not done stay, and seqs go on."""
        session = self.open()
        lane = self.fill(session, 6)[0].lane_id
        self.give_up(session, self.lease_one(session), Policy.ADVANCE)
        for _ in range(3):
            self.finish(session, self.lease_one(session))
        self.replay(session, lane_id=lane, seq_from=4, seq_to=4)
        cutoff = self.clock.wall_ms() + 1

        assert self._prune(session, cutoff - 1).removed == 0
        assert self._prune(session, cutoff, deliveries_max=1).removed == 1
        assert self._prune(session, cutoff).removed == 1
        assert self._prune(session, cutoff).removed == 0
        with self.looking() as reader:
            assert [event.seq for event in reader.deliveries(lane, 1, ALL)] == [1, 4, 5, 6]
        assert seqs(self.deliver_all(session)) == [4, 5, 6]
        assert [p.seq for p in self.enqueue(session, self.outgoing("k-2"))] == [7]

    def test_waiting_events_of_a_destination_are_counted(self) -> None:
        """All that is not done, in flight and blocked too; other destinations and unknown ones apart."""
        session = self.open()
        self.fill(session, 3, "a")
        self.fill(session, 2, "b")
        self.fill(session, 1, "a", destination="elsewhere")
        for delivery in self.lease(session):
            if delivery.key == "b":
                self.finish(session, delivery)

        with self.looking() as reader:
            counts = [reader.waiting_at(name) for name in (ENDPOINT, "elsewhere", "unknown")]

        assert counts == [4, 1, 0]

    def test_pruning_leaves_other_destinations_alone(self) -> None:
        """Each destination has a retention of its own; lanes are walked in steps to the end."""
        session = self.open()
        for number in range(5):
            self.fill(session, 1, f"k{number}")
            self.fill(session, 1, f"x{number}", destination="elsewhere")
        for delivery in self.lease(session, 100, ENDPOINT, "elsewhere"):
            self.finish(session, delivery)

        steps = [self._prune(session, 2**60, limit=3)]
        while not steps[-1].is_end:
            steps.append(self._prune(session, 2**60, limit=3, after_lane=steps[-1].last_lane))

        assert sum(step.removed for step in steps) == 5
        with self.looking() as reader:
            for number in range(5):
                lane = self.lane(f"x{number}", "elsewhere")
                assert len(reader.deliveries(lane.lane_id, 1, ALL)) == 1
        with session.unit():
            assert session.prune_deliveries(LanePruning(None, 2**60)).removed == 5

    def _prune(self, session: Session, before_ms: int, **changes: int) -> LanePruned:
        with session.unit():
            return session.prune_deliveries(LanePruning(ENDPOINT, before_ms, **changes))
