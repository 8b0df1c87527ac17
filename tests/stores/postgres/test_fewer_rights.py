"""I23: a role that may not ask which server it is on: the doctor names the right, processes go by less."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import pytest

from oncegate import Gate
from oncegate.cli.main import main
from oncegate.gate.admission import Verdict
from oncegate.stores.postgres import PostgresStore
from oncegate.testing.postgres import PostgresServer
from tests.stores.postgres.test_bad_input import as_user, run_sql
from tests.stores.postgres.test_went_back import _admit
from tests.support.ledgers import new_ledger

SYSTEM, TIMELINE = "pg_control_system()", "pg_walfile_name(pg_lsn)"


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    """A ledger with a role that works on it."""
    made = new_ledger(postgres)
    run_sql(
        made,
        "DROP ROLE IF EXISTS teller",
        "CREATE ROLE teller LOGIN",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO teller",
        "GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO teller",
    )
    yield made
    run_sql(made, "DROP OWNED BY teller", "DROP ROLE teller")


@contextlib.contextmanager
def without(url: str, *functions: str) -> Iterator[str]:
    """The role's address while nobody but superusers may call some functions; rights are of a database."""
    run_sql(url, f"REVOKE EXECUTE ON FUNCTION {', '.join(functions)} FROM PUBLIC")
    yield as_user(url, "teller")
    run_sql(url, f"GRANT EXECUTE ON FUNCTION {', '.join(functions)} TO PUBLIC")


@pytest.mark.parametrize(
    ("function", "falls_back"),
    [(SYSTEM, "another timeline, other tables"), (TIMELINE, "other tables are noticed")],
)
def test_doctor_names_the_missing_right_and_the_grant_that_mends_it(
    url: str, capsys: pytest.CaptureFixture[str], function: str, falls_back: str
) -> None:
    with without(url, function) as worker:
        assert main(["doctor", "--url", worker]) == 0
    _, _, told = capsys.readouterr().out.partition("incarnation")
    line, step = told.splitlines()[:2]
    assert falls_back in line
    assert f"GRANT EXECUTE ON FUNCTION {function} TO teller" in step


def test_role_with_all_rights_is_told_nothing(url: str) -> None:
    found = [one.what for one in PostgresStore(as_user(url, "teller")).examine()]
    assert "incarnation" not in found


@pytest.mark.parametrize("functions", [(SYSTEM,), (SYSTEM, TIMELINE)], ids=["no identifier", "no timeline"])
def test_process_with_fewer_rights_says_so_and_still_notices_other_tables(
    url: str, functions: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """The ledger's tables are dropped and made anew under a process that remembers an event."""
    calls: list[str] = []
    caplog.set_level(logging.WARNING, "oncegate.restored")
    with without(url, *functions) as worker, Gate(store=PostgresStore(worker)) as gate:

        @gate.handler("mail", key="{id}")
        def send(event: dict[str, str]) -> str:
            calls.append(event["id"])
            return "sent"

        gate.admit_sync("mail", {"id": "N-1"})
        run_sql(
            url,
            "DELETE FROM oncegate_entry",
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND usename = 'teller'",
        )
        _admit(gate, "mail", "N-2")
        assert gate.admit_sync("mail", {"id": "N-1"}).verdict is Verdict.HOLD
        assert gate.engine.store.incarnations.generation == 1
    said = [one.message for one in caplog.records if "may go unnoticed" in one.message]
    assert len(said) == 1
    assert f"GRANT EXECUTE ON FUNCTION {', '.join(functions)} TO teller" in said[0]
    assert calls == ["N-1", "N-2"]


def test_right_that_is_taken_away_meanwhile_ends_nothing(url: str) -> None:
    """The session reads which ledger it is once a second; the next connection goes by less."""
    store = PostgresStore(as_user(url, "teller"))
    with Gate(store=store) as gate:
        gate.handler("mail", key="{id}")(lambda event: "sent")
        gate.admit_sync("mail", {"id": "N-1"})
        session = store.connect()
        with without(url, SYSTEM):
            session._keeps_time_at_ms = 0
            with session.unit():
                assert session.counts()
            session.close()
            assert gate.admit_sync("mail", {"id": "N-2"}).verdict is Verdict.RUN
        assert str(store.incarnations.identity).startswith("?/")
