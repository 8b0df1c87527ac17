"""The pytest plugin: fixtures for testing handlers and whatever else stands on a gate.

    oncegate_chaos    your handler under duplicates, near-duplicates, crashes at every step, lost replies
    oncegate_replay   recorded arrivals played to your handlers
    oncegate_clock    a clock that moves only when told
    oncegate_store    an empty ledger: SQLite, and PostgreSQL where the test asks for it
    oncegate_gate     a gate on that ledger with that clock

Loaded by pytest through the entry point `oncegate`; imports nothing heavy until a fixture is used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from oncegate.store import Store
    from oncegate.testing.clock import ManualClock
    from oncegate.testing.harness import Chaos
    from oncegate.testing.replaying import Replay
    from oncegate.wiring import Gate


@pytest.fixture
def oncegate_chaos(request: pytest.FixtureRequest) -> Callable[..., Chaos]:
    """`oncegate_chaos(handler, event).assert_effects(claim_slot=1)`: see docs/testing.md."""
    from oncegate.testing.harness import Chaos

    # The server is started only where a trial asks for a database of it.
    return partial(Chaos, server=lambda: request.getfixturevalue("oncegate_postgres"))


@pytest.fixture
def oncegate_replay(tmp_path: Path, request: pytest.FixtureRequest) -> Replay:
    """`oncegate_replay(gate, "monday.jsonl").assert_counts(effects=39)`: see docs/recording.md."""
    from oncegate.testing.replaying import Replay

    return Replay(tmp_path, lambda: request.getfixturevalue("oncegate_postgres"))


@pytest.fixture
def oncegate_clock() -> ManualClock:
    """A clock that moves only when told: `advance`, `step_wall`."""
    from oncegate.testing.clock import ManualClock

    return ManualClock()


@pytest.fixture
def oncegate_store(
    request: pytest.FixtureRequest, tmp_path: Path, oncegate_clock: ManualClock
) -> Iterator[Store]:
    """An empty ledger of the test's own.

    SQLite unless the fixture is parametrized indirectly with "postgres"; that one needs oncegate[test],
    or a server of your own in ONCEGATE_TEST_URL.
    """
    kind = getattr(request, "param", "sqlite")
    if kind == "postgres":
        yield _on_postgres(request.getfixturevalue("oncegate_postgres"), oncegate_clock)
        return
    from oncegate.stores.sqlite import SqliteStore

    yield SqliteStore(tmp_path / "oncegate.db", clock=oncegate_clock)


@pytest.fixture(scope="session")
def oncegate_postgres() -> Iterator[Any]:
    """One PostgreSQL server for the whole run."""
    from oncegate.testing.postgres import TEST_URL_VARIABLE, GivenServer, PostgresServer

    given = os.environ.get(TEST_URL_VARIABLE)
    if given:
        yield GivenServer(given)
        return
    with PostgresServer() as server:
        yield server


def _on_postgres(server: Any, clock: ManualClock) -> Store:
    from oncegate.wiring import open_store

    return open_store(server.new_database(), clock=clock)


@pytest.fixture
def oncegate_gate(oncegate_store: Store, oncegate_clock: ManualClock) -> Iterator[Gate]:
    """A gate on the test's own ledger, closed after it."""
    from oncegate.wiring import Gate

    with Gate(store=oncegate_store, clock=oncegate_clock) as gate:
        yield gate
