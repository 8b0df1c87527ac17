"""Recovery and decisions on a DynamoDB ledger."""

from __future__ import annotations

import pytest

from tests.support.open_entry_suite import OpenEntrySuite

pytestmark = pytest.mark.slow


class TestOpenEntries(OpenEntrySuite):
    """A table of its own for each test."""

    @pytest.fixture
    def url(self, new_table: str) -> str:
        return new_table
