"""One word for many: the plan with its count and sample, the yes, the job with progress and cancel.

A bulk action means the whole filter, never the rows in view; it acts on what the plan named, no more.
"""

from __future__ import annotations

from typing import Any

from oncegate.dashboard.commands import bulk_command, heads_command
from oncegate.dashboard.filters import read_filter
from oncegate.dashboard.jobs import Jobs, Planned, TooManyJobs
from oncegate.dashboard.operators import Role
from oncegate.dashboard.visits import Act, Answer, NotHere, Tools, View, Visit, need
from oncegate.dashboard.waiting_page import filter_for
from oncegate.errors import ConfigError, UsageError
from oncegate.model.rulings import Verb
from oncegate.sender.desk import HeadJob, checked_word, plan_heads
from oncegate.sender.desk import Verb as HeadVerb
from oncegate.sender.desk import Word as HeadWord
from oncegate.store import LaneFilter, Session
from oncegate.upkeep.bulk import Job, make_plan
from oncegate.upkeep.rulings import Word


def plan_entries(jobs: Jobs) -> Act:
    """Makes the action that plans a word about all entries of a filter."""

    def act(tools: Tools, visit: Visit) -> Answer:
        verb = _verb(visit.form.get("verb", ""))
        need(tools, visit, Role.APPROVER, f"{verb.value} many entries")
        wanted = filter_for(read_filter(visit.form.get("q", ""), tools.clock.wall_ms()), visit)
        try:
            word = Word(verb, visit.visitor.name, visit.form.get("reason", ""))
        except ConfigError as refused:
            return _not_done(str(refused))
        if wanted is None:
            return _not_done("the filter cannot be read, or nothing can fit it")
        with tools.commits.store.look() as session:
            plan = make_plan(session, word, wanted)
        values = {
            "kind": "entries",
            "verb": verb.value,
            "past": verb.past,
            "reason": word.reason,
            "count": plan.count,
            "sample": plan.sample,
            "surfaces": sorted(plan.surfaces.items()),
            "is_complete": plan.is_complete,
            "effect": _effect(verb),
            "command": bulk_command(verb, wanted),
        }
        return _planned(jobs, visit, values, Job(tools.rulings, plan))

    return act


def _effect(verb: Verb) -> str:
    if verb.runs:
        return (
            "they run with the next rounds of a reconciler; an entry with a step in doubt is left as it is,"
            " because only a person can speak about it"
        )
    return "they end for good; their keys stay known, and every later arrival is told who and why"


def plan_lanes(jobs: Jobs) -> Act:
    """Makes the action that plans an order to all blocked lanes of a destination."""

    def act(tools: Tools, visit: Visit) -> Answer:
        verb = _head_verb(visit.form.get("verb", ""))
        need(tools, visit, Role.OPERATOR, f"{verb.value} many lanes")
        destination = visit.form.get("destination", "")
        try:
            word = checked_word(HeadWord(visit.visitor.name, visit.form.get("reason", "")))
        except UsageError as refused:
            return _not_done(str(refused))
        with tools.commits.store.look() as session:
            plan = plan_heads(session, verb, LaneFilter(destination, visit.tenant))
        values = {
            "kind": "lanes",
            "verb": verb.value,
            "past": "retried" if verb is HeadVerb.RETRY else "skipped",
            "reason": word.reason,
            "count": len(plan.heads),
            "sample": plan.sample,
            "surfaces": [(destination, len(plan.heads))],
            "is_complete": plan.is_complete,
            "effect": f"{verb.means} ({plan.waiting_behind} wait behind them)",
            "command": heads_command(verb, destination),
        }
        return _planned(jobs, visit, values, HeadJob(tools.lanes, plan, word))

    return act


def _planned(jobs: Jobs, visit: Visit, values: dict[str, Any], work: Any) -> Answer:
    name = jobs.plan(Planned(visit.visitor.name, visit.tenant, values, work))
    return Answer(go_to=f"/jobs/{name}")


def job_page(jobs: Jobs) -> View:
    """Makes the page of one plan or job."""

    def view(tools: Tools, session: Session, visit: Visit) -> Answer:
        planned = _find(jobs, visit)
        values = {
            "title": "{verb} {count} {kind}".format_map(planned.values).capitalize(),
            "plan": planned.values,
            "job": planned,
            "progress": planned.work.progress,
            "name": visit.parts["job"],
        }
        return Answer("job.html", values)

    return view


def start_job(jobs: Jobs) -> Act:
    """Makes the action that says yes to a plan; saying it twice starts it once."""

    def act(tools: Tools, visit: Visit) -> Answer:
        planned = _find(jobs, visit)
        need(tools, visit, _role(planned), "carry out a plan")
        try:
            jobs.start(planned)
        except TooManyJobs as refused:
            return _not_done(str(refused))
        return Answer(go_to=f"/jobs/{visit.parts['job']}")

    return act


def cancel_job(jobs: Jobs) -> Act:
    """Makes the action that stops a job after the batch under way."""

    def act(tools: Tools, visit: Visit) -> Answer:
        planned = _find(jobs, visit)
        need(tools, visit, _role(planned), "cancel a job")
        planned.work.cancel()
        return Answer(go_to=f"/jobs/{visit.parts['job']}")

    return act


def _role(planned: Planned) -> Role:
    return Role.APPROVER if planned.values["kind"] == "entries" else Role.OPERATOR


def _find(jobs: Jobs, visit: Visit) -> Planned:
    """A plan of this process that the visitor may see: their own, or anybody's if they see all tenants."""
    planned = jobs.find(visit.parts.get("job", ""))
    if planned is None or visit.tenant not in (None, planned.tenant):
        raise NotHere("this plan is gone: the page was restarted, or it is too old. Make a new one")
    return planned


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


def _not_done(message: str) -> Answer:
    return Answer("message.html", {"title": "Not done", "message": message}, status=409)
