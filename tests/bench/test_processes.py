"""Processes that are measured together begin together, each with all of its callers, and none is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oncegate.bench.postgres import _prepare
from oncegate.bench.processes import (
    ALONE,
    ALONE_WITH_ALL,
    TOGETHER,
    Together,
    as_document,
    gain,
    name_of,
    run_together,
)
from oncegate.testing.postgres import PostgresServer


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """One of its own: its processor time is read."""
    with PostgresServer(in_memory=True) as started:
        yield started


def _run(rate: float) -> Together:
    return Together(rate=rate, slowest=1.0, clients=1.0, server=0.5)


def test_gain_compares_runs_of_the_same_round() -> None:
    """Given a machine that was twice as quick in one round; then that round counts as any other."""
    found = {ALONE: [_run(100), _run(200), _run(100)], TOGETHER: [_run(150), _run(300), _run(120)]}
    assert gain(found, ALONE) == 1.5


def test_crews_are_named_by_processes_and_callers() -> None:
    assert [name_of(crew) for crew in (ALONE, TOGETHER, ALONE_WITH_ALL)] == [
        "1 process, 64 at once",
        "4 processes, 64 at once each",
        "1 process, 256 at once",
    ]
    assert as_document({ALONE: [_run(10), _run(30)]})["1 process, 64 at once"]["rate"] == 20


def test_processes_run_side_by_side_for_the_time_they_are_told(server: PostgresServer) -> None:
    """Given two processes on one ledger; then both have admitted events."""
    url = server.new_database()
    _prepare(url)
    run = run_together(server, url, (2, 4), 0.3, "crew")
    assert run.rate > 0
    assert 0 < run.slowest <= 1
    assert run.clients > 0


def test_process_that_cannot_start_is_told_of(
    server: PostgresServer, capfd: pytest.CaptureFixture[str]
) -> None:
    """Given no server at that address; then the run fails instead of waiting for ever."""
    with pytest.raises(RuntimeError, match="did not start"):
        run_together(server, server.url("not_there"), (2, 4), 0.3, "crew")
    assert "not_there" in capfd.readouterr().err
