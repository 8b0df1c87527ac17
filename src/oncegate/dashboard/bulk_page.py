"""One word for many: the plan with its count and sample, the yes, the job with progress and cancel.

A bulk action means the whole filter, never the rows in view; it acts on what the plan named, no more. Any
process of the service may show a plan, take the yes and show the job.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from oncegate.dashboard.commands import bulk_command, heads_command
from oncegate.dashboard.fields import declared, masked
from oncegate.dashboard.filters import read_filter
from oncegate.dashboard.jobs import Jobs, TooManyJobs, Work
from oncegate.dashboard.operators import Role
from oncegate.dashboard.plans import JobState, PlanKind, PlanLine, PlanView, Target
from oncegate.dashboard.rendering import with_digits
from oncegate.dashboard.replay_plans import replay_job
from oncegate.dashboard.request_context import Act, NotHere, PageResponse, RequestContext, Tools, View, need
from oncegate.dashboard.waiting_page import WAITING, filter_for
from oncegate.errors import ConfigError, UsageError
from oncegate.model.decisions import Verb
from oncegate.review.bulk import BulkPlan, Job, make_plan
from oncegate.review.decisions import EntryDecision
from oncegate.review.doubles import Choice
from oncegate.sender.operator_actions import HeadJob, HeadPlan, checked_word, plan_heads
from oncegate.sender.operator_actions import LaneDecision as HeadWord
from oncegate.sender.operator_actions import LaneVerb as HeadVerb
from oncegate.store import Entry, LaneFilter, LaneView, LogKind, Session, replay_name

_GONE: Final = "this plan is gone: it is too old, or there were many after it. Make a new one"


def plan_entries(jobs: Jobs) -> Act:
    """Makes the action that plans a word about all entries of a filter."""

    def act(tools: Tools, visit: RequestContext) -> PageResponse:
        verb = _verb(visit.form.get("verb", ""))
        need(tools, visit, Role.APPROVER, f"{verb.value} many entries")
        now_ms = tools.clock.wall_ms()
        among = tuple(verb.starts_from) if verb is Verb.RETRY else WAITING
        wanted = filter_for(read_filter(visit.form.get("q", ""), now_ms), visit, among)
        try:
            word = EntryDecision(verb, visit.visitor.name, visit.form.get("reason", ""))
        except ConfigError as refused:
            return _not_done(str(refused))
        if wanted is None or not verb.starts_from.intersection(wanted.states):
            return _not_done("the filter cannot be read, or nothing can fit it")
        with tools.look() as session:
            plan = make_plan(session, word, wanted)
            sample = [_entry_line(tools, session, entry) for entry in plan.sample]
        sheet = _entries_sheet(plan, visit, bulk_command(verb, wanted, now_ms), sample)
        return _planned(jobs, sheet, plan.entries)

    return act


def _entries_sheet(plan: BulkPlan, visit: RequestContext, command: str, sample: list[PlanLine]) -> PlanView:
    return PlanView(
        kind=PlanKind.ENTRIES,
        owner=visit.visitor.name,
        tenant=visit.tenant,
        verb=plan.word.verb.value,
        past=plan.word.verb.past,
        reason=plan.word.reason,
        effect=_effect(plan.word.verb),
        command=command,
        count=plan.count,
        surfaces=sorted(plan.surfaces.items()),
        is_complete=plan.is_complete,
        sample=sample,
        extras=sorted(plan.doubles.extras),
        members=sorted(plan.doubles.members),
    )


def _entry_line(tools: Tools, session: Session, entry: Entry) -> PlanLine:
    number = entry.entry_id
    fields = declared(tools, session.detail(number))
    return PlanLine(entry.state.label, entry.label or str(number), entry.reason or "", number, fields)


def _effect(verb: Verb) -> str:
    if verb.runs:
        return (
            "they run with the next rounds of a reconciler; an entry with a step in doubt is left as it is,"
            " because only a person can speak about it"
        )
    return "they end permanently; their keys stay known, and every later arrival gets who and why"


def plan_lanes(jobs: Jobs) -> Act:
    """Makes the action that plans an order to all blocked lanes of a destination."""

    def act(tools: Tools, visit: RequestContext) -> PageResponse:
        verb = _head_verb(visit.form.get("verb", ""))
        need(tools, visit, Role.OPERATOR, f"{verb.value} many lanes")
        destination = visit.form.get("destination", "")
        try:
            word = checked_word(HeadWord(visit.visitor.name, visit.form.get("reason", "")))
        except UsageError as refused:
            return _not_done(str(refused))
        with tools.look() as session:
            plan = plan_heads(session, verb, LaneFilter(destination, visit.tenant))
        return _planned(jobs, _lanes_sheet(plan, word, visit, destination), plan.heads)

    return act


def _lanes_sheet(plan: HeadPlan, word: HeadWord, visit: RequestContext, destination: str) -> PlanView:
    return PlanView(
        kind=PlanKind.LANES,
        owner=visit.visitor.name,
        tenant=visit.tenant,
        verb=plan.verb.value,
        past="retried" if plan.verb is HeadVerb.RETRY else "skipped",
        reason=word.reason,
        effect=f"{plan.verb.means} ({plan.waiting_behind} wait behind them)",
        command=heads_command(plan.verb, destination, visit.tenant),
        count=len(plan.heads),
        surfaces=[(destination, len(plan.heads))],
        is_complete=plan.is_complete,
        sample=[_lane_line(lane) for lane in plan.sample],
    )


def _lane_line(lane: LaneView) -> PlanLine:
    return PlanLine(lane.state.label, lane.key, lane.error or "")


def _planned(jobs: Jobs, sheet: PlanView, targets: tuple[Target, ...]) -> PageResponse:
    return PageResponse(go_to=f"/jobs/{jobs.plans.keep(sheet, targets)}")


def job_page(jobs: Jobs) -> View:
    """Makes the page of one plan or job."""

    def view(tools: Tools, session: Session, visit: RequestContext) -> PageResponse:
        sheet = _find(jobs, session, visit)
        job = jobs.plans.job(session, visit.parts["job"])
        values = {
            "title": with_digits(f"{sheet.verb} {sheet.count} {sheet.kind.value}".capitalize()),
            "plan": sheet,
            "sample": [replace(one, fields=masked(one.fields, visit.visitor)) for one in sheet.sample],
            "job": job,
            "is_running": job is not None and job.state is JobState.RUNNING,
            "name": visit.parts["job"],
            "choices": [(choice.value, sheet.left(choice)) for choice in Choice] if sheet.extras else [],
            "replay": None if sheet.replay is None else replay_name(sheet.replay.nonce),
        }
        return PageResponse("job.html", values)

    return view


def start_job(jobs: Jobs) -> Act:
    """Makes the action that says yes to a plan; saying it twice, anywhere, starts it once."""

    def act(tools: Tools, visit: RequestContext) -> PageResponse:
        name = visit.parts.get("job", "")
        with tools.look() as session:
            sheet = _find(jobs, session, visit)
            targets = jobs.plans.targets(session, name)
        need(tools, visit, _role(sheet), "carry out a plan")
        if targets is None:
            raise NotHere(_GONE)
        choice = _choice(sheet, visit)
        if isinstance(choice, str):
            return _not_done(choice)
        try:
            total = sheet.count if choice is None else sheet.left(choice)
            begun = jobs.start(name, total, _work(tools, sheet, targets, visit.visitor.name, choice))
        except TooManyJobs as refused:
            return _not_done(str(refused))
        if begun:
            said = "" if choice is None else f" (of equal changes: {choice.value})"
            tools.note(visit, LogKind.JOB_STARTED, f"{_told(sheet)}{said}")
        return PageResponse(go_to=f"/jobs/{name}")

    return act


def _choice(sheet: PlanView, visit: RequestContext) -> Choice | str | None:
    """What the form says about equal changes; None where there are none, a text where it cannot count."""
    if not sheet.extras:
        return None
    try:
        choice = Choice(visit.form.get("doubles", ""))
    except ValueError:
        return "some of these are the same change as another one: say whether one of each, all or none run"
    if choice is Choice.ALL and visit.form.get("confirm") != "all":
        return f"confirm that {len(sheet.extras)} changes run twice, or choose another; nothing was changed"
    return choice


def _work(
    tools: Tools, sheet: PlanView, targets: tuple[Target, ...], actor: str, choice: Choice | None
) -> Work:
    """What a plan comes to: the same entries or heads as when it was made, in the name of who says yes."""
    if sheet.kind is PlanKind.ENTRIES:
        word = EntryDecision(_verb(sheet.verb), actor, sheet.reason)
        plan = BulkPlan(word, targets, (), {}, sheet.is_complete, sheet.doubles, choice)
        return Job(tools.rulings, plan)
    if sheet.replay is not None:
        return replay_job(tools, sheet.replay, HeadWord(actor, sheet.reason), sheet.count)
    heads = HeadPlan(_head_verb(sheet.verb), targets, (), 0, sheet.is_complete)
    return HeadJob(tools.lanes, heads, HeadWord(actor, sheet.reason))


def cancel_job(jobs: Jobs) -> Act:
    """Makes the action that stops a job after the batch under way, whichever process runs it."""

    def act(tools: Tools, visit: RequestContext) -> PageResponse:
        with tools.look() as session:
            sheet = _find(jobs, session, visit)
        need(tools, visit, _role(sheet), "cancel a job")
        if jobs.plans.cancel(visit.parts["job"], visit.visitor.name):
            tools.note(visit, LogKind.JOB_CANCELLED, _told(sheet))
        return PageResponse(go_to=f"/jobs/{visit.parts['job']}")

    return act


def _told(sheet: PlanView) -> str:
    """A plan in the words of the journal."""
    return (
        f"{sheet.verb} {sheet.count} {sheet.kind.value}, planned by {sheet.owner or 'page'}: {sheet.reason}"
    )


def _role(sheet: PlanView) -> Role:
    return Role.APPROVER if sheet.kind is PlanKind.ENTRIES else Role.OPERATOR


def _find(jobs: Jobs, session: Session, visit: RequestContext) -> PlanView:
    """A plan that the visitor may see: of their tenant, or any if they see all tenants."""
    sheet = jobs.plans.sheet(session, visit.parts.get("job", ""))
    if sheet is None or visit.tenant not in (None, sheet.tenant):
        raise NotHere(_GONE)
    return sheet


def _verb(text: str) -> Verb:
    try:
        return Verb(text)
    except ValueError:
        raise NotHere("there is no such action") from None


def _head_verb(text: str) -> HeadVerb:
    try:
        return HeadVerb(text)
    except ValueError:
        raise NotHere("there is no such action") from None


def _not_done(message: str) -> PageResponse:
    return PageResponse("message.html", {"title": "Not done", "message": message}, status=409)
