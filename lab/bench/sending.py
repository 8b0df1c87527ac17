"""What the sender's measurement does with one ledger: emit, deliver, and the bare client beside it.

Every function returns figures; nothing is printed.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Final

import msgspec

from lab import ROOT
from oncegate.clock import SystemClock
from oncegate.errors import ConfigError
from oncegate.sender.addresses import AddressPolicy
from oncegate.sender.delivery import DeliveryService
from oncegate.sender.endpoint_registry import EndpointChange
from oncegate.sender.endpoints import new_endpoint
from oncegate.sender.http import HttpClient, Limits
from oncegate.sender.request_builder import OutgoingRequest, Request, build_request
from oncegate.sender.responses import Result, judge
from oncegate.sender.urls import parse_endpoint_url
from oncegate.signatures.keys import read_signing_key
from oncegate.wiring.sender import Sender

ENDPOINT: Final = "bench"
SECRET: Final = "whsec_" + "c2VjcmV0" * 8
IN_FLIGHT: Final = 256
EMITTERS: Final = 256
FILL: Final = "x" * 420  # with the rest, events of half a kilobyte
POLICY: Final = AddressPolicy.of(allow_http=True, allow_loopback=True)
WAIT_SECONDS_MAX: Final = 120.0


class Peer:
    """A receiver in its own process."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self._process = process
        self.url = f"http://127.0.0.1:{port}/hook"

    def report(self) -> dict[str, Any]:
        """What it saw."""
        with urllib.request.urlopen(self.url, timeout=10) as answer:
            found: dict[str, Any] = msgspec.json.decode(answer.read())
        return found


@contextmanager
def peer(delay_ms: float, failures_per_cent: float = 0.0) -> Iterator[Peer]:
    """A fresh receiver."""
    words = [sys.executable, "-m", "lab.bench.hookpeer", str(delay_ms), str(failures_per_cent)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    try:
        yield Peer(process, int(process.stdout.readline()))
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()


def payload(number: int) -> dict[str, Any]:
    """An event's content, with the time of its emission."""
    return {"number": number, "fill": FILL, "emitted_at": perf_counter()}


def keys_of(count: int, *, poisoned: bool = False) -> list[str]:
    """As many keys; the first is the poisoned one, if there is to be one."""
    names = [f"order-{number}" for number in range(count)]
    return ["poisoned", *names[1:]] if poisoned else names


def endpoint_at(sender: Sender, url: str, in_flight: int = IN_FLIGHT) -> None:
    """Registers the receiver."""
    endpoint = new_endpoint(ENDPOINT, url, secret=SECRET, in_flight_max=in_flight, attempts_max=100)
    sender.endpoints.add(endpoint, EndpointChange("bench", "measuring"))


async def fill(sender: Sender, keys: list[str], events: int) -> float:
    """Emits a backlog, the keys in turn; returns events a second."""
    numbers = iter(range(events))

    async def emit() -> None:
        for number in numbers:
            key = keys[number % len(keys)]
            await sender.emit(ENDPOINT, key=key, type="order.updated", payload=payload(number))

    started = perf_counter()
    await asyncio.gather(*(emit() for _ in range(min(EMITTERS, events))))
    return events / (perf_counter() - started)


async def drain(sender: Sender, expected: int) -> float:
    """Delivers a backlog; returns events a second, from the first look to the last acknowledgement."""
    started = perf_counter()
    async with DeliveryService(sender) as service:
        await _delivered(service, expected)
        seconds = perf_counter() - started
    return expected / seconds


async def _delivered(service: DeliveryService, expected: int) -> None:
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while service.engine.counts()[0] < expected:  # noqa: ASYNC110  the engine has no event for this
            await asyncio.sleep(0.005)


async def trickle(sender: Sender, keys: list[str], per_second: float, seconds: float, row: int = 1) -> int:
    """Emits evenly while delivering, and waits for what can arrive; returns how many were emitted.

    So many of one key go in a row, at the same moment: all but the first have a predecessor to wait for.
    """
    clock, total = SystemClock(), int(per_second * seconds)
    names = [keys[number // row % len(keys)] for number in range(total)]
    healthy = sum(name != "poisoned" for name in names)
    async with DeliveryService(sender) as service, asyncio.TaskGroup() as tasks:
        started = perf_counter()
        for number in range(total):
            ahead = started + (number - number % row) / per_second - perf_counter()
            if ahead > 0:
                await clock.pause_async(ahead)
            emitting = sender.emit(
                ENDPOINT, key=names[number], type="order.updated", payload=payload(number)
            )
            tasks.create_task(_swallow(emitting))
        await _delivered(service, healthy)
    return total


async def _swallow(emitting: Any) -> None:
    await emitting


async def bare(url: str, posts: int) -> float:
    """The guarded client alone: requests made beforehand, no order, no ledger; returns POSTs a second."""
    requests = _requests(posts)
    address = parse_endpoint_url(url, POLICY)
    limits = Limits(in_flight_max=IN_FLIGHT, per_origin_max=IN_FLIGHT)
    client, waiting = HttpClient(POLICY, limits=limits), iter(requests)
    refused = 0

    async def post() -> None:
        nonlocal refused
        for request in waiting:
            refused += judge(await client.post(address, request)).result is not Result.DELIVERED

    started = perf_counter()
    await asyncio.gather(*(post() for _ in range(min(IN_FLIGHT, posts))))
    seconds = perf_counter() - started
    await client.close()
    if refused:
        raise ConfigError(f"{refused} of the bare client's requests failed; the measurement means nothing")
    return posts / seconds


def _requests(count: int) -> list[Request]:
    """As the sender makes them, of events as it is given."""
    key, clock = read_signing_key(SECRET), SystemClock()
    now_ms = clock.wall_ms()
    events = (
        OutgoingRequest(
            event_id=f"evt_{number}",
            key=f"order-{number}",
            seq=1,
            type="order.updated",
            payload=msgspec.json.encode(payload(number)),
            occurred_at_ms=now_ms,
        )
        for number in range(count)
    )
    return [build_request(event, [key], now_ms // 1000) for event in events]
