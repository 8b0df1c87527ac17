"""Needs you: what only a person can move on, the oldest first, with what each button would do."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from oncegate.dashboard.causes import waiting_causes
from oncegate.dashboard.commands import head_command, ruling_command
from oncegate.dashboard.fields import Fields, declared, masked
from oncegate.dashboard.filters import Filter, read_filter
from oncegate.dashboard.request_context import PageResponse, RequestContext, Tools
from oncegate.model.decisions import Verb, has_owner
from oncegate.model.states import State
from oncegate.review.conflicts import Contest, contest_of, difference_remarks
from oncegate.review.decisions import doubts, sayable, verbs_of
from oncegate.review.doubles import SameChanges, twin_remarks, twin_that_ran
from oncegate.review.review_view import consequence, parked_by, remarks
from oncegate.sender.operator_actions import LaneVerb as HeadVerb
from oncegate.store import (
    Entry,
    EntryDetail,
    EntryFilter,
    Facet,
    LaneFilter,
    LaneState,
    LaneView,
    LogRecord,
    Session,
    StepRecord,
    offers,
)

WAITING: Final = (State.UNKNOWN, State.HELD, State.QUARANTINED)
PAGE_ENTRIES: Final = 11  # a card has its forms: about 2 KB each, and a page has 48
PAGE_LANES: Final = 6
LANES_LOOKED_AT: Final = 200
PAIRS_COUNTED: Final = 999
BADGE_MAX: Final = 100


class Button(Struct, frozen=True):
    """Something that can be done: its word, what will happen, and the command that does the same."""

    verb: str
    consequence: str
    command: str
    is_ending: bool = False
    steps: tuple[StepRecord, ...] = ()
    is_possible: bool = True
    doubles: str = ""
    title: str = ""


class Card(Struct, frozen=True):
    """One entry that waits, as a person needs to see it."""

    entry: Entry
    parked: LogRecord | None
    remarks: list[str]
    buttons: list[Button]
    same_key: tuple[Entry, ...] = ()
    fields: Fields = []


def card_of(session: Session, seen: EntryDetail, fields: Fields, same: SameChanges | None = None) -> Card:
    """An entry with why it is here, what can be done, and which other contents came under its key."""
    contest, same = contest_of(session, seen), same or SameChanges.read(session)
    number = seen.entry.entry_id
    ran = twin_that_ran(session, number, same)
    doubles = (
        "" if ran is None else f"the same change runs twice: entry {ran.entry_id} is {ran.state.label}"
    )
    buttons = [_button(verb, seen, contest, doubles if verb.runs else "") for verb in verbs_of(seen)]
    said = [
        *twin_remarks(session, number, same),
        *remarks(seen, contest),
        *difference_remarks(session, seen, contest),
    ]
    return Card(seen.entry, parked_by(seen), said, buttons, contest.entries, fields)


def _button(verb: Verb, seen: EntryDetail, contest: Contest, doubles: str) -> Button:
    command = ruling_command(verb, seen.entry, doubts(seen), doubles=bool(doubles))
    steps = sayable(seen) if verb.runs else ()
    is_possible = not verb.runs or (seen.body is not None and has_owner(seen.entry.reason))
    what, title = consequence(verb, seen, contest), ""
    if verb in (Verb.APPROVE, Verb.RETRY) and steps:
        title = "Record what happened"
        what = (
            "find out at the downstream what happened and say so below: what happened is skipped and the"
            " rest is finished, what did not happen is called again"
        )
    return Button(verb.value, what, command, not verb.runs, steps, is_possible, doubles, title)


class LaneCard(Struct, frozen=True):
    """A blocked lane with what can be done about its head."""

    lane: LaneView
    buttons: list[Button]


def lane_card(lane: LaneView) -> LaneCard:
    """A lane with its two verbs."""
    buttons = [
        Button(verb.value, verb.means, head_command(verb, lane), verb is HeadVerb.SKIP) for verb in HeadVerb
    ]
    return LaneCard(lane, buttons)


def waiting_page(tools: Tools, session: Session, visit: RequestContext) -> PageResponse:
    """All that waits for a person, on one page."""
    text = visit.query.get("q", "")
    now_ms = tools.clock.wall_ms()
    asked = read_filter(text, now_ms)
    if asked.entry_id is not None:
        return PageResponse(go_to=f"/entries/{asked.entry_id}")
    after = visit.cursor("after") or 0
    found = _entries(session, asked, visit, after)
    details = [session.detail(entry.entry_id) for entry in found[:PAGE_ENTRIES]]
    problem = asked.problem or (None if found else asked.suspect)
    same = SameChanges.read(session)
    values: dict[str, Any] = {
        "title": "Needs you",
        "q": text,
        "problem": problem,
        "cards": [
            card_of(session, seen, masked(declared(tools, seen), visit.visitor), same)
            for seen in details
            if seen is not None
        ],
        "next_after": found[PAGE_ENTRIES - 1].entry_id if len(found) > PAGE_ENTRIES else None,
        **_others(session, visit, is_shown=not text and not after),
        "is_first": not after,
        "causes": [] if visit.tenant is not None else waiting_causes(session, tools.memory, now_ms),
        "verbs": [verb for verb in Verb if verb is not Verb.RETRY],
        "done": _done(session, visit),
    }
    return PageResponse("waiting.html", values, status=400 if problem else 200)


def filter_for(
    asked: Filter, visit: RequestContext, among: tuple[State, ...] = WAITING
) -> EntryFilter | None:
    """The filter narrowed to some states and to whose it may be; None where nothing can fit."""
    wanted = asked.wanted
    states = tuple(state for state in wanted.states or among if state in among)
    if asked.problem or asked.entry_id is not None or not states:
        return None
    if visit.tenant not in (None, wanted.tenant or visit.tenant):
        return None
    tenant = wanted.tenant if visit.tenant is None else visit.tenant
    return replace(wanted, states=states, tenant=tenant)


def _entries(session: Session, asked: Filter, visit: RequestContext, after: int) -> list[Entry]:
    wanted = filter_for(asked, visit)
    return [] if wanted is None else session.oldest_entries(wanted, after, PAGE_ENTRIES + 1)


def _others(session: Session, visit: RequestContext, *, is_shown: bool) -> dict[str, Any]:
    """Blocked keys and how many pairs, for the first page; one more than is shown says there are others."""
    lanes = _blocked(session, visit) if is_shown and offers(session, Facet.LANES) else []
    is_whole = is_shown and visit.tenant is None and offers(session, Facet.REVIEW)
    pairs = session.open_pairs(0, PAIRS_COUNTED + 1) if is_whole else []
    seconds = session.second_counts() if is_whole else []
    return {
        "lanes": [lane_card(lane) for lane in lanes[:PAGE_LANES]],
        "more_lanes": len(lanes) > PAGE_LANES,
        "pairs": len(pairs[:PAIRS_COUNTED]),
        "more_pairs": len(pairs) > PAIRS_COUNTED,
        "ran": sum(one.count for one in session.doubled()) if is_whole else 0,
        "seconds": sum(one.findings for one in seconds),
    }


def _blocked(session: Session, visit: RequestContext) -> list[LaneView]:
    """The oldest first: of very many, of those whose keys were seen first."""
    wanted = LaneFilter(tenant=visit.tenant, states=(LaneState.BLOCKED,))
    found = session.lanes(wanted, 0, LANES_LOOKED_AT)
    return sorted(found, key=lambda lane: lane.oldest_created_at_ms or 0)


def _done(session: Session, visit: RequestContext) -> EntryDetail | None:
    """The entry that was decided a moment ago, as the ledger has it."""
    number = visit.cursor("done")
    seen = None if number is None else session.detail(number)
    if seen is None or visit.tenant not in (None, seen.entry.tenant):
        return None
    return seen


def badge(session: Session, tenant: str | None) -> str:
    """How many wait, for the navigation: entries, blocked keys, changes and resources that are doubled."""
    waiting = len(session.oldest_entries(EntryFilter(WAITING, tenant=tenant), 0, BADGE_MAX))
    total = waiting
    if offers(session, Facet.LANES):
        total += len(session.lanes(LaneFilter(tenant=tenant, states=(LaneState.BLOCKED,)), 0, BADGE_MAX))
    if tenant is None and offers(session, Facet.REVIEW):
        total += sum(one.count for one in session.doubled())
        total += sum(one.findings for one in session.second_counts())
    return "" if not total else f"{BADGE_MAX - 1}+" if total >= BADGE_MAX else str(total)
