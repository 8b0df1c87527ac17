"""Second resources: what a downstream gave twice, for one key or for one target."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from oncegate.dashboard.commands import resource_command
from oncegate.dashboard.operators import Role
from oncegate.dashboard.request_context import NotHere, PageResponse, RequestContext, Tools, need
from oncegate.dashboard.waiting_page import Button
from oncegate.errors import ConfigError, RulingRefused
from oncegate.review.second_resources import SecondVerb, SecondWord, decide_second
from oncegate.signals.seconds import counts_of, judged
from oncegate.store import Entry, SecondCount, SecondResource, Session

PAGE_FINDINGS: Final = 20
READ_AT_ONCE: Final = 200
_TITLES: Final = {
    SecondVerb.UNDONE: "One was cancelled",
    SecondVerb.MEANT: "Both are meant",
    SecondVerb.ACKNOWLEDGE: "Acknowledge",
}


class ResourceCard(Struct, frozen=True):
    """A finding with its entries, and what can be said about it."""

    found: SecondResource
    entry: Entry | None
    other: Entry | None
    buttons: list[Button]


def resources_page(tools: Tools, session: Session, visit: RequestContext) -> PageResponse:
    """Findings that no person has decided on, oldest first."""
    surface, of, after = visit.query.get("surface", ""), visit.query.get("of", ""), visit.cursor("after")
    read = session.second_resources(after or 0, READ_AT_ONCE)

    def fits(one: SecondResource | SecondCount) -> bool:
        return surface in ("", one.surface) and of in ("", one.of)

    found = [one for one in judged(read) if fits(one)]
    counts = [one for one in counts_of(session.second_counts(), read) if fits(one)]
    is_cut = len(found) > PAGE_FINDINGS or len(read) == READ_AT_ONCE
    last = found[PAGE_FINDINGS - 1] if len(found) > PAGE_FINDINGS else read[-1] if read else None
    values = {
        "title": "Second resources",
        "cards": [_card(session, one) for one in found[:PAGE_FINDINGS]],
        "next_after": last.number if is_cut and last else None,
        "total": sum(one.findings for one in counts),
        "surface": surface,
        "of": of,
        "done": visit.cursor("done"),
    }
    return PageResponse("resources.html", values)


def _card(session: Session, one: SecondResource) -> ResourceCard:
    found = [session.detail(number) for number in (one.entry_id, one.other_id)]
    entry, other = (None if seen is None else seen.entry for seen in found)
    buttons = [
        Button(verb.value, verb.consequence, resource_command(verb.value, one.number), title=_TITLES[verb])
        for verb in SecondVerb
    ]
    return ResourceCard(one, entry, other, buttons)


def decide(tools: Tools, visit: RequestContext) -> PageResponse:
    """Says a word about a finding."""
    number = visit.number("finding")
    try:
        verb = SecondVerb(visit.parts.get("verb", ""))
    except ValueError:
        raise NotHere("there is no such action") from None
    need(tools, visit, Role.APPROVER, f"decide about second resource {number}")
    if visit.tenant is not None:
        raise NotHere("there is no such finding")
    word = SecondWord(verb, visit.visitor.name, visit.form.get("reason", ""))
    try:
        decide_second(tools.commits, tools.clock, number, word)
    except (RulingRefused, ConfigError) as refused:
        return PageResponse("message.html", {"title": "Not done", "message": str(refused)}, status=409)
    return PageResponse(go_to=f"/resources?done={number}")
