"""The doctor rehearses a claim: a missing right is found before the first event, and nothing is left."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psycopg
import pytest

from oncegate.cli.main import main
from oncegate.store import Finding
from oncegate.stores.postgres import PostgresStore
from oncegate.testing.postgres import PostgresServer
from tests.stores.postgres.test_bad_input import as_user, run_sql, setting
from tests.support.ledgers import new_ledger
from tests.support.postgres_site import finish

COUNTED = ("entry", "open", "payload", "outcome", "step", "log", "name")


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    """A ledger, and a role with exactly the rights that the guide names."""
    made = new_ledger(postgres)
    run_sql(
        made,
        "DROP ROLE IF EXISTS worker",
        "CREATE ROLE worker LOGIN",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO worker",
        "GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO worker",
    )
    yield made
    run_sql(made, "DROP OWNED BY worker", "DROP ROLE worker")


def writing(url: str) -> Finding:
    (finding,) = [one for one in PostgresStore(as_user(url, "worker")).examine() if one.what == "writing"]
    return finding


def rows(url: str) -> list[int]:
    with psycopg.connect(url) as connection:
        return [
            row[0]
            for name in COUNTED
            for row in connection.execute(f"SELECT count(*) FROM oncegate_{name}".encode()).fetchall()
        ]


def test_role_with_the_named_rights_can_write_and_leaves_nothing(url: str) -> None:
    finding = writing(url)
    assert finding.ok
    assert "possible" in finding.value
    assert rows(url) == [0] * len(COUNTED)


@pytest.mark.parametrize(
    ("right", "place"),
    [
        ("INSERT", "oncegate_entry"),
        ("UPDATE", "oncegate_entry"),
        ("INSERT", "oncegate_open"),
        ("UPDATE", "oncegate_open"),
        ("DELETE", "oncegate_open"),
        ("INSERT", "oncegate_payload"),
        ("INSERT", "oncegate_outcome"),
        ("INSERT", "oncegate_log"),
        ("INSERT", "oncegate_step"),
        ("DELETE", "oncegate_step"),
        ("INSERT", "oncegate_name"),
        ("UPDATE", "oncegate_ticks"),
        ("USAGE", "SEQUENCE oncegate_number"),
    ],
)
def test_missing_right_is_a_failure_with_the_grant_that_mends_it(
    url: str, right: str, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the server's words; after the named statement all is well."""
    run_sql(url, f"REVOKE {right} ON {place} FROM worker")
    finding = writing(url)
    assert not finding.ok
    assert f"permission denied for {place.lower() if ' ' in place else f'table {place}'}" in finding.value
    assert finding.next_step == f"GRANT {right} ON {place} TO worker"
    assert main(["doctor", "--url", as_user(url, "worker")]) == 1
    assert finding.next_step in capsys.readouterr().out
    assert rows(url) == [0] * len(COUNTED)
    run_sql(url, finding.next_step)
    assert writing(url).ok


def test_several_missing_rights_are_named_together(url: str) -> None:
    run_sql(url, "REVOKE INSERT ON oncegate_log, oncegate_entry FROM worker")
    assert writing(url).next_step == "GRANT INSERT ON oncegate_entry, oncegate_log TO worker"


def test_nothing_is_tried_where_nobody_may_write(url: str) -> None:
    """A server that is read-only by intention is a warning, not a failure."""
    with setting(url, "default_transaction_read_only", "on"):
        finding = writing(url)
    assert finding.ok
    assert "not tried" in finding.value
    assert "primary" in finding.next_step


def test_somebodys_lock_is_not_waited_for(url: str) -> None:
    """A migration of the users' own, say, that holds a table: no finding, and no wait for its end."""
    with psycopg.connect(url) as other:
        other.execute("LOCK TABLE oncegate_open IN ACCESS EXCLUSIVE MODE")
        finding = writing(url)
    assert finding.ok
    assert "another process" in finding.value


def test_examining_beside_a_writer_disturbs_neither(url: str) -> None:
    with contextlib.closing(PostgresStore(url).connect()) as session, session.unit():
        finish(session, 1)
        assert writing(url).ok
    assert rows(url)[0] == 1
