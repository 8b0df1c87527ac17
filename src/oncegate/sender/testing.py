"""One test event to an endpoint, outside every lane: signed and judged as a delivery would be."""

from __future__ import annotations

import msgspec

from oncegate.clock import Clock
from oncegate.lanes.outcomes import Delivered, NotYet, Unreached
from oncegate.sender.addresses import AddressPolicy
from oncegate.sender.emission import new_event_id
from oncegate.sender.endpoints import Endpoint
from oncegate.sender.http import HttpClient
from oncegate.sender.kafka.courier import KafkaCourier
from oncegate.sender.request_builder import OutgoingRequest, build_request
from oncegate.sender.responses import Judgement, Result, judge

TEST_TYPE = "oncegate.test"


async def send_test(endpoint: Endpoint, policy: AddressPolicy, clock: Clock) -> Judgement:
    """Sends one event and tells what came of it; nothing is recorded.

    Its key is its own: a receiver that keeps order must never count it among the events of a real key, nor
    a second test after the first.
    """
    now_ms, event_id = clock.wall_ms(), new_event_id(clock)
    event = OutgoingRequest(
        event_id=event_id,
        key=f"{TEST_TYPE}:{event_id}",
        seq=1,
        type=TEST_TYPE,
        payload=msgspec.json.encode({"endpoint": endpoint.name}),
        occurred_at_ms=now_ms,
    )
    if endpoint.is_kafka:
        return await _produce_test(endpoint, event, policy, clock)
    request = build_request(
        event,
        endpoint.signing_keys(now_ms),
        now_ms // 1000,
        body_format=endpoint.body_format,
        own_headers=endpoint.headers,
    )
    client = HttpClient(policy, clock=clock)
    try:
        return judge(await client.post(endpoint.address(policy), request, deadline=endpoint.timeout))
    finally:
        await client.close()


async def _produce_test(
    endpoint: Endpoint, event: OutgoingRequest, policy: AddressPolicy, clock: Clock
) -> Judgement:
    endpoint.addresses(policy)
    courier = KafkaCourier(clock)
    try:
        outcome = await courier.deliver(endpoint, event)
    finally:
        await courier.close()
    if isinstance(outcome, Delivered):
        return Judgement(Result.DELIVERED, outcome.note)
    is_unreached = isinstance(outcome, Unreached)
    said = outcome.reason if isinstance(outcome, NotYet) else outcome.error
    return Judgement(Result.UNREACHED if is_unreached else Result.FAILED, said)
