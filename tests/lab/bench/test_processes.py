"""Processes that are measured together begin together, each with all of its callers, and none is lost."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from lab.bench.members import Member
from lab.bench.postgres import _prepare
from lab.bench.processes import (
    ALONE,
    ALONE_WITH_ALL,
    JOINED,
    TOGETHER,
    Crew,
    Together,
    as_document,
    gain,
    name_of,
    run_together,
)
from oncegate.errors import ConfigError
from oncegate.testing.postgres import PostgresServer
from oncegate.testing.waiting import DEADLINE_SECONDS


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
    assert [name_of(crew) for crew in (ALONE, TOGETHER, ALONE_WITH_ALL, JOINED)] == [
        "1 process, 64 at once",
        "4 processes, 64 at once each",
        "1 process, 256 at once",
        "tx= asyncpg, 2 processes, 32 at once each",
    ]
    assert as_document({ALONE: [_run(10), _run(30)]})["1 process, 64 at once"]["rate"] == 20


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["data", JOINED.mode])
def test_processes_run_side_by_side_for_the_time_they_are_told(server: PostgresServer, mode: str) -> None:
    """Given two processes on one ledger; then both have admitted events."""
    url = server.new_database()
    _prepare(url)
    run = run_together(server, url, Crew(2, 4, mode), 0.3, "crew")
    assert run.rate > 0
    assert 0 < run.slowest <= 1
    assert run.clients > 0


@pytest.mark.slow
def test_process_that_cannot_start_is_told_of(server: PostgresServer) -> None:
    """Given no database of that name; then the run fails, and says why, instead of waiting for ever."""
    with pytest.raises(ConfigError, match=r"exit code 1; its last words: .*not_there"):
        run_together(server, server.url("not_there"), Crew(2, 4), 0.3, "crew")


BEFORE_THE_WORD = "print('ready', flush=True); sys.exit('no room')"
AFTER_THE_WORD = "print('ready', flush=True); sys.stdin.readline(); sys.exit('no room')"
HANGS = "print('still looking', file=sys.stderr, flush=True); print('ready', flush=True); signal.pause()"


def let_them_run(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Measures processes that do something else."""
    worker = (sys.executable, "-c", f"import os, signal, sys; {program}")
    monkeypatch.setattr("lab.bench.processes.WORKER", worker)


@pytest.mark.parametrize("program", [BEFORE_THE_WORD, AFTER_THE_WORD])
def test_process_that_ends_once_it_was_ready_is_told_of(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    """Given processes that end before or after they are told to begin; then one line says how and why."""
    let_them_run(monkeypatch, program)
    with pytest.raises(ConfigError) as caught:
        run_together(server, "", Crew(2, 4), 0.1, "crew")
    assert str(caught.value) == (
        "a process that was to be measured ended with exit code 1; its last words: no room"
    )


def test_process_that_is_killed_is_told_of(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a process that the system kills; then its exit code is the signal's."""
    let_them_run(monkeypatch, "print('ready', flush=True); os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(ConfigError, match="ended with exit code -9; it gave no reason"):
        run_together(server, "", Crew(1, 4), 0.1, "crew")


def test_process_that_is_never_ready_is_not_waited_for_without_end(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a process that hangs and does not end when it is hung up on; then it is killed."""
    let_them_run(monkeypatch, "signal.pause()")
    monkeypatch.setattr("lab.bench.processes.READY_SECONDS", 0.2)
    monkeypatch.setattr("lab.bench.members.END_SECONDS", 0.1)
    with pytest.raises(ConfigError, match=r"said nothing within 0\.2 s"):
        run_together(server, "", Crew(2, 4), 0.1, "crew")


def test_process_that_gives_no_answer_is_not_waited_for_without_end(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a process that hangs while it is measured; then its last words are told, and it is killed."""
    let_them_run(monkeypatch, HANGS)
    monkeypatch.setattr("lab.bench.processes.ANSWER_SECONDS", 0.2)
    monkeypatch.setattr("lab.bench.members.END_SECONDS", 0.1)
    with pytest.raises(ConfigError, match=r"said nothing within 0\.3 s; its last words: still looking"):
        run_together(server, "", Crew(2, 4), 0.1, "crew")


def test_process_that_says_something_else_is_told_of(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_them_run(monkeypatch, "print('good morning', flush=True)")
    with pytest.raises(ConfigError, match="said 'good morning' instead of 'ready'"):
        run_together(server, "", Crew(1, 4), 0.1, "crew")


@pytest.mark.slow
def test_process_that_is_spoken_to_after_its_end_is_told_of_in_the_same_way() -> None:
    with Member([sys.executable, "-c", "raise SystemExit(3)"]) as member:
        with pytest.raises(ConfigError, match="exit code 3; it gave no reason"):
            member.hear(DEADLINE_SECONDS)
        with pytest.raises(ConfigError, match="exit code 3; it gave no reason"):
            member.tell("begin")
