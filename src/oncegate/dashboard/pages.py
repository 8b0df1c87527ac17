"""The map of the page: which addresses show what, which are in the navigation, and for whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncegate.dashboard import lanes_page, replays_page
from oncegate.dashboard.dead_letters_page import dead_letters_page
from oncegate.dashboard.doubled_page import doubled_page
from oncegate.dashboard.entries_page import entries_page
from oncegate.dashboard.entry_page import entry_page
from oncegate.dashboard.feed_page import feed_page
from oncegate.dashboard.journal_page import journal_page
from oncegate.dashboard.limits_page import limits_page
from oncegate.dashboard.now_page import now_page
from oncegate.dashboard.request_context import View
from oncegate.dashboard.surfaces_page import surface_page, surfaces_page
from oncegate.dashboard.trace_page import trace_page
from oncegate.dashboard.waiting_page import waiting_page

NAVIGATION: Final = (
    ("/", "Now", True),
    ("/waiting", "Needs you", False),
    ("/entries", "Entries", False),
    ("/lanes", "Lanes", False),
    ("/feed", "Feed", False),
    ("/surfaces", "Surfaces", True),
    ("/journal", "Journal", True),
)
# Pages that read the ledger: none may read a whole table of it (tests/dashboard/test_plans.py).
HOT_PAGES: Final[Mapping[str, View]] = {
    "/": now_page,
    "/waiting": waiting_page,
    "/doubled": doubled_page,
    "/entries": entries_page,
    "/entries/{entry}": entry_page,
    "/lanes": lanes_page.lanes_page,
    "/lane": lanes_page.lane_page,
    "/dead-letters": dead_letters_page,
    "/replays": replays_page.replays_page,
    "/replays/{replay}": replays_page.replay_page,
    "/trace": trace_page,
    "/feed": feed_page,
    "/surfaces": surfaces_page,
    "/surface": surface_page,
    "/limits": limits_page,
    "/journal": journal_page,
}
# Where in the navigation a page belongs that is not there itself.
SECTIONS: Final = {
    "/doubled": "/waiting",
    "/entries": "/entries",
    "/trace": "/entries",
    "/surface": "/surfaces",
    "/limits": "/surfaces",
    "/lane": "/lanes",
    "/replays": "/lanes",
    "/dead-letters": "/lanes",
}
# Pages about the whole ledger: not for operators who see one tenant only.
WHOLE_LEDGER: Final = frozenset(
    {"/surface", "/limits", "/doubled", *(path for path, _, is_whole in NAVIGATION if is_whole)}
)


def section_of(path: str) -> str | None:
    """The page in the navigation that a path belongs to, if any."""
    return SECTIONS.get("/" + path.split("/")[1])
