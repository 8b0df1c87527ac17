"""`gate.worker()`: one front door for all background work in the user's own process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from oncegate import ConfigError, Gate
from oncegate.clock import SystemClock
from oncegate.maintenance.background import ContinuousJob, Worker
from oncegate.sender.addresses import AddressPolicy
from oncegate.sender.endpoint_registry import EndpointChange
from oncegate.sender.endpoints import new_endpoint
from oncegate.store import LaneState
from oncegate.testing.waiting import DEADLINE_SECONDS, wait_until
from oncegate.wiring.sender import Sender
from tests.sender.scripted import Peer, serving

SECRET = "whsec_" + "c2VjcmV0" * 8
EVERYTHING = {"recovery", "pruning", "scans", "watch", "deliveries"}


@pytest.fixture(params=["sqlite", "postgres"])
def gate(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Gate]:
    """A gate without surfaces, on each store."""
    is_postgres = request.param == "postgres"
    url = request.getfixturevalue("ledger_url") if is_postgres else f"sqlite:///{tmp_path}/l.db"
    with Gate(url) as found:
        yield found


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Gate]:
    """A gate without surfaces, for what no store changes."""
    with Gate(f"sqlite:///{tmp_path}/l.db") as found:
        yield found


async def answer(peer: Peer) -> None:
    """A receiver that takes everything."""
    while await peer.request() is not None:
        await peer.send(b"HTTP/1.1 204 No Content\r\n\r\n")


def test_a_worker_delivers_what_was_emitted_to_an_endpoint_added_later(gate: Gate) -> None:
    """In the user's loop, with the sender that emits; the endpoint comes after the start."""
    policy = AddressPolicy.of(allow_http=True, allow_loopback=True)
    sender = Sender(gate=gate, policy=policy)

    async def program() -> None:
        async with serving(answer) as site, gate.worker(only=["deliveries"], sender=sender):
            endpoint = new_endpoint("orders", f"http://127.0.0.1:{site.port}/hook", secret=SECRET)
            await asyncio.to_thread(sender.endpoints.add, endpoint, EndpointChange("ann", "test"))
            await sender.emit("orders", key="A", type="order.updated", payload={"n": 1})
            await asyncio.to_thread(wait_until, lambda: _delivered(gate))

    asyncio.run(asyncio.wait_for(program(), DEADLINE_SECONDS))


def _delivered(gate: Gate) -> bool:
    with gate.engine.store.look() as session:
        lane = session.find_lane("orders", "", "A")
    return lane is not None and lane.state is LaneState.IDLE


def test_a_worker_has_every_job_that_can_run(local: Gate) -> None:
    """One of them needs an accepting surface, another a source; the absence is the reason."""
    worker = local.worker()
    assert {job.kind for job in worker.jobs} == EVERYTHING
    assert set(worker.left_out) == {"accepted", "sources", "snapshots", "journal"}
    local.handler("orders", key="{id}", mode="accept")(lambda event, once: None)
    assert {job.kind for job in local.worker().jobs} == EVERYTHING | {"accepted"}


def test_deliveries_are_left_out_where_the_http_parser_is_not_installed(
    local: Gate, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A gate that sends nothing needs no extra; the log says what is left out and why."""

    def missing() -> None:
        raise ConfigError("pip install 'oncegate[sender]'")

    monkeypatch.setattr("oncegate.wiring.worker.check_parser", missing)
    with caplog.at_level(logging.INFO, "oncegate.maintenance"), local.worker(without=["watch"]):
        pass
    assert "deliveries: left out: pip install 'oncegate[sender]'" in caplog.text
    assert "watch: left out: not chosen" in caplog.text
    with pytest.raises(ConfigError, match="the job deliveries cannot run: pip install"):
        local.worker(only=["deliveries"])


@pytest.mark.parametrize("old", ["caretakers", "working"])
def test_an_old_name_names_the_new_one(local: Gate, old: str) -> None:
    """A program that was written for it learns what to call."""
    with pytest.raises(AttributeError, match=f"a gate has no '{old}'; it is gate.worker now"):
        getattr(local, old)()
    with pytest.raises(AttributeError, match=r"a gate has no 'wroker'$"):
        _ = local.wroker  # type: ignore[attr-defined]


class Recorded:
    """A continuous job that notes what happens to it."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def job(
        self, opened: Callable[[float], AbstractAsyncContextManager[Any]] | None = None
    ) -> ContinuousJob:
        return ContinuousJob("accepted", opened or self._opened, self._run_once)

    @asynccontextmanager
    async def _opened(self, seconds: float) -> Any:
        self.told.append(f"drains within {seconds:.1f}")
        yield
        self.told.append("drained")

    async def _run_once(self) -> object:
        return "done"


@pytest.mark.parametrize("is_async", [True, False])
def test_a_continuous_job_is_drained_when_the_block_ends(is_async: bool) -> None:
    """In a task or in a thread, within the worker's grace."""
    recorded = Recorded()
    worker = Worker([recorded.job()], clock=SystemClock(), grace=timedelta(seconds=5))

    async def program() -> None:
        async with worker:
            await asyncio.to_thread(wait_until, lambda: recorded.told)

    if is_async:
        asyncio.run(program())
    else:
        with worker:
            wait_until(lambda: recorded.told)
    assert recorded.told == ["drains within 4.6", "drained"]
    assert not worker.is_running


def test_a_continuous_job_that_cannot_start_is_told_and_ends_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The program goes on; the log has the cause."""
    good = Recorded()

    def fails(seconds: float) -> AbstractAsyncContextManager[Any]:
        raise ConfigError("no such thing")

    with Worker([good.job(fails), good.job()], clock=SystemClock()):
        wait_until(lambda: "accepted has ended before its time" in caplog.text and good.told)
    assert "no such thing" in caplog.text
    assert good.told[-1] == "drained"
