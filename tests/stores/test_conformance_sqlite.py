"""The embedded ledger passes the conformance suite for stores, at every level of synchronisation."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncegate.store import Store
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing import ManualClock
from oncegate.testing.conformance import StoreConformance


class TestSqlite(StoreConformance):
    """A SQLite file with the settings that users get."""

    @pytest.fixture(autouse=True)
    def _in_a_folder_of_its_own(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def make_store(self, clock: ManualClock) -> Store:
        return SqliteStore(self.folder / "ledger.db", clock=clock)
