"""Both ledgers, each with an engine site."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from oncegate.store import Store
from oncegate.stores.postgres import PostgresStore
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing import ManualClock
from tests.lanes.engine_site import Site


@pytest.fixture(params=["sqlite", "postgres"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A ledger with a clock moved by hand."""
    clock = ManualClock()
    store: Store = (
        SqliteStore(tmp_path / "ledger.db", clock=clock)
        if request.param == "sqlite"
        else PostgresStore(request.getfixturevalue("ledger_url"), clock=clock)
    )
    made = Site(store, clock)
    yield made
    made.commits.close()
