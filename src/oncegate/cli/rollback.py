"""`oncegate rollback`: plans the way back to a snapshot, approves exactly that plan, applies it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

from oncegate.cli.app import add_app, load_gate
from oncegate.cli.exitcodes import DONE, NOT_SO
from oncegate.cli.ledger import open_ledger, reading
from oncegate.cli.output import Cell, print_fields, print_json, print_table, tell, utc
from oncegate.cli.parser import (
    add_json,
    add_url,
    print_help_as_error,
    read_number,
    read_page_size,
    read_text,
)
from oncegate.cli.people import actor_of
from oncegate.clock import SystemClock
from oncegate.commit.group_commit import GroupCommit
from oncegate.journal.rollback.planning import find_snapshot
from oncegate.journal.rollback.plans import PlanBook, PlanLines, PlanState, RollbackLine, RollbackPlan
from oncegate.journal.rollback.releasing import Releasing, ran_again
from oncegate.journal.snapshots.archive import shown
from oncegate.journal.snapshots.beliefs import id_of
from oncegate.model.decisions import check_actor
from oncegate.sender.loops import run as run_in_loop
from oncegate.wiring import Gate
from oncegate.wiring.history import history_of

SHOWN_DEFAULT: Final = 50
_EPILOG: Final = """\
A plan changes nothing. A person approves exactly the plan that was shown, by its hash. The worker
applies it, or `rollback apply`. Each line runs once, through the gate. Keys stay known.

examples:
  oncegate rollback plan --to 41 --app care:gate
  oncegate rollback show 3f9ac211
  oncegate rollback approve 3f9ac211 --hash 9b1c04d2e6f0 --reason "doubled on Tuesday" --without 4,7
  oncegate rollback apply 3f9ac211 --app care:gate"""
_HEADERS: Final = ("PLAN", "STATE", "TO", "LINES", "DONE", "MADE (UTC)", "BY")
_LINE_HEADERS: Final = ("LINE", "OBJECT", "LIVE", "TO", "MARK", "WHY")


def add_parser(subparsers: Any) -> None:
    """Adds the command group to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "rollback",
        help="plan, approve and apply the way back to a snapshot",
        description="Undo what events changed since a snapshot, with compensations that a person approves.",
        epilog=_EPILOG,
    )
    parser.set_defaults(run=print_help_as_error)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    plan = _command(commands, "plan", "propose compensations; nothing is changed", run_plan)
    plan.add_argument("--to", required=True, metavar="SNAPSHOT", help="a number, a hash, or latest")
    add_app(plan, required=True)
    _add_actor(plan)
    listed = _command(commands, "list", "list plans, newest first", run_list)
    add_url(listed)
    show = _command(commands, "show", "show a plan with its lines, or what became of its events", run_show)
    show.add_argument(
        "--keys", action="store_true", help="list the events behind it and what holds for each"
    )
    _add_plan(show)
    show.add_argument(
        "--limit", type=read_page_size, default=SHOWN_DEFAULT, metavar="N",
        help="at most so many lines (default: %(default)s)",
    )  # fmt: skip
    _add_deciding(commands)
    apply = _command(commands, "apply", "apply an approved plan now, and wait for its end", run_apply)
    apply.add_argument("plan", metavar="PLAN", type=read_text)
    add_app(apply, required=True)


def _add_deciding(commands: Any) -> None:
    approve = _command(commands, "approve", "say yes to exactly this plan", run_approve)
    _add_plan(approve)
    approve.add_argument("--hash", required=True, type=read_text, help="the plan's hash, as shown")
    approve.add_argument(
        "--without", default=None, type=_read_lines, metavar="LINES",
        help="lines that do not run, with commas (default: those with a conflict)",
    )  # fmt: skip
    approve.add_argument("--all", action="store_true", help="run lines with a conflict too")
    cancel = _command(commands, "cancel", "end a plan; what is done stays done", run_cancel)
    _add_plan(cancel)
    release = _command(commands, "release", "let events that were rolled back run again", run_release)
    _add_plan(release)
    which = release.add_mutually_exclusive_group(required=True)
    which.add_argument("--entry", type=read_number, action="append", metavar="ENTRY",
                       help="one event, as `show --keys` lists it; repeat it")  # fmt: skip
    which.add_argument("--all", action="store_true", help="every event whose lines were done")
    for parser in (approve, cancel, release):
        parser.add_argument("--reason", type=read_text, required=True, help="why, for the next person")
        _add_actor(parser)


def _command(commands: Any, name: str, text: str, run: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=f"{text}.".capitalize()
    )
    add_json(parser)
    parser.set_defaults(run=run)
    return parser


def _add_plan(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", type=read_text, help="the plan, as listed")
    add_url(parser)


def _add_actor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--as", "--by", dest="actor", metavar="NAME", type=read_text,
        help="who you are (default: your login)",
    )  # fmt: skip


def _read_lines(text: str) -> tuple[int, ...]:
    numbers = [one.strip() for one in text.split(",") if one.strip()]
    if not all(one.isascii() and one.isdigit() for one in numbers):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a list of line numbers, such as 4,7")
    return tuple(map(int, numbers))


@contextmanager
def _book(arguments: argparse.Namespace) -> Iterator[PlanBook]:
    clock = SystemClock()
    with closing(GroupCommit(open_ledger(arguments.url), clock=clock)) as commits:
        yield PlanBook(commits, clock)


def run_plan(arguments: argparse.Namespace) -> int:
    """Makes a plan, keeps it and shows it."""
    gate = load_gate(arguments.app)
    with closing(gate):
        history = history_of(gate)
        to = find_snapshot(history.taker().archive, arguments.to)
        actor = check_actor(actor_of(arguments))
        plan, lines = run_in_loop(history.planner().make(to, actor))
        if not lines.lines:
            tell(f"nothing to undo: no recorded event changed an object since snapshot {plan.snapshot}")
            _tell_left_alone(plan, lines)
            return NOT_SO
        history.rollback().book.propose(plan, lines)
    _print_plan(plan, lines, arguments.json, SHOWN_DEFAULT)
    return DONE


def run_list(arguments: argparse.Namespace) -> int:
    """Lists plans."""
    store = open_ledger(arguments.url)
    with _book(arguments) as book, reading(store, arguments.url) as session:
        plans = book.all(session)
    if arguments.json:
        for plan in plans:
            print_json(_facts(plan))
    elif plans:
        print_table(_HEADERS, [_row(plan) for plan in plans])
    else:
        tell("no roll-back was planned yet; see: oncegate rollback plan --help")
    return DONE


def _row(plan: RollbackPlan) -> list[Cell]:
    made = utc(plan.made_at_ms)[:19].replace("T", " ")
    values = (
        plan.name,
        plan.state.value,
        plan.snapshot,
        plan.chosen,
        plan.progress.done,
        made,
        plan.made_by,
    )
    return [Cell.of(value) for value in values]


def run_show(arguments: argparse.Namespace) -> int:
    """Shows a plan, or the events behind it."""
    store = open_ledger(arguments.url)
    with _book(arguments) as book, reading(store, arguments.url) as session:
        plan, lines = book.read(session, arguments.plan), book.lines(session, arguments.plan)
        if arguments.keys:
            for entry_id in dict.fromkeys(one for line in lines.lines for one in line.entries):
                found = session.detail(entry_id)
                again = None if found is None else ran_again(session, found.entry.key)
                _print_key(entry_id, None if found is None else found.entry, again, arguments.json)
            return DONE
    _print_plan(plan, lines, arguments.json, arguments.limit)
    return DONE


def _print_key(entry_id: int, entry: Any, again: int | None, as_json: bool) -> None:
    key = None if entry is None else entry.key.hex()
    label = "forgotten" if entry is None else f"{entry.surface} {entry.label}"
    holds = "stays known: a repeat is answered with the recorded outcome and changes nothing"
    holds += "" if again is None else f"; released, runs again as entry {again}"
    if as_json:
        print_json({"entry": entry_id, "key": key, "event": label, "holds": holds})
    else:
        print(Cell.of(f"entry {entry_id}, {label}, key {key or 'forgotten'}: {holds}").text)


def _facts(plan: RollbackPlan) -> dict[str, Any]:
    return {
        "plan": plan.name,
        "hash": plan.digest,
        "state": plan.state.name.lower(),
        "snapshot": plan.snapshot,
        "made_by": plan.made_by,
        "made_at": utc(plan.made_at_ms),
        "expires_at": utc(plan.expires_at_ms),
        "lines": plan.lines,
        "chosen": plan.chosen,
        "conflicts": plan.conflicts,
        "by_hand": plan.by_hand,
        "already_right": plan.already_right,
        "left_alone": plan.left_alone,
        "people_needed": plan.people_needed,
        "approved_by": [one.actor for one in plan.approvals],
        "done": plan.progress.done,
        "failed": plan.progress.failed,
        "waiting": plan.progress.waiting,
        "not_as_planned": plan.progress.differing,
        "sealed_by_snapshot": plan.progress.sealed,
        "message": plan.message,
    }


def _print_plan(plan: RollbackPlan, lines: PlanLines, as_json: bool, limit: int) -> None:
    if as_json:
        print_json(_facts(plan) | {"lines": [_line_facts(line) for line in lines.lines]})
        return
    people = "" if plan.people_needed == 1 else ", needs two people"
    print_fields(
        [
            ("plan", Cell.of(f"{plan.name}, {plan.state.value}{people}")),
            ("hash", Cell.of(plan.digest)),
            ("to", Cell.of(f"snapshot {plan.snapshot}, {plan.snapshot_hash[:16]}")),
            ("lines", Cell.of(_line_counts(plan))),
            ("not in it", Cell.of(f"{plan.already_right:,} right already, {plan.left_alone:,} left alone")),
            ("expires", Cell.of(utc(plan.expires_at_ms))),
        ]
    )  # fmt: skip
    if plan.approvals:
        _print_progress(plan)
    unticked = set(plan.unticked)
    print_table(_LINE_HEADERS, [_line_row(line, unticked) for line in lines.lines[:limit]])
    if len(lines.lines) > limit:
        tell(f"{len(lines.lines) - limit:,} lines more; --limit, or --json for all")
    _tell_left_alone(plan, lines)
    if plan.state is PlanState.PROPOSED:
        tell(f'approve it: oncegate rollback approve {plan.name} --hash {plan.digest[:16]} --reason "…"')


def _line_counts(plan: RollbackPlan) -> str:
    return f"{plan.chosen:,} run, {plan.conflicts:,} with a conflict, {plan.by_hand:,} by hand"


def _print_progress(plan: RollbackPlan) -> None:
    progress = plan.progress
    who = ", ".join(f"{one.actor} ({one.reason})" for one in plan.approvals)
    done = f"{progress.done:,} done, {progress.failed:,} failed, {progress.waiting:,} wait"
    print_fields([("approved by", Cell.of(who)), ("progress", Cell.of(done))])
    if progress.differing is not None:
        sealed = f"; sealed by snapshot {progress.sealed}" if progress.sealed else ""
        print_fields([("live", Cell.of(f"{progress.differing:,} not as planned{sealed}"))])
    for problem in (*progress.problems, *filter(None, [plan.message])):
        tell(problem)


def _line_row(line: RollbackLine, unticked: set[int]) -> list[Cell]:
    mark = "by hand" if line.hand else ("conflict" if line.conflict else "")
    mark = f"{mark}, not run".lstrip(", ") if line.number in unticked else mark
    why = "; ".join(text for text in (line.hand, line.conflict, *line.why) if text)
    values = (
        line.number,
        f"{line.family} {id_of(line.target)}",
        _text(line.live),
        _text(line.to),
        mark,
        why,
    )
    return [Cell.of(value) for value in values]


def _text(value: bytes | None) -> str:
    return "none" if value is None else value.decode()


def _line_facts(line: RollbackLine) -> dict[str, Any]:
    return {
        "line": line.number,
        "family": line.family,
        "id": id_of(line.target),
        "mutation": line.mutation,
        "live": shown(line.live),
        "to": shown(line.to),
        "why": list(line.why),
        "entries": list(line.entries),
        "conflict": line.conflict,
        "by_hand": line.hand,
    }


def _tell_left_alone(plan: RollbackPlan, lines: PlanLines) -> None:
    for one in lines.left_alone[:5]:
        tell(f"left alone: {one.family} {id_of(one.target)} was {one.change} without a recorded event")
    if plan.left_alone > 5:
        tell(f"left alone: {plan.left_alone - 5:,} more")


def run_approve(arguments: argparse.Namespace) -> int:
    """Says yes."""
    without = () if arguments.all else arguments.without
    with _book(arguments) as book:
        actor = check_actor(actor_of(arguments))
        plan = book.approve(arguments.plan, arguments.hash, actor, arguments.reason, without)
    if arguments.json:
        print_json(_facts(plan))
    elif plan.state is PlanState.PROPOSED:
        print(f"approved by {actor}; more than {plan.second_above:,} lines need a second person")
    else:
        print(
            f"approved: {plan.chosen:,} lines run with the worker, or: oncegate rollback apply {plan.name}"
        )
    return DONE


def run_cancel(arguments: argparse.Namespace) -> int:
    """Ends a plan."""
    with _book(arguments) as book:
        plan = book.cancel(arguments.plan, check_actor(actor_of(arguments)), arguments.reason)
    if arguments.json:
        print_json(_facts(plan))
    else:
        print(f"cancelled; {plan.progress.done:,} of {plan.chosen:,} lines were done and stay done")
    return DONE


def run_release(arguments: argparse.Namespace) -> int:
    """Lets events run again."""
    actor, entries = check_actor(actor_of(arguments)), None if arguments.all else arguments.entry
    clock = SystemClock()
    with closing(GroupCommit(open_ledger(arguments.url), clock=clock)) as commits:
        found = Releasing(commits, clock).release(arguments.plan, entries, actor, arguments.reason)
    for one in found:
        if arguments.json:
            print_json({"entry": one.entry_id, "again": one.again, "refused": one.refused or None})
        elif one.refused:
            tell(f"entry {one.entry_id} is not released: {one.refused}")
        else:
            print(f"entry {one.entry_id} runs again as entry {one.again}, with the worker")
    return DONE if found and not any(one.refused for one in found) else NOT_SO


def run_apply(arguments: argparse.Namespace) -> int:
    """Applies, and says what came of it."""
    with closing(load_gate(arguments.app)) as gate:
        plan = _applied(gate, arguments.plan)
    if arguments.json:
        print_json(_facts(plan))
    else:
        print(f"plan {plan.name} is {plan.state.value}")
        _print_progress(plan)
    is_right = plan.state is PlanState.APPLIED and not plan.progress.failed and not plan.progress.differing
    return DONE if is_right else NOT_SO


def _applied(gate: Gate, name: str) -> RollbackPlan:
    work = history_of(gate).rollback()
    with gate.engine.store.look() as session:
        plan = work.book.read(session, name)
    if plan.state in {PlanState.APPROVED, PlanState.APPLYING}:
        run_in_loop(work.run_once())
        with gate.engine.store.look() as session:
            plan = work.book.read(session, name)
    return plan
