"""Units and sessions, as every store has them."""

from __future__ import annotations

from oncegate.model.states import Decision, State
from oncegate.testing.conformance.bench import StoreBench, unchanged


class UnitConformance(StoreBench):
    """One call in a unit, a doubtful commit, and the end of a session."""

    def test_unit_announced_as_a_single_call_is_as_good_as_any(self) -> None:
        """One call in a unit that announces it does what it would do in any other."""
        session = self.open()
        with session.unit(single=True):
            (claim,) = session.reserve([self.reservation()])
        with session.unit(single=True):
            busy, new = session.reserve([self.reservation(), self.reservation("new")])
        with session.unit(single=True):
            answers = session.settle([self.settlement(claim, outcome=b"1"), self.settlement(claim)])

        assert (claim.decision, busy.decision, new.decision) == (
            Decision.RUN,
            Decision.BUSY,
            Decision.RUN,
        )
        assert answers == [True, False]
        assert self.counts() == {State.COMMITTED: 1, State.IN_FLIGHT: 1}
        assert len(self.log()) == 1

    def test_settling_doubt_changes_nothing_that_can_be_read(self) -> None:
        """The harmless write after a doubtful commit is harmless."""
        session = self.open()
        claim = self.reserve(session)
        self.settle(session, claim, outcome=b"1")

        with unchanged(self, session), session.unit():
            session.settle_doubt()

        after = self.reserve(session, "next")
        assert after.decision is Decision.RUN
        assert after.entry_id != claim.entry_id

    def test_closing_twice_is_harmless(self) -> None:
        """A session can be given back more than once, and never raises then."""
        session = self.open()
        session.close()
        session.close()
