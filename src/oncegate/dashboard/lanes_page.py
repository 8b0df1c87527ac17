"""Lanes: destinations with their lag, blocked keys, one lane with its events; and orders to them."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

from msgspec.structs import replace

from oncegate.dashboard.commands import heads_command, replay_command, steer_command
from oncegate.dashboard.fields import MASKED
from oncegate.dashboard.operators import Role
from oncegate.dashboard.reading import read_seq
from oncegate.dashboard.replays_page import replays_beside, replays_of_lane
from oncegate.dashboard.request_context import (
    ROW_NUMBER_MAX,
    NotHere,
    PageResponse,
    RequestContext,
    Tools,
    need,
    need_destination,
)
from oncegate.dashboard.waiting_page import lane_card
from oncegate.errors import ConfigError, UsageError
from oncegate.lanes.circuit_status import DOWNSTREAM, read_circuits
from oncegate.lanes.delivery_stats import delivery_stats
from oncegate.sender.attempts import AttemptView, last_attempts
from oncegate.sender.operator_actions import LaneDecision, LaneVerb, new_nonce
from oncegate.store import DestinationState, HeadAnswer, LaneFilter, LaneState, LaneView, Session

PAGE_LANES: Final = 50
LANES_LOOKED_AT: Final = 100_000  # numbers in one search that takes idle lanes in
EVENTS_BEFORE: Final = 5
EVENTS_SHOWN: Final = 40
STEERING: Final = {"pause": DestinationState.PAUSED, "resume": DestinationState.ACTIVE}


def lanes_page(tools: Tools, session: Session, visit: RequestContext) -> PageResponse:
    """Destinations, then lanes: of a destination, in a state, or with a text in their keys."""
    destination = visit.query.get("destination") or None
    key = visit.query.get("key", "").strip()
    only = visit.query.get("state", "all" if key else "blocked")
    states = tuple(state for state in LaneState if state.label == only)
    wanted = LaneFilter(destination, visit.tenant, None, states, key or None)
    found, next_after, is_further = _lanes(session, wanted, visit.cursor("after") or 0)
    destinations = session.destinations() if visit.tenant is None else []
    circuits = read_circuits(session)
    values: dict[str, Any] = {
        "title": "Lanes",
        "destinations": destinations,
        "circuits": circuits,
        "stats": delivery_stats(session, tools.clock.wall_ms()) if destinations else {},
        "downstreams": [
            (name.removeprefix(DOWNSTREAM), view)
            for name, view in sorted(circuits.items())
            if name.startswith(DOWNSTREAM) and visit.tenant is None
        ],
        "cards": [lane_card(lane) for lane in found],
        "next_after": next_after,
        "is_further": is_further,
        "destination": destination,
        "is_known": destination in {one.name for one in destinations},
        "key": key,
        "only": only if states else "all",
        "states": [state.label for state in LaneState],
        "steer_command": steer_command,
        "heads_command": heads_command,
        "verbs": LaneVerb,
        **replays_beside(session, visit, destination),
    }
    return PageResponse("lanes.html", values)


def _lanes(session: Session, wanted: LaneFilter, after: int) -> tuple[list[LaneView], int | None, bool]:
    """One page of lanes, where the next begins, and whether the search stopped before it found enough.

    A search that takes idle lanes in looks at so many numbers, then offers to go on.
    """
    if wanted.key_contains is not None or wanted.states == (LaneState.IDLE,):
        wanted = replace(wanted, idle_upto=after + LANES_LOOKED_AT)
    found = session.lanes(wanted, after, PAGE_LANES + 1)
    if len(found) > PAGE_LANES:
        return found[:PAGE_LANES], found[PAGE_LANES - 1].lane_id, False
    upto = wanted.idle_upto
    is_more = upto is not None and bool(session.lanes(LaneFilter(idle_upto=ROW_NUMBER_MAX), upto, 1))
    return found, upto if is_more else None, is_more


def lane_page(tools: Tools, session: Session, visit: RequestContext) -> PageResponse:
    """One lane with its events around the head."""
    return PageResponse("lane.html", _lane_values(session, _find(session, visit.query, visit), visit))


def _find(session: Session, named: Any, visit: RequestContext) -> LaneView:
    tenant = named.get("tenant", "")
    lane = session.find_lane(named.get("destination", ""), tenant, named.get("key", ""))
    if lane is None or visit.tenant not in (None, lane.tenant):
        raise NotHere("there is no such lane")
    return lane


def _lane_values(session: Session, lane: LaneView, visit: RequestContext) -> dict[str, Any]:
    start = visit.cursor("from") or max(1, lane.head_seq - EVENTS_BEFORE)
    events = session.deliveries(lane.lane_id, start, EVENTS_SHOWN)
    seq = visit.cursor("seq") or min(lane.due_seq, lane.last_seq)
    return {
        "title": f"Lane {lane.key}",
        "lane": lane,
        "events": events,
        "attempts_seq": seq,
        "attempts": _attempts(session, lane, seq, visit),
        "card": lane_card(lane),
        "start": start,
        "shown": EVENTS_SHOWN,
        "replay_command": replay_command(lane),
        **replays_of_lane(session, visit, lane.lane_id),
        "nonce": new_nonce(),  # of the replay that this page may ask for: once, however often it is sent
    }


def _attempts(session: Session, lane: LaneView, seq: int, visit: RequestContext) -> list[AttemptView]:
    """The last attempts of one event; what receivers wrote is for those who may see content."""
    found = last_attempts(session, lane.lane_id, seq)
    if visit.visitor.may(Role.OPERATOR):
        return found
    return [replace(one, answer=MASKED if one.answer and one.status else one.answer) for one in found]


def lane_url(lane: LaneView) -> str:
    """Where a lane is shown: by its names, which stay."""
    return "/lane?" + urlencode({"destination": lane.destination, "tenant": lane.tenant, "key": lane.key})


def order(tools: Tools, visit: RequestContext) -> PageResponse:
    """Retries or skips a lane's head, which must be the seq that the person saw."""
    verb = _verb(visit.parts.get("verb", ""))
    with tools.look() as session:
        lane = _find(session, visit.form, visit)
    need(tools, visit, Role.OPERATOR, f"{verb.value} lane {lane.key}")
    seq = visit.form.get("seq", "")
    if not (seq.isascii() and seq.isdigit() and len(seq) <= 18):
        raise NotHere("the form is not complete; load the page again")
    try:
        answer = tools.lanes.order(verb, lane.lane_id, int(seq), _word(visit))
    except (UsageError, ConfigError) as refused:
        return _refused(tools, visit, str(refused))
    if answer is not HeadAnswer.DONE:
        return _refused(tools, visit, f"seq {seq} is {answer.value}; nothing was changed")
    return PageResponse(go_to="/waiting" if visit.form.get("back") == "waiting" else lane_url(lane))


def replay(tools: Tools, visit: RequestContext) -> PageResponse:
    """Sends past events of one lane once more, in order."""
    with tools.look() as session:
        lane = _find(session, visit.form, visit)
    need(tools, visit, Role.OPERATOR, f"replay lane {lane.key}")
    try:
        first, last = (read_seq(visit.form.get(name, "")) for name in ("from", "to"))
        wanted = tools.lanes.replay_wanted(lane.destination, _word(visit), _nonce(visit))
    except (UsageError, ConfigError) as refused:
        return _refused(tools, visit, str(refused))
    only_dead = visit.form.get("only_dead") == "yes"
    narrowed = replace(wanted, lane_id=lane.lane_id, seq_from=first, seq_to=last, only_dead=only_dead)
    done = tools.lanes.replay_once(narrowed)
    if done is not None and done.refused:
        return _refused(tools, visit, "the lane is in the middle of another replay; nothing was changed")
    if done is not None and not done.deliveries:
        what = "dead letter" if only_dead else "past event"
        return _refused(tools, visit, f"no {what} has a seq from {first} to {last}; nothing was changed")
    return PageResponse(go_to=lane_url(lane))


def _nonce(visit: RequestContext) -> int:
    text = visit.form.get("nonce", "")
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and 0 < int(text) < 2**63):
        raise NotHere("the form is not complete; load the page again")
    return int(text)


def steer(tools: Tools, visit: RequestContext) -> PageResponse:
    """Pauses or resumes a destination; for those who see all tenants."""
    verb, name = visit.parts.get("verb", ""), visit.form.get("destination", "")
    if verb not in STEERING:
        raise NotHere("there is no such action")
    need_destination(tools, visit, name, f"{verb} {name}")
    try:
        tools.lanes.steer(name, STEERING[verb], _word(visit))
    except (UsageError, ConfigError) as refused:
        return PageResponse("message.html", {"title": "Not done", "message": str(refused)}, status=409)
    return PageResponse(go_to="/lanes")


def _verb(text: str) -> LaneVerb:
    try:
        return LaneVerb(text)
    except ValueError:
        raise NotHere("there is no such action") from None


def _word(visit: RequestContext) -> LaneDecision:
    return LaneDecision(visit.visitor.name, visit.form.get("reason", ""))


def _refused(tools: Tools, visit: RequestContext, message: str) -> PageResponse:
    with tools.look() as session:
        lane = _find(session, visit.form, visit)
        values = _lane_values(session, lane, replace_query(visit))
    return PageResponse("lane.html", {**values, "refusal": message}, status=409)


def replace_query(visit: RequestContext) -> RequestContext:
    """The same visit without a query, for a page shown in answer to a form."""
    return RequestContext(visit.path, visit.root, visit.parts, {}, visit.form, visit.visitor)
