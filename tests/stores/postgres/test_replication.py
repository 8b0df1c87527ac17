"""What the doctor says of standbys is true: who is waited for, and whether anybody is there."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from oncegate.cli.main import main
from oncegate.clock import SystemClock
from oncegate.stores.postgres import PostgresStore
from oncegate.stores.postgres.replication import judge
from oncegate.testing.postgres import PostgresServer
from oncegate.testing.waiting import wait_until

SOON_MS = 20_000  # less than the server's limit for a statement, which is what a wait would take


@pytest.mark.parametrize(
    ("names", "commit", "states", "ok", "said"),
    [
        ("", "on", [], True, "no standby is connected"),
        ("", "on", ["async"], False, "1 standby, none synchronous"),
        ("second", "on", ["sync"], True, "1 standby, 1 synchronous (second)"),
        ("second", "on", [], False, "every commit waits"),
        ("second", "on", ["async"], False, "0 of 1 standby connected: every commit waits"),
        ("second", "remote_apply", [], False, "every commit waits"),
        ("FIRST 2 (a, b, c)", "on", ["sync", "async"], False, "asks for 2, 1 of 2 standbys"),
        ("2 (a, b)", "on", ["sync", "sync"], True, "2 synchronous"),
        ("ANY 2 (a, b, c)", "on", ["quorum", "quorum", "quorum"], True, "3 synchronous"),
        ("second", "local", ["async"], False, "no commit waits for them"),
        ("second", "local", ["sync"], False, "no commit waits for them"),
        ("second", "local", [], True, "no commit waits for one"),
        ("second", "on", [None], True, "may not see"),
        ("2 (a, b)", "on", [None], False, "every commit waits"),
        ("", "on", [None], False, "none synchronous"),
    ],
)
def test_standbys_are_judged_by_whether_commits_wait_for_them(names, commit, states, ok, said) -> None:
    """The settings alone say nothing: it counts who is connected, and how the server regards them."""
    finding = judge(names, commit, states)
    assert finding.ok is ok
    assert said in finding.value
    assert ok or finding.next_step


@pytest.fixture
def waiting(postgres: PostgresServer) -> Iterator[str]:
    """A ledger whose server waits for a standby that is not there."""
    with PostgresServer(in_memory=True) as server:
        url = server.new_database()
        PostgresStore(url).connect().close()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET synchronous_commit = local")
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'absent'")
            connection.execute("SELECT pg_reload_conf()")
            # The time that whoever looks keeps is due.
            connection.execute("UPDATE oncegate_ticks SET wall = wall - 5000")
            shown = "SELECT pg_sleep(0.01), current_setting('synchronous_standby_names')"
            wait_until(lambda: connection.execute(shown).fetchall()[0][1] == "absent", what="the setting")
        yield url


@pytest.mark.slow
def test_absent_synchronous_standby_is_a_failure_and_the_doctor_does_not_hang(
    waiting: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every commit would wait; whoever asks why is told at once."""
    clock = SystemClock()
    begun = clock.ticks_ms()
    assert main(["doctor", "--url", waiting]) == 1
    assert clock.ticks_ms() - begun < SOON_MS
    told = capsys.readouterr().out
    assert "synchronous_standby_names (absent)" in told
    assert "start the standby" in told
    assert "none yet" in told
