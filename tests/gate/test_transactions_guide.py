"""Every example in docs/transactions.md runs, on a real server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg
import pytest

from oncegate.testing.postgres import GivenServer, PostgresServer
from tests.gate.join_kinds import django_connection

GUIDE = (Path(__file__).parents[2] / "docs" / "transactions.md").read_text("utf-8")
EXAMPLES = re.findall(r"^## (.+?)\n.*?```python\n(.+?)```", GUIDE, re.MULTILINE | re.DOTALL)
ADDRESS = re.compile(r"postgresql(\+\w+)?://app@db/shop")


@pytest.fixture(scope="module")
def url(postgres: PostgresServer | GivenServer) -> str:
    """A database with the guide's table, which is also Django's default."""
    address = postgres.new_database()
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CREATE TABLE booking (id text PRIMARY KEY)")
    return address


def test_every_kind_has_its_example() -> None:
    assert len(EXAMPLES) == 7


@pytest.mark.parametrize("example", [code for _, code in EXAMPLES], ids=[title for title, _ in EXAMPLES])
def test_an_example_of_the_guide(example: str, url: str) -> None:
    """It books, and the ledger says so in the same commit."""
    django = django_connection(url, "default")
    variables: dict[str, Any] = {}
    code = ADDRESS.sub(
        lambda found: f"postgresql{found.group(1) or ''}{url.removeprefix('postgresql')}", example
    )
    exec(code, variables)  # the guide's own code, which this test is about
    variables["gate"].close()
    django.close()
    (identity,) = re.findall(r"N-\d", example)[:1]
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT 1 FROM booking WHERE id = %s", (identity,)).fetchall() == [(1,)]
        states = connection.execute(
            "SELECT state FROM oncegate_entries WHERE label LIKE %s", (f"%{identity}%",)
        )
        assert states.fetchall() == [("committed",)]
