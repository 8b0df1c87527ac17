"""Recovery and decisions on a ledger of two SQLite files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.open_entry_suite import OpenEntrySuite

pytestmark = pytest.mark.slow


class TestOpenEntries(OpenEntrySuite):
    """Two files of its own for each test."""

    @pytest.fixture
    def url(self, tmp_path_factory: pytest.TempPathFactory) -> str:
        folder: Path = tmp_path_factory.mktemp("shards")
        return f"shards: sqlite:///{folder}/a.db sqlite:///{folder}/b.db"
