"""The embedded ledger passes the conformance suite for stores, at every level of synchronisation."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncegate.store import Store
from oncegate.stores.sqlite import SqliteStore, open_entries
from oncegate.testing import ManualClock
from oncegate.testing.conformance import StoreConformance
from oncegate.testing.conformance.batches import BatchConformance
from oncegate.testing.conformance.censuses import CensusConformance
from oncegate.testing.conformance.fences import FenceConformance
from oncegate.testing.conformance.people import PeopleConformance
from oncegate.testing.conformance.tallies import TallyConformance
from oncegate.testing.conformance.ticks import TickConformance


class TestSqlite(StoreConformance):
    """A SQLite file with the settings that users get."""

    @pytest.fixture(autouse=True)
    def _in_a_folder_of_its_own(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def make_store(self, clock: ManualClock) -> Store:
        return SqliteStore(self.folder / "ledger.db", clock=clock)


class TestSqliteThatListsAtEveryNumber(
    CensusConformance,
    FenceConformance,
    PeopleConformance,
    TallyConformance,
    TickConformance,
    BatchConformance,
):
    """Whatever is open is found, also where no first claim counts as new for longer than a moment."""

    @pytest.fixture(autouse=True)
    def _lists_often(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
        self.folder = tmp_path
        monkeypatch.setattr(open_entries, "LISTED_EVERY_BITS", 0)
        yield
        wanted = "SELECT id FROM oncegate_entry WHERE state NOT IN (2, 3) ORDER BY id"
        for path in tmp_path.glob("*.db"):
            with contextlib.closing(sqlite3.connect(path)) as ledger:
                found = ledger.execute(f"{open_entries.open_entries('id')} ORDER BY id").fetchall()
                assert found == ledger.execute(wanted).fetchall()

    def make_store(self, clock: ManualClock) -> Store:
        return SqliteStore(self.folder / "ledger.db", clock=clock)
