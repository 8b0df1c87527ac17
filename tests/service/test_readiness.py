"""Ready means that an event could be written down now (I18)."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path

import psycopg
import pytest

from oncegate.service.readiness import KIND, Readiness
from oncegate.testing.clock import ManualClock
from oncegate.testing.waiting import wait_until
from oncegate.wiring import Gate
from tests.service.process import Process, served


@pytest.mark.slow
def test_a_disk_without_room_is_not_ready_and_is_ready_again_by_itself(tmp_path: Path) -> None:
    """The process may write no file beyond its first byte, as on a full disk; reads go on."""
    with served(tmp_path) as site:
        assert site.call("GET", "/readyz").status == 200
        assert site.hook({"id": "n-1"}).status == 200
        _limit_files(site, 1)
        wait_until(lambda: site.call("GET", "/readyz").status == 503, what="the service to notice")
        refused = site.hook({"id": "n-2"}).problem
        assert site.call("GET", "/livez").status == 200
        _limit_files(site, resource.RLIM_INFINITY)
        wait_until(lambda: site.call("GET", "/readyz").status == 200, what="the service to be ready again")
        assert site.hook({"id": "n-2"}).status == 200

    assert refused == "store-unavailable"


def _limit_files(site: Process, count: int) -> None:
    _, most = resource.prlimit(site.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(site.process.pid, resource.RLIMIT_FSIZE, (count, most))


def test_a_server_that_refuses_writes_is_not_ready(ledger_url: str) -> None:
    async def scene(gate: Gate) -> list[bool]:
        found = [await Readiness(gate.engine.commits, gate.engine.clock).can_write()]
        for refuse in (True, False):
            with psycopg.connect(ledger_url, autocommit=True) as connection:
                connection.execute(_REFUSE if refuse else _ALLOW)
            found.append(await Readiness(gate.engine.commits, gate.engine.clock).can_write())
        return found

    with Gate(ledger_url) as gate:
        assert asyncio.run(scene(gate)) == [True, False, True]


_REFUSE = """
CREATE FUNCTION oncegate_test_full() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'no space left on device' USING ERRCODE = '53100'; END $$;
CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON oncegate_notice
FOR EACH ROW EXECUTE FUNCTION oncegate_test_full()
"""
_ALLOW = "DROP TRIGGER full_disk ON oncegate_notice; DROP FUNCTION oncegate_test_full()"


def test_all_who_ask_within_a_second_share_one_write(tmp_path: Path) -> None:
    """By a clock that stands still; when it has moved on, the next one writes in the same row."""
    clock = ManualClock()

    async def scene(readiness: Readiness) -> list[bytes]:
        found = []
        for _ in range(2):
            assert await asyncio.gather(*(readiness.can_write() for _ in range(50))) == [True] * 50
            assert await readiness.can_write()
            with gate.engine.store.look() as session:
                found += [notice.body for notice in session.notices(KIND)]
            clock.advance(1)
        return found

    with Gate(f"sqlite:///{tmp_path}/ledger.db") as gate:
        first, second = asyncio.run(scene(Readiness(gate.engine.commits, clock)))

    assert first != second
