"""The feed: who reads it, how far they have come, and how long the oldest unread event waits."""

from __future__ import annotations

from oncegate.dashboard.visits import Answer, Tools, Visit
from oncegate.store import Session


def feed_page(tools: Tools, session: Session, visit: Visit) -> Answer:
    """All readers, those that are furthest behind first."""
    readers = sorted(session.reader_positions(visit.tenant), key=lambda reader: -reader.behind)
    return Answer("feed.html", {"title": "Feed", "readers": readers})
