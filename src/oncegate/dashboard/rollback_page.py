"""Snapshots and roll-back on the page: the timeline, a plan as a diff, lines chosen one by one, one yes.

The page reads the ledger only. Plans are made and applied by the worker, which has the program's functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from msgspec import Struct

from oncegate.dashboard.commands import rollback_command
from oncegate.dashboard.operators import Role
from oncegate.dashboard.request_context import Act, NotHere, PageResponse, RequestContext, Tools, need
from oncegate.errors import PlanRefused, UsageError
from oncegate.journal.rollback.plans import (
    ENDED,
    PlanBook,
    PlanLines,
    PlanState,
    RollbackLine,
    RollbackPlan,
)
from oncegate.journal.snapshots.beliefs import LEDGER, id_of
from oncegate.journal.snapshots.suspicion import SnapshotFacts, Suspicion, suspicions
from oncegate.journal.snapshots.timeline import read_timeline
from oncegate.store import Session

PAGE_SNAPSHOTS: Final = 50
PAGE_LINES: Final = 100
PLANS_SHOWN: Final = 10
CURVE_POINTS: Final = 160
MASKED: Final = "hidden: needs the role operator"
_LIVE: Final = frozenset({PlanState.WANTED, PlanState.APPROVED, PlanState.APPLYING})


class SnapshotRow(Struct, frozen=True):
    """One snapshot in the timeline."""

    facts: SnapshotFacts
    counts: list[tuple[str, int, int]]
    wrong: list[Suspicion]


class LineRow(Struct, frozen=True):
    """One line of a plan as it is shown."""

    number: int
    what: str
    live: str
    to: str
    why: str
    mark: str
    conflict: str
    runs: bool
    can_run: bool
    entries: tuple[int, ...]


def snapshots_page(tools: Tools, session: Session, visit: RequestContext) -> PageResponse:
    """The timeline, newest first; what looks wrong; the last plans."""
    timeline = read_timeline(session)
    wrong = suspicions(timeline.items)
    before = visit.cursor("before") or 2**62
    shown = [one for one in reversed(timeline.items) if one.number < before]
    names = sorted({name for one in timeline.items for name in one.beliefs if name != LEDGER})
    values: dict[str, Any] = {
        "title": "Snapshots",
        "timeline": timeline,
        "rows": [_row(one, wrong) for one in shown[:PAGE_SNAPSHOTS]],
        "next_before": shown[PAGE_SNAPSHOTS - 1].number if len(shown) > PAGE_SNAPSHOTS else None,
        "first_wrong": _unsettled(wrong, timeline.items),
        "curves": [(name, _curve(timeline.items, name)) for name in names],
        "plans": _book(tools).all(session)[:PLANS_SHOWN],
    }
    return PageResponse("snapshots.html", values)


def _unsettled(wrong: list[Suspicion], items: tuple[SnapshotFacts, ...]) -> Suspicion | None:
    """The first that looks wrong since the last roll-back."""
    settled = max((one.number for one in items if one.cause), default=0)
    return next((one for one in wrong if one.number > settled), None)


def _row(facts: SnapshotFacts, wrong: list[Suspicion]) -> SnapshotRow:
    counts = [(name, *pair) for name, pair in sorted(facts.beliefs.items()) if name != LEDGER]
    return SnapshotRow(facts, counts, [one for one in wrong if one.number == facts.number])


def _curve(items: tuple[SnapshotFacts, ...], name: str) -> list[float | None]:
    return [float(one.beliefs[name][0]) if name in one.beliefs else None for one in items[-CURVE_POINTS:]]


def plan_page(tools: Tools, session: Session, visit: RequestContext) -> PageResponse:
    """One plan with some of its lines."""
    return PageResponse("rollback.html", _values(tools, session, visit))


def _values(tools: Tools, session: Session, visit: RequestContext) -> dict[str, Any]:
    plan, lines = _found(tools, session, visit)
    first = max(1, visit.cursor("from") or 1)
    may_see = visit.visitor.may(Role.OPERATOR)
    unticked = set(plan.unticked)
    part = lines.lines[first - 1 : first - 1 + PAGE_LINES]
    now_ms = tools.clock.wall_ms()
    is_open = plan.state is PlanState.PROPOSED and now_ms < plan.expires_at_ms
    return {
        "title": f"Roll-back {plan.name}",
        "plan": plan,
        "rows": [_line(line, unticked, may_see=may_see) for line in part],
        "first": first,
        "previous": first - PAGE_LINES if first > 1 else None,
        "next": first + PAGE_LINES if first - 1 + PAGE_LINES < len(lines.lines) else None,
        "left_alone": [(one, id_of(one.target)) for one in lines.left_alone[:PAGE_LINES]],
        "is_open": is_open,
        "is_expired": plan.state is PlanState.PROPOSED and not is_open,
        "can_choose": is_open and not plan.approvals,
        "can_cancel": plan.state not in ENDED,
        "is_live": plan.state in _LIVE,
        "selection": selection_of(plan),
        "command": rollback_command("approve", plan.name, plan.digest),
        "cancel_command": rollback_command("cancel", plan.name),
    }


def selection_of(plan: RollbackPlan) -> str:
    """Names which lines are chosen: a yes counts for exactly those that were shown."""
    return sha256(f"{plan.digest}:{plan.unticked}".encode()).hexdigest()[:16]


def _line(line: RollbackLine, unticked: set[int], *, may_see: bool) -> LineRow:
    live, to = (
        MASKED if not may_see and value is not None else _text(value) for value in (line.live, line.to)
    )
    return LineRow(
        line.number,
        f"{line.family} {id_of(line.target)}",
        live,
        to,
        "; ".join(line.why),
        line.hand or "" if may_see or not line.hand else "by hand",
        line.conflict or "",
        line.hand is None and line.number not in unticked,
        line.hand is None,
        line.entries[:3],
    )


def _text(value: bytes | None) -> str:
    return "none" if value is None else value.decode("utf-8", "replace")


def _book(tools: Tools) -> PlanBook:
    return PlanBook(tools.commits, tools.clock)


def _found(tools: Tools, session: Session, visit: RequestContext) -> tuple[RollbackPlan, PlanLines]:
    """The plan in the path; for those who see one tenant there is none."""
    name = visit.parts.get("plan", "")
    if visit.tenant is not None or not name or len(name) > 40:
        raise NotHere("there is no such plan")
    try:
        plan = _book(tools).read(session, name)
    except PlanRefused:
        raise NotHere("there is no such plan") from None
    return plan, _book(tools).lines(session, name)


def want_plan(tools: Tools, visit: RequestContext) -> PageResponse:
    """Asks the worker for a plan back to a snapshot."""
    if visit.tenant is not None:
        raise NotHere("there is no such action")
    need(tools, visit, Role.OPERATOR, "plan a roll-back")
    text = visit.form.get("snapshot", "")
    with tools.look() as session:
        known = {one.number: one.hash for one in read_timeline(session).items}
    if not (text.isascii() and text.isdigit()) or int(text) not in known:
        raise NotHere("there is no such snapshot")
    name = _book(tools).want(int(text), known[int(text)], visit.visitor.name)
    return PageResponse(go_to=f"/rollback/{name}")


def choose_lines(tools: Tools, visit: RequestContext) -> PageResponse:
    """Turns one line on or off, or says which lines do not run."""
    with tools.look() as session:
        plan, lines = _found(tools, session, visit)
    need(tools, visit, Role.OPERATOR, f"choose lines of roll-back {plan.name}")
    can_run = {line.number for line in lines.lines if line.hand is None}
    wanted = _chosen(plan, can_run, visit.form)
    try:
        _book(tools).choose(plan.name, wanted, visit.visitor.name)
    except PlanRefused as refused:
        return _refused(tools, visit, str(refused))
    line = visit.form.get("line", "")
    first = visit.form.get("from", "1")
    place = f"?from={first}#line-{line}" if line.isdigit() and first.isdigit() else ""
    return PageResponse(go_to=f"/rollback/{plan.name}{place}")


def _chosen(plan: RollbackPlan, can_run: set[int], form: Mapping[str, str]) -> set[int]:
    line = form.get("line", "")
    if line.isascii() and line.isdigit() and len(line) < 10:
        return (set(plan.unticked) ^ {int(line)}) & can_run
    return _numbers(form.get("without", "")) & can_run


def _numbers(text: str) -> set[int]:
    """Line numbers from text such as 4, 7-9; raises UsageError for anything else."""
    found: set[int] = set()
    for part in text.replace(" ", "").split(","):
        first, dash, last = part.partition("-")
        if part and not (first.isdigit() and (last.isdigit() if dash else True) and len(part) < 16):
            raise UsageError(f"{part[:20]!r} is not a line; write numbers such as 4, 7-9")
        if part:
            found |= set(range(int(first), min(int(last or first), 10**6) + 1))
    return found


def approve_plan(tools: Tools, visit: RequestContext) -> PageResponse:
    """One person's yes to exactly the lines that were shown."""
    with tools.look() as session:
        plan, _ = _found(tools, session, visit)
    need(tools, visit, Role.APPROVER, f"approve roll-back {plan.name}")
    try:
        if visit.form.get("selection") != selection_of(plan):
            raise PlanRefused("another operator chose other lines meanwhile; look at them again")
        digest, reason = visit.form.get("hash", ""), visit.form.get("reason", "")
        _book(tools).approve(plan.name, digest, visit.visitor.name, reason, plan.unticked)
    except (PlanRefused, UsageError) as refused:
        return _refused(tools, visit, str(refused))
    return PageResponse(go_to=f"/rollback/{plan.name}")


def cancel_plan(tools: Tools, visit: RequestContext) -> PageResponse:
    """Ends a plan; what is done stays done."""
    with tools.look() as session:
        plan, _ = _found(tools, session, visit)
    need(tools, visit, Role.OPERATOR, f"cancel roll-back {plan.name}")
    try:
        _book(tools).cancel(plan.name, visit.visitor.name, visit.form.get("reason", ""))
    except (PlanRefused, UsageError) as refused:
        return _refused(tools, visit, str(refused))
    return PageResponse(go_to=f"/rollback/{plan.name}")


def _refused(tools: Tools, visit: RequestContext, message: str) -> PageResponse:
    with tools.look() as session:
        values = _values(tools, session, visit)
    return PageResponse("rollback.html", {**values, "refusal": f"{message}. Nothing was changed."}, 409)


ACTS: Final[Mapping[str, Act]] = {
    "/rollback/want": want_plan,
    "/rollback/{plan}/choose": choose_lines,
    "/rollback/{plan}/approve": approve_plan,
    "/rollback/{plan}/cancel": cancel_plan,
}
