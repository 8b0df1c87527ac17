"""Needs you: what nobody but a person can move on, the oldest first, with what each button would do."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from oncegate.dashboard.commands import dismiss_command, head_command, ruling_command
from oncegate.dashboard.filters import Filter, read_filter
from oncegate.dashboard.visits import Answer, Tools, Visit
from oncegate.model.rulings import Verb, has_owner, verbs_for
from oncegate.model.states import State
from oncegate.sender.desk import Verb as HeadVerb
from oncegate.store import (
    Duplicate,
    Entry,
    EntryDetail,
    EntryFilter,
    LaneFilter,
    LaneState,
    LaneView,
    LogRecord,
    Session,
    StepRecord,
)
from oncegate.upkeep.conflicts import Contest, contest_of
from oncegate.upkeep.duplicates import compensation_of
from oncegate.upkeep.rulings import doubts, sayable
from oncegate.upkeep.waiting import consequence, parked_by, remarks

WAITING: Final = (State.UNKNOWN, State.HELD, State.QUARANTINED)
PAGE_ENTRIES: Final = 20
PAGE_LANES: Final = 20
LANES_LOOKED_AT: Final = 200
PAGE_PAIRS: Final = 10
BADGE_MAX: Final = 100


class Button(Struct, frozen=True):
    """Something that can be done: its word, what will happen, and the command that does the same."""

    verb: str
    consequence: str
    command: str
    is_ending: bool
    steps: tuple[StepRecord, ...] = ()
    is_possible: bool = True


class Card(Struct, frozen=True):
    """One entry that waits, as a person needs to see it."""

    entry: Entry
    parked: LogRecord | None
    remarks: list[str]
    buttons: list[Button]
    same_key: tuple[Entry, ...] = ()


def card_of(session: Session, seen: EntryDetail) -> Card:
    """An entry with why it is here, what can be done, and which other contents came under its key."""
    contest = contest_of(session, seen)
    buttons = [_button(verb, seen, contest) for verb in _verbs(seen)]
    return Card(seen.entry, parked_by(seen), remarks(seen, contest), buttons, contest.entries)


def _verbs(seen: EntryDetail) -> tuple[Verb, ...]:
    return verbs_for(seen.entry.state)


def _button(verb: Verb, seen: EntryDetail, contest: Contest) -> Button:
    command = ruling_command(verb, seen.entry, doubts(seen))
    steps = sayable(seen) if verb.runs else ()
    is_possible = not verb.runs or (seen.body is not None and has_owner(seen.entry.reason))
    what = consequence(verb, seen, contest)
    if verb is Verb.APPROVE and steps:
        what = (
            "find out at the downstream what happened and say so below: what happened is skipped and the"
            " rest is finished, what did not happen is called again"
        )
    return Button(verb.value, what, command, not verb.runs, steps, is_possible)


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


class PairCard(Struct, frozen=True):
    """Two events that would change the same thing in the same way."""

    pair: Duplicate
    compensation: str | None
    command: str


def waiting_page(tools: Tools, session: Session, visit: Visit) -> Answer:
    """All that waits for a person, on one page."""
    text = visit.query.get("q", "")
    asked = read_filter(text, tools.clock.wall_ms())
    if asked.entry_id is not None:
        return Answer(go_to=f"/entries/{asked.entry_id}")
    after = visit.cursor("after") or 0
    found = _entries(session, asked, visit, after)
    details = [session.detail(entry.entry_id) for entry in found[:PAGE_ENTRIES]]
    values: dict[str, Any] = {
        "title": "Needs you",
        "q": text,
        "problem": asked.problem,
        "cards": [card_of(session, seen) for seen in details if seen is not None],
        "next_after": found[PAGE_ENTRIES - 1].entry_id if len(found) > PAGE_ENTRIES else None,
        **_others(session, visit, is_shown=not text and not after),
        "is_first": not after,
        "verbs": Verb,
        "done": _done(session, visit),
    }
    return Answer("waiting.html", values, status=400 if asked.problem else 200)


def filter_for(asked: Filter, visit: Visit) -> EntryFilter | None:
    """The filter narrowed to what waits and to whose it may be; None where nothing can fit."""
    wanted = asked.wanted
    states = tuple(state for state in wanted.states or WAITING if state in WAITING)
    if asked.problem or asked.entry_id is not None or not states:
        return None
    if visit.tenant not in (None, wanted.tenant or visit.tenant):
        return None
    return EntryFilter(
        states,
        wanted.surface,
        wanted.tenant if visit.tenant is None else visit.tenant,
        wanted.key_prefix,
        wanted.label_contains,
        wanted.reason_contains,
        wanted.settled_before_ms,
        wanted.received_before_ms,
        wanted.received_after_ms,
    )


def _entries(session: Session, asked: Filter, visit: Visit, after: int) -> list[Entry]:
    wanted = filter_for(asked, visit)
    return [] if wanted is None else session.oldest_entries(wanted, after, PAGE_ENTRIES + 1)


def _others(session: Session, visit: Visit, *, is_shown: bool) -> dict[str, Any]:
    """Blocked keys and pairs, for the first page; one more than is shown says that there are others."""
    after = visit.cursor("pairs")
    lanes = _blocked(session, visit) if is_shown and after is None else []
    pairs = _pairs(session, visit, after or 0) if is_shown else []
    return {
        "lanes": [lane_card(lane) for lane in lanes[:PAGE_LANES]],
        "more_lanes": len(lanes) > PAGE_LANES,
        "pairs": [
            PairCard(pair, compensation_of(session, pair), dismiss_command(pair.pair.entry_id))
            for pair in pairs[:PAGE_PAIRS]
        ],
        "next_pairs": pairs[PAGE_PAIRS - 1].pair.entry_id if len(pairs) > PAGE_PAIRS else None,
    }


def _blocked(session: Session, visit: Visit) -> list[LaneView]:
    """The oldest first: of very many, of those whose keys were seen first."""
    wanted = LaneFilter(tenant=visit.tenant, states=(LaneState.BLOCKED,))
    found = session.lanes(wanted, 0, LANES_LOOKED_AT)
    return sorted(found, key=lambda lane: lane.oldest_created_at_ms or 0)


def _pairs(session: Session, visit: Visit, after: int) -> list[Duplicate]:
    """Pairs of content duplicates; they may cross tenants, so they are not for those who see one only."""
    if visit.tenant is not None:
        return []
    return session.open_duplicates(after, PAGE_PAIRS + 1)


def _done(session: Session, visit: Visit) -> EntryDetail | None:
    """The entry that was decided a moment ago, as the ledger has it."""
    number = visit.cursor("done")
    seen = None if number is None else session.detail(number)
    if seen is None or visit.tenant not in (None, seen.entry.tenant):
        return None
    return seen


def badge(session: Session, tenant: str | None) -> str:
    """How many wait, for the navigation; counted up to a bound."""
    waiting = len(session.oldest_entries(EntryFilter(WAITING, tenant=tenant), 0, BADGE_MAX))
    blocked = len(session.lanes(LaneFilter(tenant=tenant, states=(LaneState.BLOCKED,)), 0, BADGE_MAX))
    total = waiting + blocked
    return "" if not total else f"{BADGE_MAX - 1}+" if total >= BADGE_MAX else str(total)
