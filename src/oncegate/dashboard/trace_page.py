"""A journey by whatever names it: an event's id, a key, a correlation id. The same as `oncegate trace`."""

from __future__ import annotations

from typing import Final

from oncegate.dashboard.commands import trace_command
from oncegate.dashboard.request_context import PageResponse, RequestContext, Tools
from oncegate.sender.entry_search import LOOKED_BACK, RESOURCES_LOOKED_BACK
from oncegate.sender.trace import Hop, journey
from oncegate.store import Session

NAME_MAX: Final = 300


def trace_page(tools: Tools, session: Session, visit: RequestContext) -> PageResponse:
    """What was found, in order of time; for those who see one tenant, its part of it."""
    name = visit.query.get("id", "").strip()[:NAME_MAX]
    found = journey(session, name, visit.tenant) if name else None
    values = {
        "title": "Trace",
        "name": name,
        "hops": () if found is None else seen_by(visit, found.hops),
        "is_cut": found is not None and found.is_cut,
        "command": trace_command(name),
        "labels_looked_at": LOOKED_BACK,
        "resources_looked_at": RESOURCES_LOOKED_BACK,
    }
    return PageResponse("trace.html", values)


def seen_by(visit: RequestContext, hops: tuple[Hop, ...]) -> tuple[Hop, ...]:
    """The hops that a visitor may see."""
    return tuple(hop for hop in hops if visit.tenant in (None, hop.tenant))
