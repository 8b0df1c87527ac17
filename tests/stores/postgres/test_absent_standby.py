"""Commits that wait for a synchronous standby which is not there: nothing is run on them (I3, I5)."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from oncegate import Gate, StoreError, Verdict
from oncegate.stores.postgres.limits import LimitedConnection
from oncegate.testing.postgres import PostgresServer
from oncegate.testing.waiting import wait_until

pytestmark = pytest.mark.slow

SETTING = "synchronous_standby_names"


class Primary:
    """A server of its own, with or without the standby that it waits for."""

    def __init__(self, server: PostgresServer) -> None:
        self.url = server.new_database()

    def wait_for(self, standby: str) -> None:
        """Sets whom commits wait for, and waits until that is in force."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("SET synchronous_commit = local")
            connection.execute(f"ALTER SYSTEM SET {SETTING} = '{standby}'".encode())
            connection.execute("SELECT pg_reload_conf()")
        wait_until(lambda: self._commits_wait() == bool(standby), what="the setting")

    def _commits_wait(self) -> bool:
        """Tries it: what SHOW says is not yet in force before the checkpointer has read it too."""
        with psycopg.connect(self.url, autocommit=True) as watching, psycopg.connect(self.url) as trying:
            pid = trying.info.backend_pid
            trying.pgconn.send_query(b"SELECT pg_logical_emit_message(true, 'probe', '')")
            wait_until(lambda: _seen(watching, pid) is not None, what="the commit")
            waits = _seen(watching, pid) == "waits"
            watching.execute("SELECT pg_cancel_backend(%s)", (pid,))
            while trying.pgconn.get_result() is not None:
                pass
        return waits


def _seen(watching: psycopg.Connection[tuple[object, ...]], pid: int) -> object:
    """Whether a session's probe waits for a standby or is done; None as long as it is neither."""
    ((seen,),) = watching.execute(
        "SELECT CASE WHEN wait_event = 'SyncRep' THEN 'waits'"
        " WHEN state = 'idle' AND query LIKE '%%probe%%' THEN 'done' END"
        " FROM pg_stat_activity WHERE pid = %s",
        (pid,),
    ).fetchall()
    return seen


@pytest.fixture
def primary() -> Iterator[Primary]:
    with PostgresServer(in_memory=True) as server:
        yield Primary(server)


def test_a_record_that_no_standby_has_is_never_acted_on(
    primary: Primary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given commits that hang; then what is seen of them on this server alone is no reason to run."""
    runs: list[str] = []
    with Gate(primary.url) as gate:

        @gate.handler("bookings", key="{id}")
        def book(event: dict[str, str]) -> None:
            runs.append(event["id"])

        assert gate.admit_sync("bookings", {"id": "before"}).verdict is Verdict.RUN
        monkeypatch.setattr(LimitedConnection, "answer_wait_ms", 700)
        primary.wait_for("absent")
        with pytest.raises(StoreError):
            gate.admit_sync("bookings", {"id": "during"})
        primary.wait_for("")
        assert gate.admit_sync("bookings", {"id": "after"}).verdict is Verdict.RUN
    assert runs == ["before", "after"]
