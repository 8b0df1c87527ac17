"""The planner/executor contract: realtime and confirmations in, dispatch out by polling (C1-C5).

The token alone says who calls; a body that names another partner is refused.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from oncegate.errors import InputRefused, MalformedRequest
from oncegate.feed import Feed
from oncegate.feed.feed import PAGE_MAX, typed
from oncegate.gate.facade import GateOnStore
from oncegate.integrations.problems import Problem, ProblemKind
from oncegate.model.template import Field, FieldKind
from oncegate.model.trace import context_of
from oncegate.service.dispatch import check_can_be_sent
from oncegate.service.inbound import admit
from oncegate.service.large_bodies import LargeBodies
from oncegate.service.messages import (
    RequestDenied,
    ServiceRequest,
    ServiceResponse,
    json_answer,
    method_not_allowed,
)
from oncegate.service.partners import Partner
from oncegate.service.surfaces import CONFIRMATIONS, REALTIME

WAIT_SECONDS_MAX: Final = 30
WINDOW_LENGTH_MAX: Final = 120
_WINDOW: Final = Field("window", ("window",), FieldKind.TEXT)
_VERSIONS: Final = (4, 7)


async def realtime(
    gate: GateOnStore, large: LargeBodies, partner: Partner, incoming: ServiceRequest
) -> ServiceResponse:
    """Serves `POST …/realtime`."""
    body, beside = await read_object(large, incoming)
    context = context_of(incoming.headers.only)
    return await admit(gate, REALTIME, _event(partner, body), partner.tenant, context, large=beside)


async def confirmations(
    gate: GateOnStore, large: LargeBodies, partner: Partner, incoming: ServiceRequest
) -> ServiceResponse:
    """Serves `POST …/confirmations`: once for each id, and once for each window."""
    body, beside = await read_object(large, incoming)
    event = {**_event(partner, body), "window": _window(body)}
    context = context_of(incoming.headers.only)
    return await admit(gate, CONFIRMATIONS, event, partner.tenant, context, large=beside)


def _window(body: dict[str, Any]) -> str:
    """The window, if it can be a key: one that cannot would wait for a person, and never be confirmed."""
    try:
        window = _WINDOW.read(body)
    except InputRefused:
        window = ""
    if not 0 < len(window) <= WINDOW_LENGTH_MAX or not window.isprintable():
        raise MalformedRequest(
            f"window must be 1 to {WINDOW_LENGTH_MAX} printable characters, with no space around them"
        )
    return window


def _event(partner: Partner, body: dict[str, Any]) -> dict[str, Any]:
    named = body.get("partner_id", partner.name)
    if named != partner.name:
        raise RequestDenied(Problem(ProblemKind.FORBIDDEN, "the body names another partner than the token"))
    correlation_id = read_correlation_id(body.get("correlation_id"))
    return {
        "tenant": partner.tenant,
        "partner_id": partner.name,
        "correlation_id": correlation_id,
        # In one spelling, or the same call in another would be another content under a known key.
        "payload": {**body, "correlation_id": correlation_id},
    }


def read_correlation_id(given: object) -> str:
    """A UUID of version 4 or 7 in its usual form; upper and lower case are the same id."""
    try:
        found = UUID(given) if isinstance(given, str) and len(given) == 36 else None
    except ValueError:
        found = None
    if found is None or found.version not in _VERSIONS or str(found) != str(given).lower():
        raise MalformedRequest("correlation_id must be a UUID of version 4 or 7")
    return str(found)


async def pending(feed: Feed, partner: Partner, incoming: ServiceRequest) -> ServiceResponse:
    """Serves `GET …/dispatch/pending?since=&limit=&wait=`; an empty `since` is where the reader stands."""
    query = incoming.query("since", "limit", "wait")
    wait_seconds = _whole("wait", query.get("wait", "0"), 0, WAIT_SECONDS_MAX)
    reading = feed.read(
        partner.name,
        tenant=partner.tenant,
        since=query.get("since") or None,
        limit=_whole("limit", query.get("limit", "100"), 1, PAGE_MAX),
        wait_seconds=wait_seconds,
    )
    return json_answer(200, await (incoming.unless_gone(reading) if wait_seconds else reading))


def _whole(name: str, text: str, least: int, most: int) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 6 or not least <= int(text) <= most:
        raise MalformedRequest(f"{name} must be a whole number from {least} to {most}")
    return int(text)


async def acknowledge(
    feed: Feed, large: LargeBodies, partner: Partner, incoming: ServiceRequest
) -> ServiceResponse:
    """Serves `POST …/dispatch/ack {"cursor": …}`."""
    body, _ = await read_object(large, incoming)
    cursor = body.get("cursor")
    if not isinstance(cursor, str) or set(body) != {"cursor"}:
        raise MalformedRequest('the body must be {"cursor": "…"}')
    return json_answer(200, await feed.ack(partner.name, cursor, tenant=partner.tenant))


async def publish(
    feed: Feed, large: LargeBodies, partner: Partner, incoming: ServiceRequest
) -> ServiceResponse:
    """Serves `POST /v1/events {"id", "key", "data", "type"?}`."""
    body, beside = await read_object(large, incoming)
    if body.keys() - {"type"} != {"id", "key", "data"}:
        raise MalformedRequest('the body must be {"id": "…", "key": "…", "data": …} with or without "type"')
    if not isinstance(body.get("type", ""), str):
        raise MalformedRequest("type must be text")
    check_can_be_sent(body["id"], body["key"])
    context = typed(context_of(incoming.headers.only), body.get("type"))
    given = (partner.tenant, body["id"], body["key"], body["data"], context)
    item = await beside.in_turn(partner.tenant, feed.item, *given) if beside else feed.item(*given)
    done = await feed.publish_item(item)
    told = {"id": done.event_id, "key": done.key, "seq": done.seq, "replay": done.replay}
    return json_answer(200, told)  # not in the log: an id is whatever the publisher chose


async def find_event(feed: Feed, partner: Partner, incoming: ServiceRequest) -> ServiceResponse:
    """Serves `GET /v1/events/{id}`: the seq of an event of one's own tenant; any other is not there."""
    if incoming.method != "GET":
        raise method_not_allowed("GET")
    event_id = incoming.path.removeprefix("/v1/events/")
    seq = await feed.find(event_id, tenant=partner.tenant)
    if seq is None:
        raise RequestDenied(Problem(ProblemKind.NOT_FOUND, "no event has this id"))
    return json_answer(200, {"id": event_id, "seq": seq})


async def read_object(
    large: LargeBodies, incoming: ServiceRequest
) -> tuple[dict[str, Any], LargeBodies | None]:
    """Reads a body that is a JSON object, and tells where the rest of the work on it belongs."""
    body = await incoming.body()
    incoming.check_media_type()
    beside = large if large.has(body) else None
    found = large.read(body) if beside is None else await large.in_turn(incoming.tenant, large.read, body)
    if not isinstance(found, dict):
        raise MalformedRequest("the body must be a JSON object")
    return found, beside
