"""Traits: what only stores with interactive units promise, and those whose fences are entry numbers.

A unit of many calls is all or nothing, a look is one moment, and a bound that is counted holds.
"""

from __future__ import annotations

import threading
import unittest
from concurrent.futures import ThreadPoolExecutor

from oncegate.errors import StoreBusy, StoreRejected, UsageError
from oncegate.model.states import Decision, State
from oncegate.store import EntryFilter, Reservation, Reserved, Session, StepRecord, StepRecords, StepState
from oncegate.testing.conformance.bench import ALL, StoreBench, refused, unchanged
from oncegate.testing.waiting import DEADLINE_SECONDS

TRIES_MAX = 1_000
OUTCOME = b'{"value":null}'


class _Stop(BaseException):
    """Stands for an interrupt: not an Exception."""


class InteractiveConformance(StoreBench):
    """Transactions of a session (`Units.INTERACTIVE`)."""

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
        """Without waiting, a unit is refused at once while another session writes, and works afterwards."""
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

    def _record_step(self, session: Session, claim: Reserved) -> None:
        step = StepRecord("notify", StepState.DONE, "mail")
        session.progress([StepRecords(*claim.claim, (step,), self.clock.wall_ms())])

    def test_looking_shows_one_moment(self) -> None:
        """A reader does not see what is committed while it reads, and does not hold it up."""
        session = self.open()
        self.settle(session, self.reserve(session, "before"))

        with self.looking() as reader:
            seen = (reader.counts(), reader.read_log(0, ALL))
            self.settle(session, self.reserve(session, "meanwhile"))
            assert (reader.counts(), reader.read_log(0, ALL)) == seen

        assert self.counts() == {State.COMMITTED: 2}

    def test_looks_that_follow_each_other_each_show_their_own_moment(self) -> None:
        """Whatever is kept open in between: what was committed before a look is in it."""
        store = self.make_store(self.clock)
        session = self.open(store)
        for number in range(4):
            self.settle(session, self.reserve(session, f"event {number}"))
            with store.look(again=True) as reader:
                assert reader.counts() == {State.COMMITTED: number + 1}
        store.close()
        with store.look(again=True) as reader:
            assert reader.counts() == {State.COMMITTED: 4}
        store.close()

    def test_joining_something_that_is_no_transaction_is_refused(self) -> None:
        """Only a user's own open transaction can be joined."""
        store = self.make_store(self.clock)
        self.open(store)

        for nonsense in (None, object(), "BEGIN", 7):
            with refused(UsageError):
                store.join(nonsense)

    def test_recording_in_a_unit_that_is_undone_leaves_nothing(self) -> None:
        """No entry, no outcome, no record; the next arrival is new."""
        session = self.open()

        with unchanged(self, session):
            try:
                with session.unit():
                    session.record([self.reservation()], OUTCOME)
                    raise ZeroDivisionError
            except ZeroDivisionError:
                pass

        assert self.reserve(session).decision is Decision.RUN

    def test_a_bound_that_is_counted_holds_for_sessions_at_once(self) -> None:
        """Each counts what the others kept: counting and keeping are one step."""
        store, wanted = self.make_store(self.clock), [self.reservation(f"b-{n}") for n in range(12)]
        sessions, start = [self.open(store) for _ in wanted], threading.Barrier(len(wanted))

        def keep(session: Session, item: Reservation) -> bool:
            start.wait(DEADLINE_SECONDS)
            for _ in range(TRIES_MAX):
                try:
                    with session.unit():
                        session.serialise(["one name", "another"])
                        if len(session.entries(EntryFilter(), None, 4)) == 4:
                            return False
                        session.reserve([item])
                    return True
                except StoreBusy:
                    continue
            raise AssertionError("the ledger stays busy")

        with ThreadPoolExecutor(len(wanted)) as threads:
            kept = list(threads.map(keep, sessions, wanted))

        assert kept.count(True) == 4
        assert len(self.open(store).entries(EntryFilter(), None, 20)) == 4


class NumberedFenceConformance(StoreBench):
    """The first claim's fence is the number of its entry: its record can be left out."""

    def test_first_fence_is_the_entrys_number(self) -> None:
        """The first claim leaves no record of its own: what it held can be told all the same."""
        claim = self.reserve(self.open())

        assert claim.fence == claim.entry_id
        assert self.log() == []

    def test_numbers_of_a_withdrawn_claim_are_not_given_out_again(self) -> None:
        """Its worker may still write: what it holds must name no other claim."""
        session = self.open()
        old = self.reserve(session)
        with session.unit():
            session.withdraw([old.claim])

        new = self.reserve(session)

        assert min(new.entry_id, new.fence) > max(old.entry_id, old.fence)


def _fail(error: BaseException) -> None:
    raise error
