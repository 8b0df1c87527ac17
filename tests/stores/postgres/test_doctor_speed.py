"""The doctor times a claim and names what is slow, and the transaction that the content scan waits for."""

from __future__ import annotations

from contextlib import closing
from urllib.parse import quote

import psycopg
import pytest

from oncegate.errors import StoreUnavailable
from oncegate.model.content import ContentMark
from oncegate.store import Finding
from oncegate.stores.postgres import PostgresStore, scanning
from oncegate.stores.postgres.timing import Times, judge
from oncegate.testing.postgres import PostgresServer
from tests.stores.postgres.test_rehearsal import COUNTED, rows
from tests.support.postgres_site import reservation

WELL = {"claim": 3.0, "commit": 1.0, "round_trip": 0.1, "database": "ledger"}


def found(url: str, what: str) -> list[Finding]:
    return [finding for finding in PostgresStore(url).examine() if finding.what == what]


def with_options(url: str, *settings: str) -> str:
    return f"{url}&options={quote(' '.join(f'-c {one}' for one in settings))}"


def test_doctor_times_a_claim_and_leaves_nothing(ledger_url: str) -> None:
    (finding,) = found(ledger_url, "claim")
    assert finding.ok
    assert "ms" in finding.value
    assert rows(ledger_url) == [0] * len(COUNTED)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"compiled": ("reservation",)}, "ALTER DATABASE ledger SET jit = off"),
        ({"whole_reads": ("oncegate_open",)}, "ANALYZE oncegate_open"),
        ({"commit": 300.0}, "pg_wal"),
        ({"round_trip": 40.0, "claim": 400.0}, "far away"),
        ({"claim": 400.0}, "pg_stat_activity"),
    ],
)
def test_what_is_slow_is_named_with_a_next_step(changes: dict[str, object], words: str) -> None:
    finding = judge(Times(**{**WELL, **changes}))  # type: ignore[arg-type]
    assert finding.ok
    assert words in finding.next_step
    assert bool(finding.next_step) == bool(words)


def test_plan_that_reads_a_whole_table_is_named(ledger_url: str) -> None:
    off = ("enable_seqscan=on", "enable_indexscan=off", "enable_indexonlyscan=off", "enable_bitmapscan=off")
    (finding,) = found(with_options(ledger_url, *off), "claim")
    assert "oncegate_entry" in finding.next_step


def test_claim_that_is_compiled_is_named(ledger_url: str) -> None:
    with psycopg.connect(ledger_url) as connection:
        if connection.execute("SELECT current_setting('jit_provider'), pg_jit_available()").fetchone() != (
            "llvmjit",
            True,
        ):
            pytest.skip("this server has no JIT; the stock server has")
    (finding,) = found(with_options(ledger_url, "jit=on", "jit_above_cost=0"), "claim")
    assert "jit = off" in finding.next_step


def test_transaction_that_the_content_scan_waits_for_is_named(
    postgres: PostgresServer, ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a transaction that is left open, in another database; then marks wait for it."""
    monkeypatch.setattr(scanning, "LONG_SECONDS", 0)
    other = postgres.new_database()
    with psycopg.connect(f"{other}&application_name=forgotten") as left_open:
        left_open.execute("SELECT pg_current_xact_id()")
        with closing(PostgresStore(ledger_url).connect()) as session, session.unit():
            session.reserve([reservation(1, content=ContentMark(b"h" * 16, "route", None))])
        (finding,) = found(ledger_url, "content scan")
        assert "forgotten" in finding.value
        with PostgresStore(ledger_url).look() as reader:
            unscanned = reader.unscanned()
        assert unscanned is not None
        assert "forgotten" in unscanned.waits_for
        assert finding.next_step


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_database_that_is_not_utf8_is_refused_with_a_next_step(
    postgres: PostgresServer, encoding: str
) -> None:
    name = f"other_{encoding.lower()}"
    url = postgres.url(name)
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name}".encode())
        connection.execute(
            f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0".encode()
        )
    with pytest.raises(StoreUnavailable, match=f"{encoding}.*ENCODING 'UTF8'"):
        PostgresStore(url).connect()
    (finding,) = PostgresStore(url).examine()
    assert not finding.ok
