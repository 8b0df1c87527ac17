"""Servers for the store tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from oncegate.testing.postgres import TEST_URL_VARIABLE, GivenServer, PostgresServer


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer | GivenServer]:
    """One PostgreSQL server for the whole run; every test makes a database of its own on it."""
    given = os.environ.get(TEST_URL_VARIABLE)
    if given:
        yield GivenServer(given)
        return
    with PostgresServer() as server:
        yield server
