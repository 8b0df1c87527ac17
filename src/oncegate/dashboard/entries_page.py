"""Entries: everything the gate has seen, by filter, newest first. The address is the filter."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from oncegate.dashboard.filters import EXAMPLES, Filter, read_filter
from oncegate.dashboard.operators import Role
from oncegate.dashboard.request_context import PageResponse, RequestContext, Tools
from oncegate.model.states import State
from oncegate.sender.entry_search import RESOURCES_LOOKED_BACK, labelled
from oncegate.sender.trace import Hop, HopKind, journey
from oncegate.store import Entry, EntryFilter, Facet, Session, offers

PAGE_ENTRIES: Final = 50
HOPS_SHOWN: Final = 50
# A search for something rare looks at so many numbers back, then offers to go on: no page scans a ledger.
SEARCH_NUMBERS: Final = 100_000


def entries_page(tools: Tools, session: Session, visit: RequestContext) -> PageResponse:
    """One page of entries, or the one entry that was asked for."""
    text = visit.query.get("q", "").strip()
    asked = read_filter(text, tools.clock.wall_ms())
    number = asked.entry_id if asked.entry_id is not None else _bare_number(text)
    if number is not None and _is_visible(session, number, visit):
        return PageResponse(go_to=f"/entries/{number}")
    found, next_before, looked_back = _search(session, asked, visit)
    is_first = visit.cursor("before") is None and offers(session, Facet.REVIEW)
    if asked.text and is_first:
        found = _with_exact(session, asked.text, visit, found)
    hops = _elsewhere(session, asked.text, visit) if asked.text and is_first else ()
    problem = asked.problem or (asked.suspect if not found and not hops else None)
    values = {
        "title": "Entries",
        "q": text,
        "problem": problem,
        "hops": hops,
        "entries": found,
        "next_before": next_before,
        "looked_back": looked_back,
        "looked_to": _reached(session, next_before) if looked_back else None,
        "resources_looked_at": RESOURCES_LOOKED_BACK,
        "text": asked.text,
        "examples": EXAMPLES,
        "states": State,
        "may_retry": _may_retry(asked, visit),
    }
    return PageResponse("entries.html", values, status=400 if problem else 200)


def _elsewhere(session: Session, text: str, visit: RequestContext) -> tuple[Hop, ...]:
    """What else a text names: a key, a resource, an emitted event, a lane, a correlation id."""
    hops = journey(session, text, visit.tenant, labels=False).hops
    listed = [hop for hop in hops if hop.kind is HopKind.ARRIVED and text in hop.key]
    return tuple(hop for hop in hops if hop not in listed)[:HOPS_SHOWN]


def _with_exact(session: Session, text: str, visit: RequestContext, found: list[Entry]) -> list[Entry]:
    """The entries of exactly this label in the whole ledger, then what the search found."""
    listed = {entry.entry_id for entry in found}
    exact = [one for one in labelled(session, text, visit.tenant) if one.entry_id not in listed]
    return [one for one in exact if visit.tenant in (None, one.tenant)] + found


def _may_retry(asked: Filter, visit: RequestContext) -> bool:
    """Whether the filter is of entries that failed, and the person may let them run again."""
    return asked.wanted.states == (State.FAILED,) and visit.visitor.may(Role.APPROVER)


def _reached(session: Session, next_before: int | None) -> Entry | None:
    """The oldest entry that a search has looked at."""
    found = session.entries(EntryFilter(), None if next_before is None else next_before + 1, 1)
    return found[0] if found else None


def _bare_number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 and int(text) else None


def _is_visible(session: Session, number: int, visit: RequestContext) -> bool:
    seen = session.detail(number)
    return seen is not None and visit.tenant in (None, seen.entry.tenant)


def _search(session: Session, asked: Filter, visit: RequestContext) -> tuple[list[Entry], int | None, bool]:
    """One page, where the next begins, and whether the search stopped before it found enough."""
    wanted = _allowed(asked, visit)
    if wanted is None:
        return [], None, False
    before = visit.cursor("before")
    is_all = asked.is_narrow or not offers(session, Facet.REVIEW)  # numbers say nothing of age there
    floor = None if is_all else _floor(session, before)
    bounded = wanted if floor is None else replace(wanted, above_id=floor)
    found = session.entries(bounded, before, PAGE_ENTRIES + 1)
    page = found[:PAGE_ENTRIES]
    if len(found) > PAGE_ENTRIES:
        return page, page[-1].entry_id, False
    return (page, floor + 1, True) if floor else (page, None, False)


def _allowed(asked: Filter, visit: RequestContext) -> EntryFilter | None:
    wanted = asked.wanted
    if asked.problem or asked.entry_id is not None:
        return None
    if visit.tenant is None:
        return wanted
    return replace(wanted, tenant=visit.tenant) if wanted.tenant in (None, visit.tenant) else None


def _floor(session: Session, before: int | None) -> int | None:
    """The number from which a search goes no further back; None where it reaches the beginning."""
    if before is None:
        newest = session.entries(EntryFilter(), None, 1)
        before = newest[0].entry_id + 1 if newest else 0
    return before - SEARCH_NUMBERS - 1 if before > SEARCH_NUMBERS + 1 else None
