"""Applying approved plans: each line is an ordinary event at the gate, under rollback:{plan}:{line}.

A line that has run is a replay when the plan is started again. A line changes its object only if the object
still has the value that the plan shows; one that has the planned value already is done. Must never start a
plan whose state moved since it was made.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from oncegate.errors import Failed, OncegateError, PlanRefused, SnapshotError
from oncegate.gate.admission import Admission, Verdict
from oncegate.gate.facade import GateOnStore
from oncegate.gate.gate import GateEngine
from oncegate.gate.once import AsyncOnce, Once
from oncegate.gate.runtime.tracing import current_claim
from oncegate.journal.rollback.live import live_reader
from oncegate.journal.rollback.mutations import MutationRule, RecordedCall, as_value
from oncegate.journal.rollback.planning import Planner, find_snapshot
from oncegate.journal.rollback.plans import (
    PlanBook,
    PlanProgress,
    PlanState,
    RollbackLine,
    RollbackPlan,
)
from oncegate.journal.snapshots.beliefs import id_of
from oncegate.journal.snapshots.taking import SnapshotTaker
from oncegate.model.canonical import canonical_json
from oncegate.store import LogKind

SURFACE: Final = "oncegate.rollback"  # plain compensations
ASYNC_SURFACE: Final = "oncegate.rollback.async"
KEY: Final = "rollback:{plan}:{line}"
PROBLEMS_MAX: Final = 20
TELL_EVERY: Final = 25  # lines between two notes of the progress
_ACTIVE: Final = frozenset({PlanState.WANTED, PlanState.APPROVED, PlanState.APPLYING})
_DONE: Final = frozenset({Verdict.RUN, Verdict.REPLAY})

log = logging.getLogger("oncegate.rollback")
Stopping = Callable[[], bool]


class RollbackReport(Struct):
    """What one run did: lines by what became of them, and whether a plan waits for another run."""

    done: int = 0
    failed: int = 0
    waiting: int = 0
    made: int = 0
    ended: list[str] = []
    is_complete: bool = True


def register_surfaces(gate: GateOnStore, rules: Mapping[str, MutationRule]) -> None:
    """Registers the two surfaces that compensations run at: for plain functions and for async ones."""
    engine = gate.engine

    def compensate_line(event: dict[str, Any], once: Once) -> dict[str, str]:
        work = _Work(engine, rules, event)
        if not work.rule.takes_tx:
            return work.run(())
        with once.commit() as tx:
            return work.run((tx,))

    async def compensate_line_async(event: dict[str, Any], once: AsyncOnce) -> dict[str, str]:
        work = _Work(engine, rules, event)
        if not work.rule.takes_tx:
            return await work.run_async(())
        async with once.commit() as tx:
            return await work.run_async((tx,))

    gate.handler(SURFACE, key=KEY)(compensate_line)
    gate.handler(ASYNC_SURFACE, key=KEY)(compensate_line_async)


class _Work:
    """One line: looks at the object, sets it back if it is as the plan says, and records the change."""

    def __init__(
        self, engine: GateEngine, rules: Mapping[str, MutationRule], event: dict[str, Any]
    ) -> None:
        self._engine, self._event = engine, event
        rule = rules.get(event["mutation"])
        if rule is None or rule.compensate is None:
            raise Failed(f"the program declares no compensation of {event['mutation']}")
        self.rule, self._back = rule, rule.compensate
        self._target, self._to = id_of(event["target"]), event["to"]
        with engine.store.look(again=True) as session:
            plan = PlanBook(engine.commits, engine.clock).read(session, event["plan"])
        if plan.state is PlanState.CANCELLED:
            raise Failed(f"plan {plan.name} was cancelled before this line")

    def _call(self, head: tuple[Any, ...]) -> RecordedCall:
        claim = current_claim.get()
        assert claim is not None
        return RecordedCall(self._engine, self.rule, claim, self._target, head)

    def _is_there(self, found: Any) -> bool:
        """Whether the object has the planned value; raises Failed if it has a third one."""
        value = as_value(self.rule, found)
        if value == _value(self._to):
            return True
        if value != _value(self._event["live"]):
            raise Failed(f"{self._target} was changed since the plan was made; it is left as it is")
        return False

    def run(self, head: tuple[Any, ...]) -> dict[str, str]:
        if self._is_there(self.rule.read(*head, self._target)):
            return {"result": "was so already"}
        self._engine.crashpoints.hit("rollback.line.before")
        self._call(head).run(lambda: self._back(*head, self._target, self._to))
        self._engine.crashpoints.hit("rollback.line.after")
        return {"result": "compensated"}

    async def run_async(self, head: tuple[Any, ...]) -> dict[str, str]:
        if self._is_there(await self.rule.read(*head, self._target)):
            return {"result": "was so already"}
        self._engine.crashpoints.hit("rollback.line.before")
        await self._call(head).run_async(lambda: self._back(*head, self._target, self._to))
        self._engine.crashpoints.hit("rollback.line.after")
        return {"result": "compensated"}


class RollbackWork:
    """Makes the plans that are asked for, and applies those that are approved."""

    def __init__(
        self, gate: GateOnStore, rules: Mapping[str, MutationRule], planner: Planner, taker: SnapshotTaker
    ) -> None:
        self._gate, self._rules, self._planner, self._taker = gate, rules, planner, taker
        self.book = PlanBook(gate.engine.commits, gate.engine.clock)

    async def run_once(self, stopping: Stopping = lambda: False) -> RollbackReport:
        """One run over all plans that are not ended."""
        report = RollbackReport(ended=[])
        with self._gate.engine.store.look(again=True) as session:
            plans = [plan for plan in self.book.all(session) if plan.state in _ACTIVE]
        for plan in reversed(plans):
            if stopping():
                report.is_complete = False
                break
            try:
                await self._go_on(plan, report, stopping)
            except PlanRefused as error:  # changed by an operator meanwhile: looked at in the next run
                log.warning("roll-back %s: %s", plan.name, error)
        return report

    async def _go_on(self, plan: RollbackPlan, report: RollbackReport, stopping: Stopping) -> None:
        if plan.state is PlanState.WANTED:
            await self._make(plan, report)
        if plan.state is PlanState.APPROVED:
            plan = await self._begin(plan)
        if plan.state is PlanState.APPLYING:
            await self._apply(plan, report, stopping)

    async def _make(self, asked: RollbackPlan, report: RollbackReport) -> None:
        try:
            to = find_snapshot(self._taker.archive, str(asked.snapshot))
            self.book.propose(*await self._planner.make(to, asked.made_by, asked.name))
            report.made += 1
        except (PlanRefused, SnapshotError) as error:
            text = str(error)
            self.book.change(
                asked.name,
                lambda plan: replace(plan, state=PlanState.FAILED, message=text[:500]),
                "worker",
                LogKind.JOB_CANCELLED,
                text,
            )

    async def _begin(self, plan: RollbackPlan) -> RollbackPlan:
        """Compares every line with the live state once more; a plan that fits no more is refused."""
        moved: list[str] = []
        async with live_reader(self._gate.engine) as reader:
            for line in self._chosen(plan):
                if (rule := self._rules.get(line.mutation)) is None:
                    raise PlanRefused(f"the program does not declare the mutation {line.mutation}")
                if await reader.read(rule, line.target) != line.live:
                    moved.append(str(id_of(line.target)))
        if not moved:
            return self.book.change(plan.name, lambda one: _next(one, PlanState.APPLYING))
        told = (
            f"{len(moved)} of {plan.chosen} objects changed since: {', '.join(moved[:5])}; make a new plan"
        )
        return self.book.change(
            plan.name, lambda one: _next(one, PlanState.MOVED, told), "worker", LogKind.JOB_CANCELLED, told
        )

    def _chosen(self, plan: RollbackPlan) -> list[RollbackLine]:
        unticked = set(plan.unticked)
        with self._gate.engine.store.look(again=True) as session:
            lines = self.book.lines(session, plan.name).lines
        return [line for line in lines if line.hand is None and line.number not in unticked]

    async def _apply(self, plan: RollbackPlan, report: RollbackReport, stopping: Stopping) -> None:
        done, failed, waiting = 0, 0, 0
        problems: list[str] = []
        lines = self._chosen(plan)
        for place, line in enumerate(lines, 1):
            if stopping() or (place % TELL_EVERY == 0 and self._is_cancelled(plan)):
                report.is_complete = False
                return
            problem, is_final = await self._run(plan, line)
            if problem is None:
                done += 1
            else:
                failed, waiting = failed + is_final, waiting + (not is_final)
                problems.append(f"line {line.number}, {id_of(line.target)}: {problem}"[:200])
            if place % TELL_EVERY == 0 and place < len(lines):
                left = waiting + len(lines) - place
                self._tell(plan, PlanProgress(done, failed, left, tuple(problems[:PROBLEMS_MAX])))
        report.done, report.failed = report.done + done, report.failed + failed
        progress = PlanProgress(done, failed, waiting, tuple(problems[:PROBLEMS_MAX]))
        if waiting:
            report.waiting += waiting
            self._tell(plan, progress)
        else:
            await self._end(plan, lines, progress, report)

    async def _run(self, plan: RollbackPlan, line: RollbackLine) -> tuple[str | None, bool]:
        """Runs one line; what went wrong, if anything, and whether that is final."""
        surface = ASYNC_SURFACE if self._rules[line.mutation].is_async else SURFACE
        try:
            found = await self._gate.admit(surface, line_event(plan.name, line))
        except Failed as error:
            return str(error), True
        except OncegateError as error:
            return str(error), False
        except Exception as error:  # noqa: BLE001  a user's function failed; the gate tries it again
            return f"{type(error).__name__}: {error}", False
        return _judged(found)

    def _is_cancelled(self, plan: RollbackPlan) -> bool:
        with self._gate.engine.store.look(again=True) as session:
            return self.book.read(session, plan.name).state is PlanState.CANCELLED

    def _tell(self, plan: RollbackPlan, progress: PlanProgress) -> None:
        self.book.change(plan.name, lambda one: replace(one, progress=progress))

    async def _end(
        self, plan: RollbackPlan, lines: list[RollbackLine], progress: PlanProgress, report: RollbackReport
    ) -> None:
        """Checks that live equals plan, seals a snapshot, and ends the plan."""
        differing = 0
        async with live_reader(self._gate.engine) as reader:
            for line in lines:
                differing += await reader.read(self._rules[line.mutation], line.target) != line.to
        message, sealed = "", None
        try:
            sealed = (await self._taker.take(f"roll-back {plan.name}")).number
        except SnapshotError as error:
            message = f"no snapshot could be sealed: {error}"
        ended = replace(progress, differing=differing, sealed=sealed)
        told = f"applied: {progress.done} done, {progress.failed} failed, {differing} not as planned"
        self._gate.engine.crashpoints.hit("rollback.end.before")
        self.book.change(
            plan.name,
            lambda one: replace(_next(one, PlanState.APPLIED, message), progress=ended),
            "worker",
            LogKind.JOB_STARTED,
            told,
        )
        report.ended.append(f"{plan.name} {told}")


def line_event(plan: str, line: RollbackLine) -> dict[str, Any]:
    """A line as the event that the gate gets."""
    return {
        "plan": plan,
        "line": line.number,
        "mutation": line.mutation,
        "target": line.target,
        "live": _shown(line.live),
        "to": _shown(line.to),
        "undoes": list(line.entries),
    }


def _judged(found: Admission) -> tuple[str | None, bool]:
    if found.verdict in _DONE:
        return None, True
    return f"{found.verdict.name.lower()}: it waits and is tried again", False


def _next(plan: RollbackPlan, state: PlanState, message: str = "") -> RollbackPlan:
    if plan.state is PlanState.CANCELLED:
        raise PlanRefused(f"plan {plan.name} was cancelled")
    return replace(plan, state=state, message=message)


def _value(shown: Any) -> bytes | None:
    return None if shown is None else canonical_json(shown)


def _shown(value: bytes | None) -> Any:
    return None if value is None else msgspec.json.decode(value)
