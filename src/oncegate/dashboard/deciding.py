"""What people do about entries on the page: decide, reveal, dismiss; always through the use cases."""

from __future__ import annotations

from oncegate.dashboard.entry_page import contents_of, entry_values, find_entry
from oncegate.dashboard.operators import Role
from oncegate.dashboard.request_context import NotHere, PageResponse, RequestContext, Tools, need
from oncegate.errors import ConfigError, RulingRefused
from oncegate.model.decisions import Verb
from oncegate.model.keys import Key
from oncegate.review.decisions import EntryDecision, StepDecision, sayable
from oncegate.store import EntryDetail, LogKind


def decide(tools: Tools, visit: RequestContext) -> PageResponse:
    """Says a word about one entry, as the person saw it."""
    verb = _verb(visit.parts.get("verb", ""))
    with tools.look() as session:
        seen = find_entry(session, visit)
    need(tools, visit, Role.APPROVER, f"{verb.value} entry {seen.entry.entry_id}")
    fence, key = _fence(visit.form.get("fence", "")), _key(visit.form.get("key", ""))
    try:
        doubles = visit.form.get("doubles") == "all"
        word = EntryDecision(
            verb, visit.visitor.name, visit.form.get("reason", ""), _steps(verb, seen, visit), doubles
        )
        entry = tools.rulings.say(seen.entry.entry_id, word, fence, key)
    except (RulingRefused, ConfigError) as refused:
        return refused_entry(tools, visit, str(refused))
    if visit.form.get("back") == "waiting":
        return PageResponse(go_to=f"/waiting?done={entry.entry_id}")
    return PageResponse(go_to=f"/entries/{entry.entry_id}")


def _verb(text: str) -> Verb:
    try:
        return Verb(text)
    except ValueError:
        raise NotHere("there is no such action") from None


def _fence(text: str) -> int:
    """The fence the person saw: a form without it says nothing about what was decided."""
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise NotHere("the form is not complete; load the page again")
    return int(text)


def _key(text: str) -> bytes | None:
    """The key of the entry the person saw: another event may have its number and fence by now (I23)."""
    try:
        return Key.from_text(text).digest if text else None
    except ConfigError:
        raise NotHere("the form is not complete; load the page again") from None


def _steps(verb: Verb, seen: EntryDetail, visit: RequestContext) -> dict[str, StepDecision]:
    """What the form says about steps in doubt; nothing is assumed about a step it leaves open."""
    said: dict[str, StepDecision] = {}
    for step in sayable(seen) if verb.runs else ():
        answer = visit.form.get(f"step-{step.name}", "")
        resource = visit.form.get(f"resource-{step.name}", "").strip() or None
        if answer == "happened":
            said[step.name] = StepDecision(happened=True, resource=resource)
        elif answer == "did-not-happen":
            said[step.name] = StepDecision(happened=False)
    return said


def refused_entry(tools: Tools, visit: RequestContext, message: str) -> PageResponse:
    """The entry as it stands now, with why nothing was changed."""
    with tools.look() as session:
        values = entry_values(tools, session, find_entry(session, visit), visit)
    return PageResponse("entry.html", {**values, "refusal": message}, status=409)


def reveal(tools: Tools, visit: RequestContext) -> PageResponse:
    """Shows an entry's content, after that was put on record; without the record nothing is shown."""
    with tools.look() as session:
        number = find_entry(session, visit).entry.entry_id
    need(tools, visit, Role.OPERATOR, f"reveal the content of entry {number}")
    if not tools.note(visit, LogKind.REVEALED, "shown on the page", number):
        raise NotHere(f"there is no entry {number}")
    with tools.look() as session:
        seen = find_entry(session, visit)
        if visit.form.get("as") == "raw":
            return PageResponse(text=(seen.body or b"").decode("utf-8", "replace"))
        values = entry_values(tools, session, seen, visit)
    return PageResponse("entry.html", {**values, "content": contents_of(seen)})
