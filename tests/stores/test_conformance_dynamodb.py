"""DynamoDB passes the claims facet of the conformance suite, on AWS's own emulator."""

from __future__ import annotations

import os
import uuid
from typing import cast

import pytest

from oncegate.store import ClaimStore, EntryDetail, Store
from oncegate.stores.dynamodb import DynamoStore
from oncegate.stores.dynamodb.client import TableAddress
from oncegate.stores.dynamodb.items import entry_number
from oncegate.testing import ManualClock
from oncegate.testing.conformance import ClaimsConformance


class TestDynamo(ClaimsConformance):
    """A table of its own for each test."""

    @pytest.fixture(autouse=True)
    def _on_a_table_of_its_own(self) -> None:
        os.environ.setdefault("AWS_ACCESS_KEY_ID","a"); os.environ.setdefault("AWS_SECRET_ACCESS_KEY","b")
        self.table = f"t-{uuid.uuid4().hex}"

    def make_store(self, clock: ManualClock) -> Store:
        address = TableAddress(self.table, "eu-central-1", "http://127.0.0.1:18765", create=True)
        store: ClaimStore = DynamoStore(address, clock=clock)
        return cast("Store", store)

    def find(self, entry_id: int) -> EntryDetail | None:
        """By the one key that has this number."""
        keys = [key for key in self._keys if entry_number(key) == entry_id]
        with self.looking() as session:
            return session.details(keys)[0] if keys else None

    def test_leases_of_the_dead_lapse_after_a_restart(self) -> None:
        """Does not apply: the ledger's time does not restart with a client's machine."""
        pytest.skip("the ledger's time does not restart with a client's machine")

    def test_time_does_not_go_back_behind_a_recorded_lease(self) -> None:
        """Does not apply: the ledger's time does not restart with a client's machine."""
        pytest.skip("the ledger's time does not restart with a client's machine")
