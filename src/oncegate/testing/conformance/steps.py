"""Named steps: recorded while a claim goes on, handed to the worker that takes over, cleared at its end."""

from __future__ import annotations

from oncegate.errors import StoreRejected
from oncegate.model.states import State
from oncegate.store import LogKind, StepRecord, StepState
from oncegate.store.browsing import PEOPLE_ABOVE
from oncegate.testing.conformance.bench import StoreBench, refused, unchanged

STARTED = StepRecord("claim", StepState.STARTED, "terminal", started_at_ms=1_790_000_000_123)
DONE = StepRecord("claim", StepState.DONE, "terminal", b'{"id":"S-1"}', "S-1", 1_790_000_000_456)
OTHER = StepRecord("notify", StepState.NOT_APPLIED, "mail")


class StepConformance(StoreBench):
    """Progress of a claim."""

    def test_recorded_steps_are_handed_to_the_next_attempt(self) -> None:
        """A worker that takes over a stranded key gets what was started and what was finished."""
        session = self.open()
        claim = self.reserve(session)
        assert self.progress(session, claim, STARTED)
        assert self.progress(session, claim, OTHER)
        self.let_lapse()

        again = self.reserve(session)

        assert sorted(again.steps, key=lambda step: step.name) == [STARTED, OTHER]
        assert self.detail(claim.entry_id).entry.attempt == 2

    def test_later_record_of_a_step_replaces_the_earlier(self) -> None:
        """A step that was started and then finished is finished, with its result and resource."""
        session = self.open()
        claim = self.reserve(session)
        self.progress(session, claim, STARTED)
        self.progress(session, claim, DONE)

        assert self.detail(claim.entry_id).steps == (DONE,)

    def test_progress_leaves_the_claim_as_it_is(self) -> None:
        """Recording a step neither ends nor renews a claim, and appends nothing to the log."""
        session = self.open()
        claim = self.reserve(session)
        before = self.detail(claim.entry_id).entry
        self.clock.advance(2)

        self.progress(session, claim, STARTED)

        assert self.detail(claim.entry_id).entry == before
        assert self.log() == []

    def test_a_downstreams_answer_is_one_record_and_changes_nothing_else(self) -> None:
        """E5: what a downstream said when it was asked stands in the log; it is nothing people did."""
        session = self.open()
        claim = self.reserve(session)
        before = self.detail(claim.entry_id).entry
        self.clock.advance(2)

        assert self.progress(session, claim, probed="asked terminal about claim: holds S-1")

        assert self.detail(claim.entry_id).entry == before
        (record,) = self.records_of(self.detail(claim.entry_id))
        told = (record.kind, record.actor, record.note, record.at_ms)
        note = "asked terminal about claim: holds S-1"
        assert told == (LogKind.PROBED, "suite", note, self.clock.wall_ms())
        assert self.log() == [record]
        assert record.kind <= PEOPLE_ABOVE

    def test_an_answer_under_an_old_fence_is_not_recorded(self) -> None:
        """I4: also a record for people is refused to a worker that was taken over, or has ended."""
        session = self.open()
        first = self.reserve(session)
        self.let_lapse()
        second = self.reserve(session)

        with unchanged(self, session):
            assert not self.progress(session, first, probed="asked terminal about claim: nothing")

        self.settle(session, second)
        with unchanged(self, session):
            assert not self.progress(session, second, probed="asked terminal about claim: nothing")

    def test_writes_of_a_step_are_one_transaction_with_its_record(self) -> None:
        """The business write and the record of its step are both there, or neither."""
        session = self.open()
        self.make_business_table(session)
        claim = self.reserve(session)
        assert self.progress(session, claim, DONE, writes=(self.booking("b-1"),))

        with unchanged(self, session), refused(StoreRejected):
            self.progress(session, claim, OTHER, writes=(self.booking("b-2"), self.booking("b-1")))

        assert self.detail(claim.entry_id).steps == (DONE,)
        assert self.bookings(session) == ["b-1"]

    def test_steps_that_came_before_survive_a_retryable_end(self) -> None:
        """A failure that may be tried again keeps recorded steps and adds those it brings."""
        session = self.open()
        claim = self.reserve(session)
        self.progress(session, claim, DONE)
        self.settle(session, claim, State.RETRYABLE, steps=(OTHER,))

        again = self.reserve(session)

        assert sorted(again.steps, key=lambda step: step.name) == [DONE, OTHER]

    def test_steps_are_cleared_when_asked(self) -> None:
        """A final outcome that carries its own steps leaves no step records behind."""
        session = self.open()
        claim = self.reserve(session)
        other = self.reserve(session, "other")
        self.progress(session, claim, DONE, OTHER)
        self.progress(session, other, STARTED)

        self.settle(session, claim, outcome=b"{}", clear_steps=True)

        assert self.detail(claim.entry_id).steps == ()
        assert self.detail(other.entry_id).steps == (STARTED,)

    def test_steps_stay_when_nobody_asks_to_clear_them(self) -> None:
        """Without being asked, a settlement drops no step record."""
        session = self.open()
        claim = self.reserve(session)
        self.progress(session, claim, STARTED)

        self.settle(session, claim, State.UNKNOWN, reason="may have happened")

        assert self.detail(claim.entry_id).steps == (STARTED,)

    def test_what_a_downstream_was_declared_to_do_stays_with_its_step(self) -> None:
        """I24: the next attempt gets what was declared when a step was called, and when that was."""
        session = self.open()
        claim = self.reserve(session)
        called = StepRecord(
            "claim", StepState.CALLED, "terminal", None, None, None, "86400000/-/60000", 77, 66
        )
        assert self.progress(session, claim, called)
        self.let_lapse()

        again = self.reserve(session)

        assert again.steps == (called,)
        assert self.detail(claim.entry_id).steps == (called,)

    def test_the_declaration_of_the_first_claim_stays_with_the_key(self) -> None:
        """I24: a later claim gets what was declared at first, and does not replace it."""
        session = self.open()
        self.reserve(session, declared="the old one")
        self.let_lapse()

        second = self.reserve(session, declared="a new one")
        self.let_lapse()
        third = self.reserve(session, declared="a newer one")

        assert (second.declared, third.declared) == ("the old one", "the old one")

    def test_a_claim_without_a_declaration_is_told_as_one(self) -> None:
        """I24: nothing is taken for declared that was not, also not by what a later claim declares."""
        session = self.open()
        self.reserve(session)
        self.let_lapse()

        second = self.reserve(session, declared="a new one")
        self.let_lapse()
        third = self.reserve(session, declared="a new one")

        assert (second.declared, third.declared) == (None, None)

    def test_declarations_of_a_batch_are_kept_apart(self) -> None:
        """Each of many claims made at once keeps its own declaration, or none."""
        session = self.open()
        wanted = {"a": "one", "b": None, "c": "two", "d": "one"}
        with session.unit():
            session.reserve([self.reservation(key, declared=text) for key, text in wanted.items()])
        self.let_lapse()

        with session.unit():
            again = session.reserve([self.reservation(key, declared="new") for key in wanted])

        assert [answer.declared for answer in again] == list(wanted.values())
