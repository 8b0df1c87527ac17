"""Both ledgers, each with an engine site."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from oncegate.store import Store
from oncegate.stores.postgres import PostgresStore
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing import ManualClock
from oncegate.testing.spare_ledgers import SpareLedgers
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


@pytest.fixture
def twin(site: Site, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """Another ledger of the same kind, to compare with."""
    store: Store
    if site.store.capabilities.one_writer:
        store = SqliteStore(tmp_path / "twin.db", clock=site.clock)
        yield from _closing(Site(store, site.clock))
        return
    spare: SpareLedgers = request.getfixturevalue("spare_ledgers")
    url = spare.take()
    store = PostgresStore(url, clock=site.clock)
    yield from _closing(Site(store, site.clock))
    spare.give_back(url)


def _closing(made: Site) -> Iterator[Site]:
    yield made
    made.commits.close()
