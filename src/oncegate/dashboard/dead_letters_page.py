"""Dead letters: what was given up, of all destinations or one; each leads to its lane, to act on it."""

from __future__ import annotations

from typing import Any, Final

from oncegate.dashboard.request_context import PageResponse, RequestContext, Tools
from oncegate.store import LaneFilter, Session

PAGE_LETTERS: Final = 50


def dead_letters_page(tools: Tools, session: Session, visit: RequestContext) -> PageResponse:
    """One page of them, in the order of lanes and seqs."""
    destination = visit.query.get("destination") or None
    after = (visit.cursor("lane") or 0, visit.cursor("seq") or 0)
    found = session.dead_letters(LaneFilter(destination, visit.tenant), after, PAGE_LETTERS + 1)
    values: dict[str, Any] = {
        "title": "Dead letters",
        "letters": found[:PAGE_LETTERS],
        "has_more": len(found) > PAGE_LETTERS,
        "destination": destination,
    }
    return PageResponse("dead_letters.html", values)
