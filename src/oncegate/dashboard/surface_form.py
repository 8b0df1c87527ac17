"""Decisions about a surface on the page: its mode and fields to ignore, against the version seen."""

from __future__ import annotations

from urllib.parse import urlencode

from oncegate.dashboard.operators import Role
from oncegate.dashboard.request_context import NotHere, PageResponse, RequestContext, Tools, need
from oncegate.dashboard.surfaces_page import surface_values
from oncegate.errors import ConfigError, UsageError
from oncegate.model.decisions import check_reason
from oncegate.model.surface_decisions import SurfaceDecisions, ignoring, read_mode
from oncegate.review.surface_decisions import DecidedView, decide, decided_about, switched_to


def decide_surface(tools: Tools, visit: RequestContext) -> PageResponse:
    """Makes a decision, or shows the page again with why nothing was changed."""
    if visit.tenant is not None:
        raise NotHere("there is no such action")
    name = visit.form.get("name", "")
    need(tools, visit, Role.APPROVER, f"decide about the surface {name[:80]}")
    with tools.look() as session:
        values = surface_values(tools, session, name)
        seen = decided_about(session, name)
    try:
        version = visit.form.get("version", "")
        if version != str(seen.version):
            raise UsageError("another decision about this surface was made since the page was loaded")
        made, what = _made(tools, visit, seen)
        actor, reason = visit.visitor.name, visit.form.get("reason", "")
        decide(tools.commits, tools.clock, seen, made, what=what, actor=actor, reason=reason)
    except (UsageError, ConfigError) as refused:
        return PageResponse("surface.html", {**values, "refusal": f"{refused}. Nothing was changed."}, 409)
    return PageResponse(go_to="/surface?" + urlencode({"name": name, "done": "1"}))


def _made(tools: Tools, visit: RequestContext, seen: DecidedView) -> tuple[SurfaceDecisions, str]:
    reason = check_reason(visit.form.get("reason", ""))
    if visit.form.get("do") == "ignore":
        path = visit.form.get("path", "").strip()
        return ignoring(seen.decided, path), f"ignores {path}"
    mode = read_mode(visit.form.get("mode", ""))
    made = switched_to(seen.decided, mode, visit.visitor.name, reason, tools.clock.wall_ms())
    return made, f"switched to {mode.value}"
