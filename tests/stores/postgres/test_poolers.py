"""A pooler in between: in session mode nothing is different, in transaction mode it is refused (I5)."""

from __future__ import annotations

import asyncio

import pytest

from oncegate import AsyncOnce, Gate
from oncegate.errors import StoreUnavailable
from oncegate.gate.admission import Verdict
from oncegate.stores.postgres import PostgresStore, poolers
from tests.stores.postgres.pooler_site import PROGRAM, pooled

pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="pgbouncer is not installed (apt install pgbouncer)"
)


@pytest.mark.slow
@pytest.mark.parametrize("ignored", ["", "options"])
def test_events_pass_a_pooler_in_session_mode(ledger_url: str, ignored: str) -> None:
    """Whether it refuses the settings that a connection asks for, or leaves them out silently."""
    extra = {"ignore_startup_parameters": ignored} if ignored else {}
    with pooled(ledger_url, "session", **extra) as url, Gate(url) as gate:

        @gate.handler("bookings", key="{id}")
        async def book(event: dict[str, str], once: AsyncOnce) -> str:
            async with once.commit(outcome=event["id"]) as tx:
                ((seqscan,),) = await tx.execute("SELECT current_setting(?)", ("enable_seqscan",))
                assert seqscan == "on"
            return event["id"]

        async def deliver() -> list[Verdict]:
            events = [{"id": f"E-{number % 20}"} for number in range(40)]
            answers = await asyncio.gather(*(gate.admit("bookings", event) for event in events))
            return [answer.verdict for answer in answers]

        first, second = asyncio.run(deliver()), asyncio.run(deliver())
    assert first.count(Verdict.RUN) == 20
    assert second == [Verdict.REPLAY] * 40


def test_settings_that_a_pooler_left_out_are_made_all_the_same(ledger_url: str) -> None:
    with pooled(ledger_url, "session", ignore_startup_parameters="options") as url:
        session = PostgresStore(url).connect()
        try:
            sql = "SELECT current_setting('statement_timeout'), current_setting('enable_seqscan')"
            assert session._query(sql, ()) == [("25s", "off")]
        finally:
            session.close()


@pytest.mark.parametrize("mode", ["transaction", "statement"])
@pytest.mark.parametrize("ignored", ["", "options"])
def test_a_pooler_in_another_mode_is_refused(ledger_url: str, ignored: str, mode: str) -> None:
    extra = {"ignore_startup_parameters": ignored} if ignored else {}
    with (
        pooled(ledger_url, mode, **extra) as url,
        pytest.raises(StoreUnavailable, match="pool_mode=session"),
    ):
        PostgresStore(url).connect()


def test_doctor_tells_the_mode(ledger_url: str) -> None:
    with pooled(ledger_url, "session") as url:
        (found,) = [finding for finding in PostgresStore(url).examine() if finding.what == "pooler"]
        assert found.ok
    with pooled(ledger_url, "transaction") as url:
        (found,) = [finding for finding in PostgresStore(url).examine() if finding.what == "pooler"]
        assert not found.ok
        assert "pool_mode=session" in found.next_step


def test_a_pool_with_one_server_only_is_no_transaction_mode(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poolers, "PROBE_WAIT_MS", 300)  # the other waits in vain, however long
    with pooled(ledger_url, "session", default_pool_size="1") as url:
        PostgresStore(url).connect().close()
