"""Replays on record: whose, of what and why; how far each is; how it ended (B6, I20)."""

from __future__ import annotations

from typing import Any

from oncegate.store import (
    HeadAnswer,
    LaneFilter,
    LaneName,
    LaneState,
    LogKind,
    ReplayFilter,
    ReplayOrder,
    ReplayState,
    Session,
)
from oncegate.testing.conformance.bench import ALL
from oncegate.testing.conformance.lane_bench import ENDPOINT, LaneBench

RUNNING = ReplayFilter(only_running=True)


class ReplayConformance(LaneBench):
    """What the list of replays tells."""

    def orders(
        self, wanted: ReplayFilter | None = None, before: int | None = None, limit: int = ALL
    ) -> list[ReplayOrder]:
        """The list, in a look of its own."""
        with self.looking() as reader:
            return reader.replay_orders(wanted or ReplayFilter(), before, limit)

    def names(self, wanted: ReplayFilter) -> list[str]:
        """The names of those that fit."""
        return [order.name for order in self.orders(wanted)]

    def cancel(self, session: Session, nonce: int = 0xABC, actor: str = "olga", why: str = "enough") -> int:
        """Cancels, in a unit of its own."""
        with session.unit():
            return session.cancel_replay(nonce, actor, why, 77)

    def past(self, session: Session, count: int, key: str = "k", **changes: Any) -> int:
        """A lane with so many delivered events."""
        lane = self.fill(session, count, key, **changes)[0].lane_id
        self.deliver_all(session)
        return lane

    def test_replays_are_listed_with_how_far_they_are(self) -> None:
        """Under way with what is left, fewer with every delivery; ended once the last has gone."""
        session = self.open()
        lane, other = self.past(session, 3), self.past(session, 2, "b", tenant="acme")
        assert self.orders() == self.orders(RUNNING) == []

        self.replay(session, lane_id=lane, nonce=0xABC, seq_to=3)
        self.replay(session, lane_id=other, nonce=0xDEF, seq_from=2)
        latest, first = self.orders()
        assert (latest.name, latest.lane, latest.left) == ("def", LaneName(ENDPOINT, "acme", "b"), 1)
        assert (first.name, first.destination, first.lane) == ("abc", ENDPOINT, LaneName(ENDPOINT, "", "k"))
        assert (first.seq_from, first.seq_to, first.only_dead) == (1, 3, False)
        assert (latest.seq_from, latest.seq_to, latest.lanes) == (2, None, 1)
        assert (first.actor, first.reason) == ("olga", "lost at theirs")
        assert first.at_ms == self.clock.wall_ms()
        assert (first.state, first.deliveries, first.left, first.gone) == (ReplayState.RUNNING, 3, 3, 0)

        leased = {one.lane_id: one for one in self.lease(session)}
        self.finish(session, leased[lane])
        assert [(o.name, o.gone, o.left) for o in self.orders(RUNNING)] == [("def", 0, 1), ("abc", 1, 2)]
        self.finish(session, leased[other])
        assert [(o.name, o.gone, o.left) for o in self.orders(RUNNING)] == [("abc", 1, 2)]
        self.deliver_all(session)
        assert self.orders(RUNNING) == []
        assert [(o.name, o.state, o.gone) for o in self.orders()] == [
            ("def", ReplayState.ENDED, 1),
            ("abc", ReplayState.ENDED, 3),
        ]

    def test_a_cancelled_replay_keeps_who_and_why_and_is_cancelled_once(self) -> None:
        """The second of two gets that nothing was left, and leaves no record and no trace."""
        session = self.open()
        lane = self.past(session, 3)
        self.replay(session, lane_id=lane)
        (in_flight,) = self.lease(session)

        assert self.cancel(session) == 2
        assert self.cancel(session, actor="bob", why="me too") == 0

        (order,) = self.orders()
        assert (order.state, order.taken_back, order.left) == (ReplayState.CANCELLED, 2, 1)
        assert (order.cancelled_at_ms, order.cancelled_by, order.cancelled_why) == (77, "olga", "enough")
        assert self.orders(RUNNING) == []
        assert self.finish(session, in_flight).done
        assert [(one.gone, one.left) for one in self.orders()] == [(1, 0)]
        kinds = [record.kind for record in self.log()]
        assert kinds == [LogKind.REPLAY_STARTED, LogKind.REPLAY_CANCELLED]

    def test_a_replay_that_is_over_cannot_be_cancelled(self) -> None:
        session = self.open()
        lane = self.past(session, 1)
        self.replay(session, lane_id=lane)
        self.deliver_all(session)

        assert (self.cancel(session), self.cancel(session, 0xD00F)) == (0, 0)

        assert [order.state for order in self.orders()] == [ReplayState.ENDED]

    def test_nothing_is_planted_under_a_nonce_that_was_cancelled(self) -> None:
        """Given many lanes, planted step by step; a cancellation in between ends the planting too."""
        session = self.open()
        for key in ("a", "b", "c"):
            self.past(session, 1, key)
        step = self.replay(session, limit=1)
        assert (step.deliveries, step.is_end, step.is_cancelled) == (1, False, False)
        step = self.replay(session, limit=1, after_lane=step.last_lane)
        assert [(order.deliveries, order.lanes, order.lane) for order in self.orders()] == [(2, 2, None)]
        assert self.cancel(session) == 2

        refused = self.replay(session, limit=1, after_lane=step.last_lane)

        assert (refused.deliveries, refused.is_end, refused.is_cancelled) == (0, True, True)
        assert self.deliver_all(session) == []
        assert self.replay(session, limit=1, nonce=2, dry_run=True).deliveries == 1

    def test_replays_are_found_by_place_tenant_lane_and_name(self) -> None:
        """A lane's are its own and the one that it is in; a replay of many lanes is no tenant's."""
        session = self.open()
        lane = self.past(session, 1, "k", tenant="acme")
        self.past(session, 1, "other")
        far = self.fill(session, 1, "x", tenant="acme", destination="elsewhere")[0].lane_id
        self.finish(session, self.lease(session, 100, "elsewhere")[0])
        self.replay(session, lane_id=lane, nonce=1)
        self.deliver_all(session)
        self.replay(session, nonce=2)
        self.replay(session, lane_id=far, nonce=3, destination="elsewhere")

        assert self.names(ReplayFilter()) == ["3", "2", "1"]
        assert self.names(ReplayFilter(destination=ENDPOINT)) == ["2", "1"]
        assert self.names(ReplayFilter(tenant="acme")) == ["3", "1"]
        assert self.names(ReplayFilter(destination=ENDPOINT, tenant="acme")) == ["1"]
        assert self.names(ReplayFilter(lane_id=lane)) == ["2", "1"]
        assert self.names(ReplayFilter(lane_id=lane, tenant="acme")) == ["1"]
        assert self.names(ReplayFilter(nonce=2, only_running=True)) == ["2"]
        assert self.names(ReplayFilter(destination="nowhere")) == []
        assert self.names(ReplayFilter(tenant="")) == []

    def test_replays_are_listed_page_by_page_and_the_oldest_make_room(self) -> None:
        """Those that are over only: one that is under way stays on the list."""
        session = self.open()
        running = self.past(session, 2, "slow")
        lane = self.past(session, 1)
        self.replay(session, lane_id=running, nonce=1)
        for nonce in (2, 3, 4, 5):
            self.replay(session, lane_id=lane, nonce=nonce, kept_max=2)
            (mine,) = (one for one in self.lease(session) if one.lane_id == lane)
            self.finish(session, mine)

        page = self.orders(limit=2)
        rest = self.orders(before=page[-1].number)

        assert [order.name for order in page] == ["5", "4"]
        assert [order.name for order in rest] == ["1"]

    def test_a_replayed_event_that_is_given_up_is_retried_or_skipped_by_the_seq_that_is_shown(self) -> None:
        """It blocks its lane before the head does; the lists name it, and an order that does is obeyed."""
        session = self.open()
        lane = self.past(session, 2)
        self.enqueue(session, self.outgoing("new"))
        self.replay(session, lane_id=lane)
        self.give_up(session, self.lease_one(session))

        view = self.lane()
        assert (view.state, view.head_seq, view.due_seq) == (LaneState.BLOCKED, 3, 1)
        with self.looking() as reader:
            assert [dead.is_head for dead in reader.dead_letters(LaneFilter(), (0, 0), ALL)] == [True]
        assert self.retry(session, lane, view.head_seq) is HeadAnswer.NOT_HEAD
        assert self.retry(session, lane, view.due_seq) is HeadAnswer.DONE
        self.give_up(session, self.lease_one(session))
        assert self.skip(session, lane, self.lane().due_seq) is HeadAnswer.DONE

        assert [(one.seq, one.nonce is None) for one in self.deliver_all(session)] == [
            (2, False),
            (3, True),
        ]
        assert [(order.state, order.left) for order in self.orders()] == [(ReplayState.ENDED, 0)]
