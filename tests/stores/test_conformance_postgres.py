"""PostgreSQL passes the same conformance suite as the embedded ledger, on a real server."""

from __future__ import annotations

import psycopg
import pytest

from oncegate.store import Store
from oncegate.stores.postgres import PostgresStore
from oncegate.testing import ManualClock
from oncegate.testing.conformance import StoreConformance
from oncegate.testing.conformance import ledger as conformance_ledger
from oncegate.testing.postgres import PostgresServer
from oncegate.testing.waiting import wait_until

_NEXT = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text"
_ENDED = "SELECT pg_snapshot_xmin(pg_current_snapshot()) >= %s::text::xid8"


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

    def wait_for_readers(self) -> None:
        """Waits for the transactions that run now, in any database of the server (autovacuum's, too)."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            bound = connection.execute(_NEXT).fetchone()
            wait_until(
                lambda: (connection.execute(_ENDED, bound).fetchone() or (False,))[0],
                what="the end of every transaction that runs on the server",
            )

    def test_readers_wait_for_a_transaction_of_another_database(self, postgres: PostgresServer) -> None:
        """The log shows a record once every older transaction of the server has ended (I12)."""
        session = self.open()
        with psycopg.connect(postgres.url()) as neighbour:
            neighbour.execute("SELECT pg_current_xact_id()")
            self.settle(session, self.reserve(session))
            with self.looking() as reader:
                assert reader.read_log(0, 10) == []

        assert len(self.log()) == 1

    def test_leases_of_the_dead_lapse_after_a_restart(self) -> None:
        """Does not apply: the server's clock does not restart with a client's machine."""
        pytest.skip("the server's clock does not restart with a client's machine")

    def test_time_does_not_go_back_behind_a_recorded_lease(self) -> None:
        """Does not apply: the server's clock does not restart with a client's machine."""
        pytest.skip("the server's clock does not restart with a client's machine")

    def test_age_of_a_failure_survives_a_restart(self) -> None:
        """Does not apply: the server's clock does not restart with a client's machine."""
        pytest.skip("the server's clock does not restart with a client's machine")
