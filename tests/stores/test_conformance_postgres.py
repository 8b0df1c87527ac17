"""PostgreSQL passes the same conformance suite as the embedded ledger, on a real server."""

from __future__ import annotations

import pytest

from oncegate.store import Store
from oncegate.stores.postgres import PostgresStore
from oncegate.testing import ManualClock
from oncegate.testing.conformance import StoreConformance
from oncegate.testing.postgres import GivenServer, PostgresServer


class TestPostgres(StoreConformance):
    """A database of its own for each test."""

    @pytest.fixture(autouse=True)
    def _on_a_database_of_its_own(self, postgres: PostgresServer | GivenServer) -> None:
        self.url = postgres.new_database()

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
