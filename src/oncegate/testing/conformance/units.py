"""Units: one transaction each, committed on leaving, undone when the block raises."""

from __future__ import annotations

import unittest

from oncegate.errors import StoreBusy, StoreRejected
from oncegate.model.states import Decision, State
from oncegate.store import Reserved, Session, StepRecord, StepRecords, StepState
from oncegate.testing.conformance.bench import StoreBench, refused, unchanged


class _Stop(BaseException):
    """Stands for an interrupt: not an Exception."""


class UnitConformance(StoreBench):
    """Transactions of a session."""

    def test_unit_is_undone_when_its_block_raises(self) -> None:
        """Nothing of a unit that raised is there: no key, no step, no settlement, no record."""
        session = self.open()
        self.make_business_table(session)
        claim, other = self.reserve(session), self.reserve(session, "other")

        for error in (ValueError("handler"), _Stop()):
            with unchanged(self, session), refused(type(error)), session.unit():
                session.reserve([self.reservation("new", quarantine="skew")])
                session.settle([self.settlement(claim, outcome=b"1")])
                session.execute(*self.booking("b-1"))
                self._record_step(session, other)
                _fail(error)

        assert self.settle(session, claim), "the claim is as it was"

    def test_names_first_used_in_an_undone_unit_can_be_used_again(self) -> None:
        """A tenant, surface or actor that was undone with its unit is not remembered wrongly."""
        session = self.open()
        claim = self.reserve(session)
        with refused(ValueError), session.unit():
            session.reserve([self.reservation("a", tenant="undone-tenant", surface="undone-surface")])
            session.settle([self.settlement(claim, actor="undone-actor")])
            _fail(ValueError("undone"))

        self.reserve(session, "b", tenant="first-other-name")
        again = self.reserve(session, "a", tenant="undone-tenant", surface="undone-surface")
        self.settle(session, again, actor="undone-actor")

        found = self.detail(again.entry_id)
        assert (found.entry.tenant, found.entry.surface) == ("undone-tenant", "undone-surface")
        assert found.records[-1].actor == "undone-actor"

    def test_unit_that_is_open_elsewhere_makes_an_impatient_one_busy(self) -> None:
        """Without waiting, a unit is refused at once while somebody else writes, and works afterwards."""
        store = self.make_store(self.clock)
        if not store.capabilities.one_writer:
            raise unittest.SkipTest("this store takes several writers")
        one, two = self.open(store), self.open(store)

        with one.unit():
            one.reserve([self.reservation("one")])
            with refused(StoreBusy), two.unit(wait=False):
                two.reserve([self.reservation("two")])

        with two.unit(wait=False):
            (answer,) = two.reserve([self.reservation("two")])
        assert answer.decision is Decision.RUN

    def test_what_is_not_committed_is_not_seen_elsewhere(self) -> None:
        """Another session sees a unit's work only after it is committed."""
        writer = self.open()

        with writer.unit():
            (claim,) = writer.reserve([self.reservation()])
            writer.settle([self.settlement(claim)])
            assert self.counts() == {}
            with self.looking() as reader:
                assert reader.read_log(0, 10) == []

        assert self.counts() == {State.COMMITTED: 1}
        assert len(self.read_log(0, 10)) == 1

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

    def test_users_statement_returns_its_rows(self) -> None:
        """A statement inside a unit reads what the unit itself wrote."""
        session = self.open()
        self.make_business_table(session)

        with session.unit():
            session.execute(*self.booking("b-1"))
            rows = session.execute(self.select_sql, ())

        assert [tuple(row) for row in rows] == [("b-1",)]

    def test_refused_statement_undoes_its_unit(self) -> None:
        """A statement that the database refuses raises StoreRejected, and the session can go on."""
        session = self.open()
        self.make_business_table(session)

        with unchanged(self, session), refused(StoreRejected), session.unit():
            session.reserve([self.reservation()])
            session.execute("THIS IS NO SQL", ())

        assert self.reserve(session).decision is Decision.RUN

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

    def _record_step(self, session: Session, claim: Reserved) -> None:
        step = StepRecord("notify", StepState.DONE, "mail")
        session.progress([StepRecords(*claim.claim, (step,), self.clock.wall_ms())])


def _fail(error: BaseException) -> None:
    raise error
