"""Lanes: destinations with their lag, blocked keys, one lane with its events; and orders to them."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

from msgspec.structs import replace

from oncegate.dashboard.commands import heads_command, replay_command, steer_command
from oncegate.dashboard.operators import Role
from oncegate.dashboard.reading import read_seq
from oncegate.dashboard.replays_page import replays_beside, replays_of_lane
from oncegate.dashboard.visits import Answer, NotHere, Tools, Visit, need, need_destination
from oncegate.dashboard.waiting_page import lane_card
from oncegate.errors import ConfigError, UsageError
from oncegate.lanes.circuit_board import read_circuits
from oncegate.sender.desk import Verb, Word, new_nonce
from oncegate.store import DestinationState, HeadAnswer, LaneFilter, LaneState, LaneView, Session

PAGE_LANES: Final = 50
EVENTS_BEFORE: Final = 5
EVENTS_SHOWN: Final = 40
STEERING: Final = {"pause": DestinationState.PAUSED, "resume": DestinationState.ACTIVE}


def lanes_page(tools: Tools, session: Session, visit: Visit) -> Answer:
    """Destinations, then lanes that are not idle: all, or those of one destination or state."""
    destination = visit.query.get("destination") or None
    only = visit.query.get("state", "blocked")
    states = tuple(state for state in LaneState if state.label == only)
    wanted = LaneFilter(destination, visit.tenant, visit.query.get("key") or None, states)
    found = session.lanes(wanted, visit.cursor("after") or 0, PAGE_LANES + 1)
    destinations = session.destinations() if visit.tenant is None else []
    values: dict[str, Any] = {
        "title": "Lanes",
        "destinations": destinations,
        "circuits": read_circuits(session),
        "cards": [lane_card(lane) for lane in found[:PAGE_LANES]],
        "next_after": found[PAGE_LANES - 1].lane_id if len(found) > PAGE_LANES else None,
        "destination": destination,
        "is_known": destination in {one.name for one in destinations},
        "key": visit.query.get("key", ""),
        "only": only if states else "all",
        "states": [state.label for state in LaneState if state is not LaneState.IDLE],
        "steer_command": steer_command,
        "heads_command": heads_command,
        "verbs": Verb,
        **replays_beside(session, visit, destination),
    }
    return Answer("lanes.html", values)


def lane_page(tools: Tools, session: Session, visit: Visit) -> Answer:
    """One lane with its events around the head."""
    return Answer("lane.html", _lane_values(session, _find(session, visit.query, visit), visit))


def _find(session: Session, named: Any, visit: Visit) -> LaneView:
    tenant = named.get("tenant", "")
    lane = session.find_lane(named.get("destination", ""), tenant, named.get("key", ""))
    if lane is None or visit.tenant not in (None, lane.tenant):
        raise NotHere("there is no such lane")
    return lane


def _lane_values(session: Session, lane: LaneView, visit: Visit) -> dict[str, Any]:
    start = visit.cursor("from") or max(1, lane.head_seq - EVENTS_BEFORE)
    events = session.deliveries(lane.lane_id, start, EVENTS_SHOWN)
    return {
        "title": f"Lane {lane.key}",
        "lane": lane,
        "events": events,
        "card": lane_card(lane),
        "start": start,
        "shown": EVENTS_SHOWN,
        "replay_command": replay_command(lane),
        **replays_of_lane(session, visit, lane.lane_id),
        "nonce": new_nonce(),  # of the replay that this page may ask for: once, however often it is sent
    }


def lane_url(lane: LaneView) -> str:
    """Where a lane is shown: by its names, which stay."""
    return "/lane?" + urlencode({"destination": lane.destination, "tenant": lane.tenant, "key": lane.key})


def order(tools: Tools, visit: Visit) -> Answer:
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
    return Answer(go_to="/waiting" if visit.form.get("back") == "waiting" else lane_url(lane))


def replay(tools: Tools, visit: Visit) -> Answer:
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
    return Answer(go_to=lane_url(lane))


def _nonce(visit: Visit) -> int:
    text = visit.form.get("nonce", "")
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and 0 < int(text) < 2**63):
        raise NotHere("the form is not complete; load the page again")
    return int(text)


def steer(tools: Tools, visit: Visit) -> Answer:
    """Pauses or resumes a destination; for those who see all tenants."""
    verb, name = visit.parts.get("verb", ""), visit.form.get("destination", "")
    if verb not in STEERING:
        raise NotHere("there is no such action")
    need_destination(tools, visit, name, f"{verb} {name}")
    try:
        tools.lanes.steer(name, STEERING[verb], _word(visit))
    except (UsageError, ConfigError) as refused:
        return Answer("message.html", {"title": "Not done", "message": str(refused)}, status=409)
    return Answer(go_to="/lanes")


def _verb(text: str) -> Verb:
    try:
        return Verb(text)
    except ValueError:
        raise NotHere("there is no such action") from None


def _word(visit: Visit) -> Word:
    return Word(visit.visitor.name, visit.form.get("reason", ""))


def _refused(tools: Tools, visit: Visit, message: str) -> Answer:
    with tools.look() as session:
        lane = _find(session, visit.form, visit)
        values = _lane_values(session, lane, replace_query(visit))
    return Answer("lane.html", {**values, "refusal": message}, status=409)


def replace_query(visit: Visit) -> Visit:
    """The same visit without a query, for a page shown in answer to a form."""
    return Visit(visit.path, visit.root, visit.parts, {}, visit.form, visit.visitor)
