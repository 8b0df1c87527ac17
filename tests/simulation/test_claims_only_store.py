"""A store with claims only passes the conformance suite of that facet."""

from __future__ import annotations

from typing import cast

import pytest

from oncegate.store import ClaimStore, Store
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
