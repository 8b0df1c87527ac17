"""One word for many entries on the command line: the plan, the question, progress, and Ctrl-C.

Ctrl-C stops after the batch under way and tells what was done; nothing is left half said.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from msgspec.structs import replace

from oncegate.cli import timeline
from oncegate.cli.confirming import ProgressBar, cancelling, is_confirmed
from oncegate.cli.entries import print_entries, refuse_unknown_surface
from oncegate.cli.exitcodes import DONE, INTERRUPTED, NOT_SO
from oncegate.cli.ledger import reading
from oncegate.cli.output import complain, print_json, tell
from oncegate.cli.people import speaking
from oncegate.model.escape import visible
from oncegate.review.bulk import BulkPlan, BulkProgress, Job, make_plan
from oncegate.review.decisions import EntryDecision
from oncegate.review.doubles import Choice
from oncegate.store import EntryFilter, Store


def run_bulk(store: Store, word: EntryDecision, wanted: EntryFilter, arguments: argparse.Namespace) -> int:
    """Plans, asks, carries out."""
    with reading(store, arguments.url) as session:
        if wanted.surface is not None:
            refuse_unknown_surface(session, wanted.surface)
        plan = make_plan(session, word, wanted)
    plan = replace(plan, choice=_choice(word, arguments))
    _show_plan(plan, arguments)
    if arguments.dry_run or not plan.count:
        return DONE
    if plan.doubles.extras and plan.choice is None:
        complain("say which of them run with --doubles one, all or none; nothing was changed")
        return NOT_SO
    if not arguments.yes and not is_confirmed(len(plan.chosen)):
        tell("nothing was changed")
        return NOT_SO
    with speaking(store) as rulings:
        return _carry_out(Job(rulings, plan), arguments)


def _show_plan(plan: BulkPlan, arguments: argparse.Namespace) -> None:
    if arguments.json:
        facts = [timeline.facts(entry) for entry in plan.sample]
        print_json({"plan": {**_counts(plan), "surfaces": plan.surfaces, "sample": facts}})
        return
    if not plan.count:
        tell("nothing fits; nothing to do")
        return
    surfaces = ", ".join(f"{count:,} of {name}" for name, count in sorted(plan.surfaces.items()))
    tell(
        f"{plan.count:,} to be {plan.word.verb.past} by {plan.word.actor}: {surfaces}. The newest of them:"
    )
    print_entries(plan.sample, sys.stderr)
    _tell_doubles(plan)
    if plan.word.verb.runs:
        tell("they run with the next rounds of a reconciler; an entry with a step in doubt that no --step")
        tell("speaks about is left as it is")
    else:
        tell("they end permanently; their keys stay known")
    if not plan.is_complete:
        tell(f"there are more than {plan.count:,}; run it again for the rest")


def _choice(word: EntryDecision, arguments: argparse.Namespace) -> Choice | None:
    given = arguments.doubles if word.verb.runs else None
    return None if given is None else Choice(given)


def _tell_doubles(plan: BulkPlan) -> None:
    """What a person must know before the same change runs twice."""
    if not plan.doubles.extras:
        return
    left, again = _left(plan), len(plan.doubles.extras)
    tell(f"{again:,} of {plan.count:,} are the same change as another one, under other keys:")
    tell(f"  --doubles one    {left['one']:,} run: one of each change, none that ran before")
    tell(f"  --doubles none   {left['none']:,} run: none of these")
    tell(f"  --doubles all    {left['all']:,} run: {again:,} changes run once more")
    tell("see them: oncegate duplicates list")


def _left(plan: BulkPlan) -> dict[str, int]:
    return {choice.value: len(replace(plan, choice=choice).chosen) for choice in Choice}


def _counts(plan: BulkPlan) -> dict[str, Any]:
    word = plan.word
    return {
        "verb": word.verb.value,
        "actor": word.actor,
        "reason": word.reason,
        "entries": plan.count,
        "more": not plan.is_complete,
        "same_change": len(plan.doubles.extras),
        "doubles": _left(plan) if plan.doubles.extras else None,
    }


def _carry_out(job: Job, arguments: argparse.Namespace) -> int:
    with cancelling(job):
        done = job.run(_teller(job))
    _tell_end(done, job.plan.word, arguments)
    if done.is_cancelled:
        return INTERRUPTED
    return NOT_SO if done.refused else DONE


def _teller(job: Job) -> Any:
    bar = ProgressBar(job.progress.total)
    return lambda progress: bar.tell(progress.total - progress.left)


def _tell_end(done: BulkProgress, word: EntryDecision, arguments: argparse.Namespace) -> None:
    if arguments.json:
        counts = {
            "done": done.done,
            "changed": done.changed,
            "refused": done.refused,
            "left": done.left,
            "cancelled": done.is_cancelled,
            "refusals": list(done.refusals),
        }
        print_json({"result": {"verb": word.verb.value, **counts}})
        return
    for refusal in done.refusals:
        tell(visible(refusal))
    parts = [f"{done.done:,} {word.verb.past}"]
    parts += [f"{done.changed:,} had changed meanwhile and were left"] if done.changed else []
    parts += [f"{done.refused:,} cannot be decided so and were left"] if done.refused else []
    parts += [f"{done.left:,} not looked at"] if done.left else []
    print(", ".join(parts) + (" (cancelled)" if done.is_cancelled else ""))
