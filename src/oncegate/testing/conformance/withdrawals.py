"""Withdrawing: an arrival that was refused before anything was done leaves nothing (I4, I18)."""

from __future__ import annotations

from msgspec.structs import replace

from oncegate.model.states import Decision, State
from oncegate.store import Reserved, Session, StepRecord, StepState
from oncegate.testing.conformance.bench import StoreBench, unchanged


class WithdrawalConformance(StoreBench):
    """What goes, what stays, and which numbers are given out after it."""

    def withdraw(self, session: Session, *claims: Reserved) -> list[bool]:
        """Withdraws claims in a unit of its own."""
        with session.unit():
            return session.withdraw([claim.claim for claim in claims])

    def test_withdrawn_arrival_leaves_nothing_and_its_key_is_unknown_again(self) -> None:
        """No entry, no record; the same key with another content runs as a new one."""
        session = self.open()
        with unchanged(self, session):
            claims = [self.reserve(session, f"key-{number}") for number in range(3)]
            assert self.withdraw(session, *reversed(claims)) == [True] * 3

        again = self.reserve(session, "key-1", fingerprint=b"another content!")

        assert again.decision is Decision.RUN
        assert again.attempt == 1
        assert self.settle(session, again)

    def test_fence_of_a_withdrawn_claim_is_not_given_out_again(self) -> None:
        """Its worker may still write: what it holds must name no other claim."""
        session = self.open()
        old = self.reserve(session)
        self.withdraw(session, old)

        new = self.reserve(session)

        assert new.fence > old.fence
        with unchanged(self, session):
            assert not self.settle(session, old)
            assert self.withdraw(session, old) == [False]

    def test_claim_that_is_not_held_withdraws_nothing(self) -> None:
        """Not with another fence or token, not after it was taken over or has ended."""
        session = self.open()
        claim, lapsed = self.reserve(session), self.reserve(session, "lapsed")
        ended = [self.reserve(session, state.label) for state in State if state is not State.IN_FLIGHT]
        for one, state in zip(ended, [s for s in State if s is not State.IN_FLIGHT], strict=True):
            self.settle(session, one, state)
        self.let_lapse()
        taken = self.reserve(session, "lapsed")
        assert taken.decision is Decision.RECOVER
        strange = [replace(claim, token=claim.token + 1), replace(claim, fence=claim.fence + 1)]

        with unchanged(self, session):
            for one in (*strange, *ended, lapsed, taken):
                assert self.withdraw(session, one) == [False]

        assert self.withdraw(session, claim) == [True]

    def test_claim_with_a_step_is_not_withdrawn(self) -> None:
        """A call may have been made: what is known of it stays."""
        session = self.open()
        claim = self.reserve(session)
        self.progress(session, claim, StepRecord("pay", StepState.STARTED, "bank"))

        with unchanged(self, session):
            assert self.withdraw(session, claim) == [False]
