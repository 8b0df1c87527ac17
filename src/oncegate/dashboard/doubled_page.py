"""Doubled: pairs of events that would change the same thing in the same way, side by side."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from oncegate.dashboard.commands import pair_command
from oncegate.dashboard.fields import Fields, declared, masked
from oncegate.dashboard.operators import Role
from oncegate.dashboard.request_context import NotHere, PageResponse, RequestContext, Tools, need
from oncegate.dashboard.waiting_page import Button
from oncegate.errors import ConfigError, RulingRefused
from oncegate.review.differences import difference
from oncegate.review.duplicates import compensation_of
from oncegate.review.pairs import PairVerb, PairWord, decide_pair, find_pair, seen_fences, verbs_of
from oncegate.store import Duplicate, Session

PAGE_PAIRS: Final = 20
_TITLES: Final = {
    PairVerb.MEANT: "Both were meant",
    PairVerb.UNDONE: "One was undone",
    PairVerb.KEEP_FIRST: "Keep the first",
}


class PairCard(Struct, frozen=True):
    """Two events that would change the same thing in the same way, and what can be said about them."""

    pair: Duplicate
    compensation: str | None
    fences: tuple[int, int]
    first: Fields
    second: Fields
    apart: str
    buttons: list[Button]


def doubled_page(tools: Tools, session: Session, visit: RequestContext) -> PageResponse:
    """Pairs that no person has decided on, oldest first: those that both ran, or all."""
    only_ran = visit.query.get("show", "ran") != "all"
    surface = visit.query.get("surface") or None
    after = visit.cursor("after") or 0
    found = session.open_duplicates(after, PAGE_PAIRS + 1, ran=only_ran, surface=surface)
    counts = [one.count for one in session.doubled() if surface in (None, one.surface)]
    values = {
        "title": "Doubled",
        "cards": [_card(tools, session, visit, pair) for pair in found[:PAGE_PAIRS]],
        "next_after": found[PAGE_PAIRS - 1].pair.entry_id if len(found) > PAGE_PAIRS else None,
        "ran": sum(counts),
        "only_ran": only_ran,
        "surface": surface or "",
        "done": _done(session, visit),
    }
    return PageResponse("doubled.html", values)


def _card(tools: Tools, session: Session, visit: RequestContext, pair: Duplicate) -> PairCard:
    buttons = [
        Button(
            verb.value,
            verb.consequence,
            pair_command(verb.value, pair.pair.entry_id),
            verb is PairVerb.KEEP_FIRST,
            title=_TITLES[verb],
        )
        for verb in verbs_of(pair)
    ]
    details = [session.detail(number) for number in (pair.pair.other_id, pair.pair.entry_id)]
    first, second = (masked(declared(tools, seen), visit.visitor) for seen in details)
    apart = difference(*(None if seen is None else seen.body for seen in details))
    told = compensation_of(session, pair)
    return PairCard(pair, told, seen_fences(pair), first, second, apart, buttons)


def _done(session: Session, visit: RequestContext) -> Duplicate | None:
    number = visit.cursor("done")
    return None if number is None else find_pair(session, number)


def decide(tools: Tools, visit: RequestContext) -> PageResponse:
    """Says a word about a pair, as the person saw it."""
    number = visit.number("entry")
    try:
        verb = PairVerb(visit.parts.get("verb", ""))
    except ValueError:
        raise NotHere("there is no such action") from None
    need(tools, visit, Role.APPROVER, f"decide about the pair of entry {number}")
    if visit.tenant is not None:
        raise NotHere("there is no such pair")
    fences = (_fence(visit, "fence"), _fence(visit, "other-fence"))
    word = PairWord(verb, visit.visitor.name, visit.form.get("reason", ""), fences)
    try:
        decide_pair(tools.commits, tools.clock, number, word)
    except (RulingRefused, ConfigError) as refused:
        return PageResponse("message.html", {"title": "Not done", "message": str(refused)}, status=409)
    return PageResponse(go_to=f"/doubled?done={number}")


def _fence(visit: RequestContext, name: str) -> int:
    """The fence the person saw: a form without it says nothing about what was decided."""
    text = visit.form.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise NotHere("the form is not complete; load the page again")
    return int(text)
