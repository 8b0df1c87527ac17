"""A ledger on each store, and the clock that is moved by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncegate.store import Store
from oncegate.testing import ManualClock
from oncegate.wiring import open_store


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Store:
    if request.param == "sqlite":
        return open_store(f"sqlite:///{tmp_path / 'ledger.db'}", clock=clock)
    return open_store(request.getfixturevalue("ledger_url"), clock=clock)
