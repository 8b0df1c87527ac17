"""The map of the page: which addresses show what, which are in the navigation, and for whom."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from oncegate.dashboard import (
    deciding,
    journal_page,
    lanes_page,
    replays_page,
    resources_page,
    rollback_page,
    surface_form,
)
from oncegate.dashboard import doubled_page as doubled
from oncegate.dashboard import limits_page as limits
from oncegate.dashboard.audit_page import audit_page, keep_uploaded
from oncegate.dashboard.dead_letters_page import dead_letters_page
from oncegate.dashboard.doubled_page import doubled_page
from oncegate.dashboard.entries_page import entries_page
from oncegate.dashboard.entry_page import entry_page
from oncegate.dashboard.feed_page import feed_page
from oncegate.dashboard.limits_page import limits_page
from oncegate.dashboard.now_page import now_page
from oncegate.dashboard.request_context import Act, NotHere, PageResponse, RequestContext, Tools, View
from oncegate.dashboard.surfaces_page import surface_page, surfaces_page
from oncegate.dashboard.trace_page import trace_page
from oncegate.dashboard.waiting_page import waiting_page
from oncegate.store import Facet, Session, require
from oncegate.store.facets import HasCapabilities

NAVIGATION: Final = (
    ("/", "Now", True),
    ("/waiting", "Needs you", False),
    ("/entries", "Entries", False),
    ("/lanes", "Lanes", False),
    ("/feed", "Feed", False),
    ("/surfaces", "Surfaces", True),
    ("/journal", "Journal", True),
    ("/audit", "Code audit", True),
)
# Pages that read the ledger: none may read a whole table of it (tests/dashboard/test_plans.py).
HOT_PAGES: Final[Mapping[str, View]] = {
    "/": now_page,
    "/waiting": waiting_page,
    "/doubled": doubled_page,
    "/resources": resources_page.resources_page,
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
    "/journal": journal_page.journal_page,
    "/journal/export": journal_page.export_journal,
    "/snapshots": rollback_page.snapshots_page,
    "/rollback/{plan}": rollback_page.plan_page,
    "/audit": audit_page,
}
# What changes something and needs nothing of the page's own memory. A longer path stands first.
ACTS: Final[Mapping[str, Act]] = {
    "/entries/{entry}/reveal": deciding.reveal,
    "/entries/{entry}/{verb}": deciding.decide,
    "/duplicates/{entry}/{verb}": doubled.decide,
    "/resources/{finding}/{verb}": resources_page.decide,
    "/limits/set": limits.set_limits,
    "/audit/keep": keep_uploaded,
    "/surface/decide": surface_form.decide_surface,
    "/lanes/steer/{verb}": lanes_page.steer,
    "/lanes/replay": lanes_page.replay,
    "/lanes/order/{verb}": lanes_page.order,
    "/replays/{replay}/cancel": replays_page.cancel_replay,
    **journal_page.ACTS,
}
# Pages that need less than every facet of the ledger.
NEED_LESS: Final = {
    "/waiting": Facet.OPEN_ENTRIES,
    "/entries": Facet.OPEN_ENTRIES,
    "/entries/{entry}": Facet.OPEN_ENTRIES,
}
# Where in the navigation a page belongs that is not there itself.
SECTIONS: Final = {
    "/doubled": "/waiting",
    "/resources": "/waiting",
    "/entries": "/entries",
    "/trace": "/entries",
    "/surface": "/surfaces",
    "/limits": "/surfaces",
    "/lane": "/lanes",
    "/replays": "/lanes",
    "/dead-letters": "/lanes",
    "/snapshots": "/journal",
    "/rollback": "/journal",
}
# Pages about the whole ledger: not for operators who see one tenant only.
WHOLE_LEDGER: Final = frozenset(
    {"/surface", "/limits", "/doubled", "/resources", "/snapshots", "/journal/export"}.union(
        path for path, _, is_whole in NAVIGATION if is_whole
    )
)


def pages_of(store: HasCapabilities) -> dict[str, View]:
    """The pages of a ledger; one that its facets do not allow says so, and where it is."""
    whole = next((facet for facet in Facet if facet not in store.capabilities.facets), None)
    if whole is None:
        return dict(HOT_PAGES)
    without = partial(_not_in_this_ledger, store, whole)
    return {
        "/": _waiting_first,
        **{path: HOT_PAGES[path] if path in NEED_LESS else without for path in HOT_PAGES if path != "/"},
    }


def _waiting_first(tools: Tools, session: Session, visit: RequestContext) -> PageResponse:
    return PageResponse(go_to="/waiting")


def _not_in_this_ledger(
    store: HasCapabilities, facet: Facet, tools: Tools, session: Session, visit: RequestContext
) -> PageResponse:
    require(store, facet, "pages such as this one")
    raise AssertionError("the ledger has every facet")


def checked(visit: RequestContext) -> RequestContext:
    """A request for something that can exist for its visitor; raises NotHere for others."""
    if any("\0" in text for given in (visit.query, visit.form, visit.parts) for text in given.values()):
        raise NotHere("there is no such page")  # PostgreSQL holds no such text, so nothing is called so
    if visit.tenant is not None and visit.path in WHOLE_LEDGER:
        raise NotHere("there is no such page")
    return visit


def section_of(path: str) -> str | None:
    """The page in the navigation that a path belongs to, if any."""
    return SECTIONS.get("/" + path.split("/")[1])
