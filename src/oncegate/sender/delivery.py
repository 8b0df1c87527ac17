"""Delivery: events of the lanes become signed HTTP requests or Kafka records, and their answers outcomes.

One attempt is one request or record. What a configuration mistake prevents (a missing secret, an address
that may not be called) does not use attempts up: the endpoint waits until a person mends it, and says why.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Self, TypedDict

from msgspec import Struct

from oncegate.crashpoints import CrashPoints
from oncegate.errors import BadEndpoint, StoreError, Unacceptable, UnknownEndpoint
from oncegate.lanes.destinations import Destination
from oncegate.lanes.engine import STOP_SECONDS, Engine
from oncegate.lanes.outcomes import Delivered, Disable, NotYet, Outcome, RetryLater, Throttle, Unreached
from oncegate.model.circuit import CircuitState
from oncegate.sender.emission import wire_event
from oncegate.sender.endpoints import IN_FLIGHT_MAX, Endpoint, OnDeadLetter
from oncegate.sender.exchange import FailureKind, NoResponse
from oncegate.sender.http import HttpClient, Limits
from oncegate.sender.request_builder import build_request
from oncegate.sender.responses import Judgement, Result, judge
from oncegate.sender.sender import SenderOnCommits
from oncegate.sender.urls import EndpointUrl
from oncegate.signatures.keys import SigningKey
from oncegate.store import Delivery, Policy, replay_name

if TYPE_CHECKING:
    from oncegate.sender.kafka.courier import KafkaCourier

LOOK_SECONDS: Final = 2.0  # how soon a new or changed endpoint is noticed
MISTAKE_WAIT_SECONDS: Final = 30.0  # until an endpoint that cannot be called is looked at again
THROTTLE_SECONDS: Final = 5.0  # for a receiver that asks for time but not for how much
log = logging.getLogger("oncegate.sender")

_LIMITS: Final = Limits(in_flight_max=4 * IN_FLIGHT_MAX, per_origin_max=IN_FLIGHT_MAX)
_POLICIES: Final = {OnDeadLetter.BLOCK: Policy.BLOCK, OnDeadLetter.ADVANCE: Policy.ADVANCE}


class _Ready(Struct, frozen=True):
    """What of an endpoint is worked out once: its address, its keys, and until when these are the ones."""

    endpoint: Endpoint
    address: EndpointUrl
    keys: list[SigningKey]
    until_ms: int | None


class Courier:
    """Brings single events to their endpoints."""

    def __init__(self, sender: SenderOnCommits, client: HttpClient) -> None:
        self._endpoints = sender.endpoints
        self._clock = sender.clock
        self._client = client
        self._ready: dict[str, _Ready] = {}
        self._kafka: KafkaCourier | None = None

    async def deliver(self, delivery: Delivery) -> Outcome:
        """Makes one attempt."""
        try:
            endpoint = self._endpoints.peek(delivery.destination)
            if endpoint is None:
                endpoint = await self._endpoints.find(delivery.destination)
            if endpoint.is_kafka:
                return await self._produce(endpoint, delivery)
            judgement = await self._attempt(endpoint, delivery)
        except UnknownEndpoint as missing:
            return Throttle(str(missing), MISTAKE_WAIT_SECONDS)
        except Unacceptable as mistake:
            return Throttle(f"{delivery.destination}: {mistake}", MISTAKE_WAIT_SECONDS)
        return _outcome(judgement)

    async def _attempt(self, endpoint: Endpoint, delivery: Delivery) -> Judgement:
        now_ms = self._clock.wall_ms()
        ready = self._prepared(endpoint, now_ms)
        request = build_request(
            wire_event(delivery),
            ready.keys,
            now_ms // 1000,
            body_format=endpoint.body_format,
            own_headers=endpoint.headers,
            replay_nonce=None if delivery.nonce is None else replay_name(delivery.nonce),
        )
        exchange = await self._client.post(ready.address, request, deadline=endpoint.timeout)
        if isinstance(exchange, NoResponse) and exchange.kind is FailureKind.REFUSED_ADDRESS:
            raise BadEndpoint(exchange.detail)
        return judge(exchange)

    async def _produce(self, endpoint: Endpoint, delivery: Delivery) -> Outcome:
        endpoint.addresses(self._endpoints.policy)  # judged again: the process may have another policy
        if self._kafka is None:
            from oncegate.sender.kafka.courier import KafkaCourier

            self._kafka = KafkaCourier(self._clock)
        nonce = None if delivery.nonce is None else replay_name(delivery.nonce)
        return await self._kafka.deliver(endpoint, wire_event(delivery), nonce)

    async def close(self) -> None:
        """Ends connections."""
        await self._client.close()
        if self._kafka is not None:
            await self._kafka.close()

    def _prepared(self, endpoint: Endpoint, now_ms: int) -> _Ready:
        ready = self._ready.get(endpoint.name)
        if ready is None or ready.endpoint is not endpoint or _is_over(ready.until_ms, now_ms):
            ends = (one.until_ms for one in endpoint.secrets if not _is_over(one.until_ms, now_ms))
            ready = _Ready(
                endpoint,
                endpoint.address(self._endpoints.policy),
                endpoint.signing_keys(now_ms),
                min((end for end in ends if end is not None), default=None),
            )
            self._ready[endpoint.name] = ready
        return ready


def _is_over(until_ms: int | None, now_ms: int) -> bool:
    return until_ms is not None and now_ms >= until_ms


def _outcome(judgement: Judgement) -> Outcome:
    wait, status = judgement.wait_min.total_seconds(), judgement.status
    if judgement.result is Result.DELIVERED:
        return Delivered(judgement.reason)
    if judgement.result is Result.GONE:
        return Disable(judgement.reason, status)
    if judgement.result is Result.THROTTLED:
        return Throttle(judgement.reason, wait or THROTTLE_SECONDS, status)
    if judgement.result is Result.LOCKED:
        return NotYet(judgement.reason, wait or THROTTLE_SECONDS, status)
    if judgement.result is Result.UNREACHED:
        return Unreached(judgement.reason)
    return RetryLater(judgement.reason, wait, status)


class DeliveryOptions(TypedDict, total=False):
    """What a delivery service takes besides its sender."""

    client: HttpClient | None
    crashpoints: CrashPoints | None
    jitter: Callable[[], float] | None
    actor: str
    runs: bool
    stop_seconds: float


class DeliveryService:
    """Delivers to every endpoint of a ledger while its `async with` block lasts.

    Without `runs` nothing goes by itself: the code in the block calls `engine.run_once`.
    """

    def __init__(
        self,
        sender: SenderOnCommits,
        *,
        client: HttpClient | None = None,
        crashpoints: CrashPoints | None = None,
        jitter: Callable[[], float] | None = None,
        actor: str = "sender",
        runs: bool = True,
        stop_seconds: float = STOP_SECONDS,
    ) -> None:
        self._sender, self._stop_seconds = sender, stop_seconds
        self._runs = runs
        self._client = client or HttpClient(sender.endpoints.policy, limits=_LIMITS, clock=sender.clock)
        self._courier = Courier(sender, self._client)
        self.engine = Engine(
            sender.commits, [], clock=sender.clock, crashpoints=crashpoints, jitter=jitter, actor=actor
        )
        self._known: dict[str, Endpoint] = {}
        self._looking: asyncio.Task[None] | None = None
        sender.listen(self.engine.wake)

    def circuits(self) -> dict[str, CircuitState]:
        """The circuit of each endpoint, as this process has it."""
        return self.engine.circuits()

    async def look(self) -> None:
        """Takes up endpoints that are new or changed, and lets go of those that were removed."""
        current = {endpoint.name: endpoint for endpoint in await self._sender.endpoints.list_all()}
        for name in [one for one, known in self._known.items() if current.get(one) != known]:
            self.engine.remove(name)
            del self._known[name]
        for name, endpoint in current.items():
            if name not in self._known:
                self.engine.add(self._destination(endpoint))
                self._known[name] = endpoint

    def _destination(self, endpoint: Endpoint) -> Destination:
        return Destination(
            endpoint.name,
            self._courier.deliver,
            endpoint.backoff,
            _POLICIES[endpoint.on_dead_letter],
            endpoint.in_flight_max,
            endpoint.rate_per_second,
        )

    async def __aenter__(self) -> Self:
        if not self._runs:
            await self.look()
        else:
            with contextlib.suppress(StoreError):  # the store is away: its endpoints are found later
                await self.look()
            await self.engine.start()
            self._looking = asyncio.create_task(self._keep_looking())
        return self

    async def _keep_looking(self) -> None:
        trouble = ""
        while True:
            await self._sender.clock.pause_async(LOOK_SECONDS)
            try:
                await self.look()
            except StoreError:  # the store is away: what is known goes on
                continue
            except Exception as error:  # noqa: BLE001  one endpoint's trouble must not hide all to come
                if trouble != str(error):
                    log.error("looking for endpoints failed: %s: %s", type(error).__name__, error)
                trouble = str(error)
            else:
                trouble = ""

    async def __aexit__(self, *_: object) -> None:
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking
        await self.engine.stop(self._stop_seconds)
        await self._courier.close()
