"""Who held an entry under which fence can be told from what a ledger has on record, whatever happened."""

from __future__ import annotations

from oncegate.model.decisions import Verb
from oncegate.model.states import State
from oncegate.review.lease_history import HOLDS, OVERDUE, TAKEN_OVER, Tenure, tenures
from oncegate.store import Ruling, Session
from oncegate.testing.conformance.bench import StoreBench


class TenureConformance(StoreBench):
    """One line for each attempt: its number, its fence, from when to when, by whom, and how it ended."""

    def held(self, entry_id: int, *, is_lapsed: bool = False) -> list[Tenure]:
        """The fence history of an entry."""
        seen = self.detail(entry_id)
        return tenures(seen.entry, seen.records, is_lapsed=is_lapsed)

    def approve(self, session: Session, entry_id: int, verb: Verb) -> None:
        """A person lets an entry run."""
        seen = self.detail(entry_id).entry
        ruling = Ruling(
            entry_id, seen.fence, seen.key, verb, "Ada", "seen", "approved", self.clock.wall_ms()
        )
        with session.unit():
            assert session.rule([ruling])[0].done

    def test_one_attempt_is_one_tenure(self) -> None:
        """The first claim writes no record when it begins, and lasts from its arrival to its end."""
        session = self.open()
        claim = self.reserve(session)
        begun = self.clock.wall_ms()
        assert self.held(claim.entry_id) == [Tenure(1, claim.fence, begun, ended=HOLDS)]
        assert self.held(claim.entry_id, is_lapsed=True)[0].ended == OVERDUE
        self.clock.advance(2)

        self.settle(session, claim, actor="worker 1")

        (only,) = self.held(claim.entry_id)
        assert only == Tenure(1, claim.fence, begun, "worker 1", begun + 2_000, "committed")

    def test_retries_and_take_overs_are_told_with_their_fences(self) -> None:
        """A failure, a retry whose worker died, and the one that ended it: three fences, three holders."""
        session = self.open()
        first = self.reserve(session)
        self.settle(session, first, State.RETRYABLE, actor="worker 1")
        self.clock.advance(5)
        second, second_at = self.reserve(session, actor="worker 2"), self.clock.wall_ms()
        self.let_lapse()
        third, third_at = self.reserve(session, actor="worker 3"), self.clock.wall_ms()
        self.clock.advance(1)
        self.settle(session, third, actor="worker 3")

        found = self.held(first.entry_id)

        assert [(one.attempt, one.fence, one.by) for one in found] == [
            (1, first.fence, "worker 1"),
            (2, second.fence, "worker 2"),
            (3, third.fence, "worker 3"),
        ]
        assert [one.since_ms for one in found][1:] == [second_at, third_at]
        assert [one.until_ms for one in found][1:] == [third_at, third_at + 1_000]
        assert [one.ended for one in found][1:] == [TAKEN_OVER, "committed"]

    def test_attempts_that_are_given_up_end_with_their_lapse(self) -> None:
        """The last attempt's worker died too: the record that holds the entry ends its tenure."""
        session = self.open()
        claims = []
        for _ in range(2):
            claims.append(self.reserve(session, attempts_max=2))
            self.let_lapse()
        self.reserve(session, attempts_max=2)

        found = self.held(claims[0].entry_id)

        assert [one.fence for one in found] == [claim.fence for claim in claims]
        assert [one.ended for one in found] == [TAKEN_OVER, "held for a person"]

    def test_nobody_holds_what_waits_from_the_start(self) -> None:
        """A quarantined key has no holder before a person let it run; then it has one."""
        session = self.open()
        parked = self.reserve(session, quarantine="skew: 9m in the past").entry_id
        assert self.held(parked) == []
        self.clock.advance(60)

        self.approve(session, parked, Verb.RELEASE)
        assert self.held(parked) == []
        claim = self.reserve(session, actor="worker 1")

        (now,) = self.held(parked)
        assert now == Tenure(1, claim.fence, self.clock.wall_ms(), "worker 1", ended=HOLDS)

    def test_an_attempt_that_ended_at_once_is_told_from_one_that_never_was(self) -> None:
        """Held in the very millisecond of its arrival, but by a handler that ran."""
        session = self.open()
        claim = self.reserve(session)
        self.settle(session, claim, State.HELD, reason="over the limit")
        self.approve(session, claim.entry_id, Verb.APPROVE)
        again = self.reserve(session)

        assert [(one.attempt, one.fence) for one in self.held(claim.entry_id)] == [
            (1, claim.fence),
            (1, again.fence),
        ], "attempts count from zero after a person's decision, fences do not"
