"""PostgreSQL passes the same conformance suite as the embedded ledger, on a real server."""

from __future__ import annotations

import pytest

from oncegate.store import Store
from oncegate.stores.postgres import PostgresStore
from oncegate.testing import ManualClock
from oncegate.testing.conformance import StoreConformance
from oncegate.testing.conformance import ledger as conformance_ledger


class TestPostgres(StoreConformance):
    """A ledger of its own for each test."""

    @pytest.fixture(autouse=True)
    def _on_a_ledger_of_its_own(self, request: pytest.FixtureRequest) -> None:
        """Empty, and made anew only for those tests that are about making one."""
        if request.function.__module__ == conformance_ledger.__name__:
            self.url = request.getfixturevalue("postgres").new_database()
        else:
            self.url = request.getfixturevalue("ledger_url")

    def make_store(self, clock: ManualClock) -> Store:
        return PostgresStore(self.url, clock=clock)

    def test_leases_of_the_dead_lapse_after_a_restart(self) -> None:
        """Does not apply: the server's clock does not restart with a client's machine."""
        pytest.skip("the server's clock does not restart with a client's machine")

    def test_time_does_not_go_back_behind_a_recorded_lease(self) -> None:
        """Does not apply: the server's clock does not restart with a client's machine."""
        pytest.skip("the server's clock does not restart with a client's machine")

    def test_age_of_a_failure_survives_a_restart(self) -> None:
        """Does not apply: the server's clock does not restart with a client's machine."""
        pytest.skip("the server's clock does not restart with a client's machine")
