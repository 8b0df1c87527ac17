"""A replay of many keys as a plan: its count and a sample first, then the yes, then it is planted.

For those who see all tenants: it is no tenant's. What has gone by the time of the yes counts, so that a key
that went on meanwhile is replayed as far as it has come.
"""

from __future__ import annotations

from msgspec.structs import replace

from oncegate.clock import utc_text
from oncegate.dashboard.commands import replays_command
from oncegate.dashboard.jobs import Jobs
from oncegate.dashboard.plans import PlanKind, PlanLine, PlanView, Range
from oncegate.dashboard.reading import read_seq
from oncegate.dashboard.rendering import counted
from oncegate.dashboard.request_context import Act, PageResponse, RequestContext, Tools, need_destination
from oncegate.errors import ConfigError, UsageError
from oncegate.model.moments import read_moment
from oncegate.sender.operator_actions import LaneDecision, ReplayJob, new_nonce
from oncegate.store import Replaying, ReplayWanted, Session


def plan_replay(jobs: Jobs) -> Act:
    """Makes the action that plans a replay of all keys of a destination."""

    def act(tools: Tools, visit: RequestContext) -> PageResponse:
        destination = visit.form.get("destination", "")
        need_destination(tools, visit, destination, f"replay {destination}")
        try:
            asked = _range(visit, destination, tools.clock.wall_ms())
            job = replay_job(tools, asked, LaneDecision(visit.visitor.name, visit.form.get("reason", "")))
        except (UsageError, ConfigError) as refused:
            return PageResponse("message.html", {"title": "Not done", "message": str(refused)}, status=409)
        plan = job.plan()
        with tools.look() as session:
            sheet = _sheet(session, visit, asked, plan, job.wanted)
        return PageResponse(go_to=f"/jobs/{jobs.plans.keep(sheet, ())}")

    return act


def replay_job(tools: Tools, asked: Range, word: LaneDecision, total: int = 0) -> ReplayJob:
    """What a plan comes to, in the name of the operator who confirms it."""
    wanted = replace(
        tools.lanes.replay_wanted(asked.destination, word, asked.nonce),
        seq_from=asked.seq_from,
        seq_to=asked.seq_to,
        only_dead=asked.only_dead,
        since_ms=asked.since_ms,
        until_ms=asked.until_ms,
        type=asked.type,
    )
    return ReplayJob(tools.lanes, wanted, total)


def _range(visit: RequestContext, destination: str, now_ms: int) -> Range:
    first = read_seq(visit.form.get("from") or "1")
    last = read_seq(visit.form["to"]) if visit.form.get("to") else None
    if last is not None and last < first:
        raise UsageError(f"seq {last} is before seq {first}")
    only_dead = visit.form.get("only_dead") == "yes"
    since, until = (
        read_moment(visit.form[name], now_ms) if visit.form.get(name) else None
        for name in ("since", "until")
    )
    if since is not None and until is not None and until <= since:
        raise UsageError("the time ends before it begins; nothing was emitted in it")
    kind = visit.form.get("type", "").strip() or None
    return Range(destination, first, last, only_dead, new_nonce(), since, until, kind)


def _sheet(
    session: Session, visit: RequestContext, asked: Range, plan: Replaying, wanted: ReplayWanted
) -> PlanView:
    return PlanView(
        kind=PlanKind.REPLAY,
        owner=visit.visitor.name,
        tenant=None,
        verb="replay",
        past="on their way once more",
        reason=wanted.reason,
        effect=_effect(plan, wanted),
        command=replays_command(asked),
        count=plan.deliveries,
        surfaces=[(asked.destination, plan.deliveries)],
        is_complete=True,
        sample=_sample(session, plan),
        replay=asked,
    )


def _effect(plan: Replaying, wanted: ReplayWanted) -> str:
    keys, most = counted(plan.lanes, "key"), wanted.deliveries_max
    kind = "" if wanted.type is None else f" of type {wanted.type}"
    since = "" if wanted.since_ms is None else f" emitted since {utc_text(wanted.since_ms)[:19]} UTC"
    before = "" if wanted.until_ms is None else f" before {utc_text(wanted.until_ms)[:19]} UTC"
    words = (
        f"past events{kind}{since}{before} of {keys} go once more, each key in order and before"
        " anything newer of it; each event carries the Idempotency-Key it had"
    )
    words = words if plan.deliveries else "nothing: no past event fits"
    if plan.refused:
        words += f". Left alone, because in another replay: {counted(plan.refused, 'key')}"
    if plan.is_cut:
        words += f". Of a key with more than {most} the first {most} are meant; go on from there afterwards"
    return words


def _sample(session: Session, plan: Replaying) -> list[PlanLine]:
    names = session.lane_names([lane for lane, _ in plan.sample])
    return [
        PlanLine("replay", names[lane].key, counted(deliveries, "event"))
        for lane, deliveries in plan.sample
        if lane in names
    ]
