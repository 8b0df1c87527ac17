"""Two SQLite files as one ledger pass the conformance suites of claims and open entries."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from oncegate.store import Session, Store
from oncegate.stores.sharded import ShardedStore
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing import ManualClock
from oncegate.testing.conformance import ClaimsConformance, OpenEntriesConformance

pytestmark = pytest.mark.slow


class TestSharded(ClaimsConformance, OpenEntriesConformance):
    """Two new files for each test."""

    keeps_final_bodies = True

    @pytest.fixture(autouse=True)
    def _on_files_of_its_own(self, tmp_path: Path) -> None:
        self.files = [tmp_path / "a.db", tmp_path / "b.db"]

    def make_store(self, clock: ManualClock) -> Store:
        return cast("Store", ShardedStore([SqliteStore(file, clock=clock) for file in self.files]))

    def make_business_table(self, session: Session, *, required: bool = True) -> None:
        """In both files: an event's writes go to the one that has its key."""
        for file in self.files:
            with closing(sqlite3.connect(file)) as connection:
                connection.execute(self.make_table_sql)
        self._has_table = True

    def bookings(self, session: Session) -> list[str]:
        found: list[str] = []
        for file in self.files if self._has_table else ():
            with closing(sqlite3.connect(file)) as connection:
                found += [str(ref) for (ref,) in connection.execute(self.select_sql)]
        return sorted(found)

    def test_time_does_not_go_back_behind_a_recorded_lease(self) -> None:
        """Holds for each shard by itself."""
        pytest.skip("each shard has a time of its own")

    def test_business_writes_keep_their_order(self) -> None:
        """Holds for each event."""
        pytest.skip("events of two databases have no order between them")

    def test_right_and_wrong_fences_in_one_batch(self) -> None:
        """Holds; the test compares the order of records too."""
        pytest.skip("records of two ledgers have no order between them")

    def test_failing_business_write_undoes_everything(self) -> None:
        """See test_shards.py."""
        pytest.skip("a statement needs an event here")

    def test_last_settlement_of_a_unit_commits_with_it(self) -> None:
        """See test_shards.py."""
        pytest.skip("a statement needs an event here")

    def test_lost_fence_undoes_what_came_before_the_last_settlement(self) -> None:
        """See test_shards.py."""
        pytest.skip("a statement needs an event here")
