"""Recovery and decisions on a Redis ledger."""

from __future__ import annotations

from itertools import count

import pytest

from tests.support.open_entry_suite import OpenEntrySuite
from tests.support.servers_valkey import ValkeyServer

pytestmark = pytest.mark.slow

_NUMBERS = count()


class TestOpenEntries(OpenEntrySuite):
    """A prefix of its own for each test."""

    @pytest.fixture
    def url(self, valkey: ValkeyServer) -> str:
        return valkey.url(prefix=f"open{next(_NUMBERS)}")
