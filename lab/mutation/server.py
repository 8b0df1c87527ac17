"""One PostgreSQL server for all mutants, in a process of its own: this one never imports the package."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg

_SERVE = """
import sys
from oncegate.testing.postgres import PostgresServer
with PostgresServer(in_memory=True) as server:
    print(server.url(), flush=True)
    sys.stdin.read()
"""
_VARIABLE = "ONCEGATE_TEST_URL"
_PREFIX = "oncegate_test_"


@contextlib.contextmanager
def shared_server(source: Path) -> Iterator[None]:
    """The tests of all child processes use this server, by way of the environment."""
    started = subprocess.Popen(
        [sys.executable, "-c", _SERVE],
        env={**os.environ, "PYTHONPATH": str(source)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert started.stdin is not None
    assert started.stdout is not None
    os.environ[_VARIABLE] = started.stdout.readline().strip()
    try:
        yield
    finally:
        del os.environ[_VARIABLE]
        started.stdin.close()
        started.wait(60)


def remove_left_databases() -> None:
    """Drops the databases of test processes that have ended: each is some ten megabytes."""
    with psycopg.connect(os.environ[_VARIABLE], autocommit=True) as connection:
        names = connection.execute("SELECT datname FROM pg_database").fetchall()
        for (name,) in names:
            if name.startswith(_PREFIX) and not _is_alive(
                int(name.removeprefix(_PREFIX).partition("_")[0])
            ):
                connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'.encode())


def _is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
