"""A store with claims only passes the conformance suite of that facet."""

from __future__ import annotations

from typing import cast

import pytest

from oncegate.commit.operations import Reserve
from oncegate.model.states import State
from oncegate.store import AuditTrail, ClaimStore, Store
from oncegate.testing import ManualClock
from oncegate.testing.conformance import ClaimsConformance
from oncegate.testing.simulation import Ledger
from tests.support.claims_only_store import ClaimsOnlyStore


class TestClaimsOnlyStore(ClaimsConformance):
    """Units per call, everything by key, fences that are no entry numbers, no events kept."""

    @pytest.fixture(autouse=True)
    def _on_a_ledger_of_its_own(self) -> None:
        self.ledger = Ledger()

    def make_store(self, clock: ManualClock) -> Store:
        store: ClaimStore = ClaimsOnlyStore(self.ledger, clock)
        return cast("Store", store)


class TestClaimsOnlyStoreWithoutRecords(TestClaimsOnlyStore):
    """The same without an audit trail."""

    def make_store(self, clock: ManualClock) -> Store:
        return cast("Store", ClaimsOnlyStore(self.ledger, clock, AuditTrail.NONE))

    def test_doubtful_claim_on_a_key_with_a_past_is_not_taken_for_the_first(self) -> None:
        """An attempt that was given back does not count: without records only `has_past` tells of it."""
        session = self.open()
        first = self.reservation()
        (claim,) = session.reserve([first])
        assert Reserve(first).recall(session) is not None
        self.settle(session, claim, State.RETRYABLE, attempts_given_back=1)
        again = self.reservation()
        assert session.reserve([again])[0].attempt == 1

        assert Reserve(again).recall(session) is None
