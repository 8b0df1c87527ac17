"""A running service for every test in this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.site import Site, settings


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A service that the tests of a file share, where they leave nothing behind that matters."""
    with Site(tmp_path_factory.mktemp("shared"), settings()).serving() as running:
        yield running


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A service on the embedded ledger."""
    with Site(tmp_path, settings()).serving() as running:
        yield running
