"""What docs/postgresql.md says of rights and of reading with SQL is so, on a real server."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from pathlib import Path

import psycopg
import pytest

from oncegate.stores.postgres import PostgresStore
from oncegate.stores.sqlite import SqliteStore
from oncegate.testing.postgres import PostgresServer
from tests.stores.postgres.test_bad_input import as_user, run_sql
from tests.support.postgres_site import finish, reservation

GUIDE = (Path(__file__).parents[3] / "docs" / "postgresql.md").read_text("utf-8")
GRANTS, QUERY = re.findall(r"^```sql\n(.+?)```", GUIDE, re.MULTILINE | re.DOTALL)
TABLE = GUIDE.partition("| column | type |")[2].partition("\n\n")[0]
TYPES = {"integer": "int4", "bigint": "int8"}


def documented() -> dict[str, str]:
    """The columns of the guide with their types."""
    found = {}
    for line in TABLE.splitlines():
        if names := re.match(r"\| (`.+?`) \| (\w+) \|", line):
            for name in re.findall(r"`(\w+)`", names.group(1)):
                found[name] = TYPES.get(names.group(2), names.group(2))
    return found


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    made = postgres.new_database()
    with contextlib.closing(PostgresStore(made).connect()) as session, session.unit():
        finish(session, 1)
        session.reserve([reservation(2)])
    return made


def test_view_has_the_columns_of_the_guide(url: str, tmp_path: Path) -> None:
    """The same on both stores, and on PostgreSQL with the types that are named."""
    with psycopg.connect(url) as connection:
        shown = connection.execute("SELECT * FROM oncegate_entries").description or []
        types = {
            column.name: connection.execute(
                "SELECT typname FROM pg_type WHERE oid = %s", (column.type_code,)
            ).fetchall()[0][0]
            for column in shown
        }
    assert types == documented()
    SqliteStore(tmp_path / "ledger.db").migrate()
    with contextlib.closing(sqlite3.connect(tmp_path / "ledger.db")) as embedded:
        described = embedded.execute("SELECT * FROM oncegate_entries").description
    assert {column[0] for column in described} == set(documented())


def test_role_for_reports_needs_the_view_alone(url: str) -> None:
    """The query of the guide, by a role that may read nothing else."""
    run_sql(
        url,
        "DROP ROLE IF EXISTS reports",
        "CREATE ROLE reports LOGIN",
        "GRANT SELECT ON oncegate_entries TO reports",
    )
    try:
        with psycopg.connect(as_user(url, "reports"), autocommit=True) as connection:
            rows = connection.execute(QUERY.encode()).fetchall()
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("SELECT * FROM oncegate_entry")
    finally:
        run_sql(url, "DROP OWNED BY reports", "DROP ROLE reports")
    assert [row[:3] for row in rows] == [("bookings", "in_flight", 1)]


def test_the_named_rights_are_enough(url: str) -> None:
    """A role with the guide's two grants passes the examination."""
    run_sql(url, "DROP ROLE IF EXISTS worker", "CREATE ROLE worker LOGIN", GRANTS)
    try:
        findings = PostgresStore(as_user(url, "worker")).examine()
    finally:
        run_sql(url, "DROP OWNED BY worker", "DROP ROLE worker")
    assert [finding for finding in findings if not finding.ok] == []
