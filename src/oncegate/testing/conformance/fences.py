"""Fences: they grow with every claim, and a write that shows an old one changes nothing (I4)."""

from __future__ import annotations

from msgspec.structs import replace

from oncegate.model.states import Decision, State
from oncegate.store import Attachment, Renewal, Reserved, Session, StepRecord, StepState
from oncegate.testing.conformance.bench import LEASE_MS, StoreBench, unchanged

STEP = StepRecord("notify", StepState.DONE, "mail")


class FenceConformance(StoreBench):
    """Who may still write."""

    def test_fences_strictly_grow_with_every_claim(self) -> None:
        """Taken over again and again, by recovery and by retry, a key's fence only ever grows."""
        session = self.open()
        fences = [self.reserve(session).fence]
        for turn in range(6):
            if turn % 2:
                self.let_lapse()
            else:
                (seen,) = self.read([self.reservation().key])
                assert seen is not None
                assert seen.token is not None
                claim = Reserved(Decision.RUN, seen.entry_id, seen.fence, token=seen.token, key=seen.key)
                self.settle(session, claim, State.RETRYABLE)
            self.reserve(session, f"another-{turn}")
            fences.append(self.reserve(session, attempts_max=100).fence)

        assert fences == sorted(set(fences))

    def test_write_with_an_old_fence_changes_nothing_and_says_so(self) -> None:
        """Settling, recording, renewing and attaching with a claim that was taken over all answer False."""
        session = self.open()
        self.make_business_table(session, required=False)
        old = self.reserve(session)
        self.progress(session, old, StepRecord("claim", StepState.STARTED, "terminal"))
        self.let_lapse()
        new = self.reserve(session)
        assert new.decision is Decision.RECOVER

        with unchanged(self, session):
            answers = self._write_everything(session, old)

        assert answers == [False] * len(answers)

    def test_write_with_an_old_fence_changes_nothing_after_the_key_is_settled(self) -> None:
        """A worker that wakes up after another one finished its key changes nothing either."""
        session = self.open()
        self.make_business_table(session, required=False)
        old = self.reserve(session)
        self.let_lapse()
        new = self.reserve(session)
        self.settle(session, new)

        with unchanged(self, session):
            answers = self._write_everything(session, old)

        assert answers == [False] * len(answers)

    def test_only_a_claim_that_has_ended_as_committed_is_told_so(self) -> None:
        """Not one that runs, failed, was taken over or never was; as often as it is asked."""
        session = self.open()
        old = self.reserve(session)
        self.let_lapse()
        new = self.reserve(session)
        self.settle(session, new)
        others = [self.reserve(session, f"key-{state.label}") for state in State]
        for claim, state in zip(others[1:], list(State)[1:], strict=True):
            self.settle(session, claim, state)
        runs, committed, *rest = (claim.claim for claim in others)
        ended, taken = new.claim, old.claim
        never = ended._replace(entry_id=max(claim.entry_id for claim in others) + 1_000)
        twin = committed._replace(token=committed.token + 1)

        answers = session.are_committed([ended, taken, runs, committed, ended, never, twin, *rest])

        assert answers == [True, False, False, True, True, False, False, *(False for _ in rest)]
        assert session.are_committed([]) == []

    def test_fence_that_was_never_given_out_is_refused(self) -> None:
        """Neither a larger number nor another key's opens an entry."""
        session = self.open()
        self.make_business_table(session, required=False)
        claim = self.reserve(session)
        other = self.reserve(session, "other")

        for fence in {claim.fence + 1, other.fence, other.fence + 1, 0, -1} - {claim.fence}:
            guess = replace(claim, fence=fence)
            with unchanged(self, session):
                answers = self._write_everything(session, guess)
            assert answers == [False] * len(answers), fence

    def test_right_entry_and_fence_with_another_token_change_nothing_and_say_so(self) -> None:
        """I23: a ledger that went back gives numbers out again; only the token tells whose claim it is."""
        session = self.open()
        self.make_business_table(session, required=False)
        claim = self.reserve(session)
        committed = self.reserve(session, "committed")
        self.settle(session, committed)

        for twin in (claim, committed):
            for token in (twin.token + 1, 0, -twin.token):
                with unchanged(self, session):
                    answers = self._write_everything(session, replace(twin, token=token))
                assert answers == [False] * len(answers), token

        assert self.settle(session, claim)

    def test_another_token_among_many_changes_nothing_of_its_entry(self) -> None:
        """I23: the batch is taken apart, and each claim gets its own answer."""
        session = self.open()
        claims = [self.reserve(session, f"key-{number}") for number in range(8)]
        strange = replace(claims[3], token=claims[4].token)
        asked = [*claims[:3], strange, *claims[4:]]

        with session.unit():
            answers = session.settle([self.settlement(claim, outcome=b"1") for claim in asked])

        assert answers == [True] * 3 + [False] + [True] * 4
        found = self.detail(claims[3].entry_id)
        assert (found.entry.state, found.entry.token) == (State.IN_FLIGHT, claims[3].token)
        assert (found.outcome, self.records_of(found)) == (None, ())
        assert self.settle(session, claims[3])

    def test_every_claim_on_an_entry_has_its_own_token(self) -> None:
        """I23: a new claim writes its token; the one before it holds nothing more."""
        session = self.open()
        first = self.reserve(session)
        self.let_lapse()
        second = self.reserve(session)
        self.settle(session, second, State.RETRYABLE)
        third = self.reserve(session)

        assert len({first.token, second.token, third.token}) == 3
        for old in (first, second):
            with unchanged(self, session), session.unit():
                assert session.renew([Renewal(*replace(old, fence=third.fence).claim, LEASE_MS)]) == [False]
        assert self.renew(session, third)

    def test_ended_claim_writes_no_more(self) -> None:
        """Once its claim has ended, in whatever state, even the right fence changes nothing."""
        session = self.open()
        self.make_business_table(session, required=False)
        for state in set(State) - {State.IN_FLIGHT, State.COMMITTED}:
            claim = self.reserve(session, state.label)
            self.settle(session, claim, state)

            with unchanged(self, session):
                answers = self._write_everything(session, claim)

            assert answers == [False] * len(answers), state

    def test_renewed_claim_is_not_lapsed(self) -> None:
        """A renewal counts from now, and the key stays busy until the renewed lease ends."""
        session = self.open()
        claim = self.reserve(session)
        self.clock.advance(15)

        assert self.renew(session, claim)

        entry = self.detail(claim.entry_id).entry
        assert entry.lease_until_ticks == self.now() + LEASE_MS
        self.clock.advance((LEASE_MS - 1) / 1000)
        assert self.reserve(session).decision is Decision.BUSY
        self.clock.advance(0.001)
        assert self.reserve(session).decision is Decision.RECOVER

    def test_lapsed_claim_that_nobody_took_can_still_finish(self) -> None:
        """A lapse alone takes nothing away: until another worker claims the key its holder may write."""
        session = self.open()
        claim = self.reserve(session)
        self.let_lapse()

        assert self.renew(session, claim)
        self.let_lapse()
        assert self.settle(session, claim)

    def test_renewals_in_one_call_are_answered_one_by_one(self) -> None:
        """Of many leases renewed together each gets its own answer."""
        session = self.open()
        lost, kept = self.reserve(session, "lost"), self.reserve(session, "kept")
        self.let_lapse()
        self.reserve(session, "lost")

        assert [self.renew(session, lost), self.renew(session, kept)] == [False, True]

    def _write_everything(self, session: Session, claim: Reserved) -> list[bool]:
        """Every kind of write that a worker may try with its claim."""
        answers = [
            self.settle(
                session,
                claim,
                state,
                outcome=b'"late"',
                steps=(STEP,),
                writes=self.writes(f"late-{state.label}") if state is State.COMMITTED else (),
                clear_steps=True,
            )
            for state in (State.COMMITTED, State.FAILED, State.RETRYABLE, State.UNKNOWN)
        ]
        answers.append(self.progress(session, claim, STEP, writes=self.writes("late-step")))
        answers.append(self.renew(session, claim, LEASE_MS * 100))
        with session.unit():
            answers += session.attach([Attachment(*claim.claim, b'"late"')])
        return answers
