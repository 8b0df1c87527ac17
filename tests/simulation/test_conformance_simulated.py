"""The simulated ledger is a verified fake: it passes the conformance suite that the real stores pass."""

from __future__ import annotations

from typing import ClassVar, cast

import pytest

from oncegate.store import Store
from oncegate.testing import ManualClock
from oncegate.testing.conformance import (
    ClaimsConformance,
    InteractiveConformance,
    NumberedFenceConformance,
)
from oncegate.testing.conformance.alternatives import AlternativeConformance
from oncegate.testing.conformance.censuses import CensusConformance
from oncegate.testing.conformance.logs import LogConformance
from oncegate.testing.conformance.pruning import PruningConformance
from oncegate.testing.conformance.registries import RegistryConformance
from oncegate.testing.simulation import Ledger, SimulatedStore


class TestSimulatedStore(
    ClaimsConformance,
    InteractiveConformance,
    NumberedFenceConformance,
    AlternativeConformance,
    RegistryConformance,
    LogConformance,
    CensusConformance,
    PruningConformance,
):
    """The parts of the contract that the gate and the reconciler use."""

    make_table_sql: ClassVar[str] = "CREATE bookings"
    insert_sql: ClassVar[str] = "INSERT bookings"
    delete_drafts_sql: ClassVar[str] = "DROP-DRAFTS bookings"
    select_sql: ClassVar[str] = "SELECT bookings"

    @pytest.fixture(autouse=True)
    def _on_a_ledger_of_its_own(self) -> None:
        self.ledger = Ledger()

    def make_store(self, clock: ManualClock) -> Store:
        return cast("Store", SimulatedStore(self.ledger, clock))
