"""The simulated ledger is a verified fake: it passes the conformance suite that the real stores pass."""

from __future__ import annotations

from typing import ClassVar, cast

import pytest

from oncegate.store import Store
from oncegate.testing import ManualClock
from oncegate.testing.conformance.alternatives import AlternativeConformance
from oncegate.testing.conformance.arrivals import ArrivalConformance
from oncegate.testing.conformance.censuses import CensusConformance
from oncegate.testing.conformance.fences import FenceConformance
from oncegate.testing.conformance.ledger import LedgerConformance
from oncegate.testing.conformance.logs import LogConformance
from oncegate.testing.conformance.pruning import PruningConformance
from oncegate.testing.conformance.recordings import RecordingConformance
from oncegate.testing.conformance.registries import RegistryConformance
from oncegate.testing.conformance.settlements import SettlementConformance
from oncegate.testing.conformance.steps import StepConformance
from oncegate.testing.conformance.ticks import TickConformance
from oncegate.testing.conformance.units import UnitConformance
from oncegate.testing.simulation import Ledger, SimulatedStore


class TestSimulatedStore(
    ArrivalConformance,
    AlternativeConformance,
    RegistryConformance,
    RecordingConformance,
    FenceConformance,
    SettlementConformance,
    StepConformance,
    UnitConformance,
    TickConformance,
    LogConformance,
    CensusConformance,
    PruningConformance,
    LedgerConformance,
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

    def test_what_waits_for_a_person_is_not_recorded_as_done(self) -> None:
        """Does not apply: it knows no approval before the first run."""
        pytest.skip("the simulated ledger holds nothing at its arrival")

    def test_what_waits_for_a_person_is_not_recorded_as_done_when_it_comes_alone(self) -> None:
        """Does not apply: it knows no approval before the first run."""
        pytest.skip("the simulated ledger holds nothing at its arrival")

    def test_recorded_key_keeps_its_mark_of_content(self) -> None:
        """Does not apply: it keeps no marks."""
        pytest.skip("the simulated ledger keeps no marks of content")
