"""The Redis ledger passes the conformance suites of claims and open entries, on a real Valkey server."""

from __future__ import annotations

from itertools import count
from typing import cast

import pytest

from oncegate.store import ClaimStore, Store
from oncegate.stores.redis import RedisStore
from oncegate.testing import ManualClock
from oncegate.testing.conformance import ClaimsConformance, OpenEntriesConformance
from tests.support.servers_valkey import ValkeyServer

_NUMBERS = count()


class TestRedis(ClaimsConformance, OpenEntriesConformance):
    """A prefix of its own for each test."""

    @pytest.fixture(autouse=True)
    def _on_a_ledger_of_its_own(self, valkey: ValkeyServer) -> None:
        self.url = valkey.url(prefix=f"suite{next(_NUMBERS)}")

    def make_store(self, clock: ManualClock) -> Store:
        store: ClaimStore = RedisStore(self.url, clock=clock)
        return cast("Store", store)

    def test_leases_of_the_dead_lapse_after_a_restart(self) -> None:
        """Does not apply: the server's clock does not restart with a client's machine."""
        pytest.skip("the server's clock does not restart with a client's machine")

    def test_time_does_not_go_back_behind_a_recorded_lease(self) -> None:
        """Does not apply: the server's clock does not restart with a client's machine."""
        pytest.skip("the server's clock does not restart with a client's machine")

    def test_age_of_a_failure_survives_a_restart(self) -> None:
        """Does not apply: the server's clock does not restart with a client's machine."""
        pytest.skip("the server's clock does not restart with a client's machine")
