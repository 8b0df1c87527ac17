"""The feed: who reads it, how far they have come, and how long the oldest unread event waits."""

from __future__ import annotations

from oncegate.dashboard.request_context import PageResponse, RequestContext, Tools
from oncegate.store import Session


def feed_page(tools: Tools, session: Session, visit: RequestContext) -> PageResponse:
    """All readers, those that are furthest behind first."""
    readers = sorted(session.reader_positions(visit.tenant), key=lambda reader: -reader.behind)
    return PageResponse("feed.html", {"title": "Feed", "readers": readers})
