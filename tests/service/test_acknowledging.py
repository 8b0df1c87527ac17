"""`on_busy = "acknowledge"` over HTTP: 202 for an event in flight, which a kill -9 does not lose (I2)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from http.client import HTTPException
from pathlib import Path

import pytest

from oncegate import Gate
from oncegate.errors import ConfigError
from oncegate.maintenance.reconciler import Reconciler
from oncegate.model.surface import OnBusy
from oncegate.sender.http import HttpClient
from oncegate.service.settings import Settings
from oncegate.service.surfaces import Handlers, open_entrances, policy_of
from oncegate.testing import ManualClock
from oncegate.testing.waiting import DEADLINE_SECONDS, wait_until
from tests.service.process import HOOKS, served
from tests.service.site import SECRET, Site, TeamHandler, forwarding

ACKNOWLEDGING = (
    HOOKS
    + """
on_busy = "acknowledge"
forward = "team"
[network]
allow_http = true
allow_loopback = true
[downstreams.team]
url = "%s"
honours_key = "7d"
"""
)


async def _recover(gate: Gate, settings: Settings, clock: ManualClock) -> None:
    """What the workers of another process do, past the lease of the dead one."""
    client = HttpClient(policy_of(settings.network), clock=clock)
    open_entrances(gate, settings, Handlers(gate, settings, client), {"HOOKS": SECRET})
    clock.advance(60)
    await Reconciler(gate, at_once=True).run_once_async()


@pytest.mark.slow
def test_an_acknowledged_repeat_survives_the_kill_of_the_process_that_runs_the_event(
    tmp_path: Path,
) -> None:
    """The second delivery gets 202; then the service is killed; recovery calls again with the same key."""
    team = TeamHandler()
    with team.serving() as url, served(tmp_path, more=ACKNOWLEDGING % url) as process:
        team.hold.clear()

        def first() -> None:
            with contextlib.suppress(OSError, HTTPException):
                process.hook({"id": "n-1"})

        thread = threading.Thread(target=first)
        thread.start()
        wait_until(lambda: team.got, what="the handler to be called")
        answer = process.hook({"id": "n-1"})
        process.process.kill()
        team.hold.set()
        thread.join(DEADLINE_SECONDS)
        assert (answer.status, answer.document["state"]) == (202, "accepted")
        settings, clock = forwarding(url, honours_key="7d"), ManualClock()
        with Gate(f"sqlite:///{tmp_path}/ledger.db", clock=clock) as survivor:
            asyncio.run(_recover(survivor, settings, clock))
        with Site(tmp_path, settings).serving() as site:
            again = site.hook({"id": "n-1"})

    assert (again.status, again.document["replay"]) == (200, True)
    assert len(team.got) == 2  # the handler honours the key: to it, this is one call
    assert len(set(team.got)) == 1


def test_a_handler_that_recovery_may_not_call_again_is_refused_at_the_start(tmp_path: Path) -> None:
    """The mistake has its place: nothing would finish what was acknowledged."""
    given = forwarding("http://127.0.0.1:1/x", surface={"on_busy": OnBusy.ACKNOWLEDGE})

    async def open_service() -> None:
        Site(tmp_path, given).service.open()

    with pytest.raises(ConfigError, match="acknowledge' needs a downstream that recovery may call again"):
        asyncio.run(open_service())
