"""Replays: which are under way, how far each has come, how it ended; and an end to one.

A replay of many keys belongs to no tenant: those who see one tenant only see replays of its own lanes, and
can cancel no others.
"""

from __future__ import annotations

from typing import Any, Final

from oncegate.dashboard.commands import cancel_replay_command
from oncegate.dashboard.operators import Role
from oncegate.dashboard.rendering import counted
from oncegate.dashboard.request_context import NotHere, PageResponse, RequestContext, Tools, need
from oncegate.dashboard.waiting_page import Button
from oncegate.errors import UsageError
from oncegate.sender.operator_actions import LaneDecision
from oncegate.store import ReplayFilter, ReplayOrder, ReplayState, Session

PAGE_REPLAYS: Final = 50
SHOWN_BESIDE_LANES: Final = 5
_NAME_MAX: Final = 16
_NONCE_MAX: Final = 2**63 - 1


def replays_page(tools: Tools, session: Session, visit: RequestContext) -> PageResponse:
    """All replays, or those under way; of one destination if asked for; the latest first."""
    only = "running" if visit.query.get("state") == "running" else "all"
    destination = visit.query.get("destination") or None
    wanted = ReplayFilter(destination, visit.tenant, only_running=only == "running")
    found = session.replay_orders(wanted, visit.cursor("before"), PAGE_REPLAYS + 1)
    values: dict[str, Any] = {
        "title": "Replays",
        "replays": found[:PAGE_REPLAYS],
        "next_before": found[PAGE_REPLAYS - 1].number if len(found) > PAGE_REPLAYS else None,
        "destination": destination,
        "only": only,
    }
    return PageResponse("replays.html", values)


def replay_page(tools: Tools, session: Session, visit: RequestContext) -> PageResponse:
    """One replay with its progress."""
    return PageResponse("replay.html", _values(_find(session, visit)))


def replays_beside(session: Session, visit: RequestContext, destination: str | None) -> dict[str, Any]:
    """Replays under way, for the page of lanes; one more than is shown says that there are others."""
    wanted = ReplayFilter(destination, visit.tenant, only_running=True)
    found = session.replay_orders(wanted, None, SHOWN_BESIDE_LANES + 1)
    return {"replays": found[:SHOWN_BESIDE_LANES], "more_replays": len(found) > SHOWN_BESIDE_LANES}


def replays_of_lane(session: Session, visit: RequestContext, lane_id: int) -> dict[str, Any]:
    """A lane's latest replays, and the one of many lanes that it is in."""
    wanted = ReplayFilter(tenant=visit.tenant, lane_id=lane_id)
    return {"replays": session.replay_orders(wanted, None, SHOWN_BESIDE_LANES)}


def cancel_replay(tools: Tools, visit: RequestContext) -> PageResponse:
    """Takes back what a replay has not sent yet; only the first who says so does."""
    with tools.look() as session:
        order = _find(session, visit)
    need(tools, visit, Role.OPERATOR, f"cancel replay {order.name}")
    try:
        word = LaneDecision(visit.visitor.name, visit.form.get("reason", ""))
        taken_back = tools.lanes.cancel_replay(order.nonce, word)
    except UsageError as refused:
        return _refused(tools, visit, str(refused))
    if not taken_back:
        return _refused(tools, visit, None)
    return PageResponse(go_to=f"/replays/{order.name}")


def _find(session: Session, visit: RequestContext) -> ReplayOrder:
    """The replay in the path; another tenant's is not there, as an unknown one is not."""
    name = visit.parts.get("replay", "").lower()
    is_name = 0 < len(name) <= _NAME_MAX and set(name) <= set("0123456789abcdef")
    if not is_name or int(name, 16) > _NONCE_MAX:
        raise NotHere("there is no such replay")
    found = session.replay_orders(ReplayFilter(tenant=visit.tenant, nonce=int(name, 16)), None, 1)
    if not found:
        raise NotHere("there is no such replay")
    return found[0]


def _values(order: ReplayOrder) -> dict[str, Any]:
    return {
        "title": f"Replay {order.name}",
        "one": order,
        "is_running": order.state is ReplayState.RUNNING,
        "button": Button("cancel", _consequence(order), cancel_replay_command(order.name), True),
    }


def _consequence(order: ReplayOrder) -> str:
    left = counted(order.left, "delivery", "deliveries")
    left = left if order.is_left_counted else f"more than {order.left - 1} deliveries"
    whose = "its key goes" if order.lanes == 1 else "the keys go"
    return (
        f"what has not gone yet is taken back, {left} by now; what is in flight ends, what has gone stays"
        f" gone, and {whose} on with what is new"
    )


def _refused(tools: Tools, visit: RequestContext, message: str | None) -> PageResponse:
    """The replay as it stands now, with why nothing was changed."""
    with tools.look() as session:
        order = _find(session, visit)
    return PageResponse(
        "replay.html", {**_values(order), "refusal": message or _too_late(order)}, status=409
    )


def _too_late(order: ReplayOrder) -> str:
    if order.state is ReplayState.CANCELLED:
        return f"{order.cancelled_by} cancelled it already: {order.cancelled_why}. Nothing was changed"
    if order.state is ReplayState.ENDED:
        return "its last delivery has gone: nothing is left to take back. Nothing was changed"
    return "what is left of it is in flight and ends by itself. Nothing was changed"
