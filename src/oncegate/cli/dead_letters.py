"""`oncegate dead-letters`: what was given up; the verbs to send it after all or skip it. See replays.py."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Final

from msgspec.structs import replace

from oncegate.cli import replays
from oncegate.cli.confirming import ProgressBar, cancelling, is_confirmed
from oncegate.cli.exitcodes import DONE, INTERRUPTED, NOT_SO
from oncegate.cli.lanes import add_filter, filter_of, print_lanes
from oncegate.cli.ledger import open_ledger, reading
from oncegate.cli.output import Cell, print_json, print_table, tell, utc
from oncegate.cli.parser import add_json, add_url, print_help_as_error, read_number
from oncegate.cli.sending import add_confirming, cells, opened_desk, refuse_unknown_endpoint, word_of
from oncegate.cli.time_filters import add_times, span_of
from oncegate.errors import ConfigError, Unacceptable
from oncegate.sender.operator_actions import HeadJob, HeadPlan, LaneVerb, plan_heads
from oncegate.store import DeadLetter, Facet, LaneState, Session

LIMIT_DEFAULT: Final = 50
_HEADERS: Final = ("LANE", "SEQ", "ENDPOINT", "KEY", "EVENT", "TYPE", "GIVEN UP (UTC)", "TRIES", "ERROR")
_EPILOG: Final = """\
A plan is shown first: how many keys, a sample, what will happen. --dry-run ends there, --yes skips the
question, Ctrl-C stops between two keys and tells what was done. A replay goes on until it is delivered:
`replays` tells how much is left, `cancel` takes the rest back.

examples:
  oncegate dead-letters retry --endpoint orders --key A-17 --reason "their server is back"
  oncegate dead-letters skip --endpoint orders --key A-17 --reason "cancelled by phone, ticket 812"
  oncegate dead-letters replay --endpoint orders --key A-17 --from 3 --to 9 --reason "they lost a day"
  oncegate dead-letters replay --endpoint orders --only-dead --reason "fixed their parser" --dry-run"""


def add_parser(subparsers: Any) -> None:
    """Adds the command group to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "dead-letters",
        help="list what was given up; retry, skip or replay it, in order",
        description="Look at dead letters and decide about them. Order within a key is always kept.",
        epilog=_EPILOG,
    )
    parser.set_defaults(run=print_help_as_error)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    listing = commands.add_parser("list", help="list dead letters", description="List dead letters.")
    add_filter(listing)
    listing.add_argument("--limit", type=read_number, default=LIMIT_DEFAULT, metavar="N", help="(50)")
    listing.add_argument(
        "--after", type=read_place, default=(0, 0), metavar="LANE:SEQ", help="go on behind this one"
    )
    add_url(listing)
    add_json(listing)
    add_times(listing, "was given up")
    listing.set_defaults(run=_run_list)
    for verb in LaneVerb:
        order = commands.add_parser(
            verb.value,
            help=f"{verb.value} the heads of blocked lanes",
            description=f"For each blocked lane that fits: {verb.means}.",
            epilog=_EPILOG,
        )
        add_filter(order)
        order.add_argument("--seq", type=read_number, help="with --key: only if this is the head")
        add_confirming(order)
        order.set_defaults(run=_run_order, verb=verb)
    replays.add_parsers(commands, _EPILOG)


def read_place(text: str) -> tuple[int, int]:
    """Reads where a dead letter stands: its lane and its seq."""
    lane, _, seq = text.partition(":")
    return read_number(lane), read_number(seq)


def _run_list(arguments: argparse.Namespace) -> int:
    with reading(open_ledger(arguments.url, needs=Facet.LANES), arguments.url) as session:
        refuse_unknown_endpoint(session, arguments.endpoint)
        letters = _within(session, arguments)
    if arguments.json:
        for letter in letters:
            print_json(_facts(letter))
        return DONE
    if not letters:
        tell("no dead letters")
        return DONE
    print_table(_HEADERS, [_row(one) for one in letters])
    if len(letters) == arguments.limit:
        tell(f"there may be more; go on with --after {letters[-1].lane_id}:{letters[-1].seq}")
    return DONE


def _within(session: Session, arguments: argparse.Namespace) -> list[DeadLetter]:
    """One page of those given up in the span, in the order of their lanes."""
    span, after, found = span_of(arguments), arguments.after, list[DeadLetter]()
    while page := session.dead_letters(filter_of(arguments), after, arguments.limit):
        found += [letter for letter in page if span.has(letter.given_up_at_ms)]
        after = (page[-1].lane_id, page[-1].seq)
        if len(found) >= arguments.limit or len(page) < arguments.limit:
            break
    return found[: arguments.limit]


def _facts(letter: DeadLetter) -> dict[str, Any]:
    return {
        "lane": letter.lane_id,
        "seq": letter.seq,
        "endpoint": letter.destination,
        "tenant": letter.tenant,
        "key": letter.key,
        "event_id": letter.event_id,
        "type": letter.type,
        "given_up_at": utc(letter.given_up_at_ms),
        "attempts": letter.attempts,
        "blocks": letter.is_head,
        "error": letter.error,
    }


def _row(letter: DeadLetter) -> tuple[Cell, ...]:
    return cells(
        letter.lane_id, letter.seq, letter.destination, letter.key, letter.event_id, letter.type,
        utc(letter.given_up_at_ms), letter.attempts, letter.error,
    )  # fmt: skip


def _run_order(arguments: argparse.Namespace) -> int:
    word = word_of(arguments)
    with reading(open_ledger(arguments.url, needs=Facet.LANES), arguments.url) as session:
        refuse_unknown_endpoint(session, arguments.endpoint)
        plan = _planned(session, arguments)
    _show_plan(plan, arguments)
    if arguments.dry_run or not plan.heads:
        return DONE
    if not arguments.yes and not is_confirmed(len(plan.heads)):
        tell("nothing was changed")
        return NOT_SO
    with opened_desk(arguments.url) as desk:
        job, bar = HeadJob(desk, plan, word), ProgressBar(len(plan.heads))
        with cancelling(job):
            done = job.run(lambda progress: bar.tell(progress.done + progress.changed))
    if arguments.json:
        print_json({"done": done.done, "changed": done.changed, "cancelled": done.is_cancelled})
    else:
        left = f", {done.changed} had changed meanwhile and were left" if done.changed else ""
        print(f"{done.done} of {done.total} {_PAST[plan.verb]}{left}")
    if done.is_cancelled:
        return INTERRUPTED
    return NOT_SO if done.changed else DONE


_PAST: Final = {LaneVerb.RETRY: "retried", LaneVerb.SKIP: "skipped"}


def _planned(session: Session, arguments: argparse.Namespace) -> HeadPlan:
    if arguments.seq is not None and arguments.key is None:
        raise ConfigError("--seq needs --key: each key counts for itself")
    if arguments.seq is None:
        return plan_heads(session, arguments.verb, filter_of(arguments))
    # Whoever names one head may also mean one that waits for its next try.
    states = (LaneState.BLOCKED, LaneState.WAITING)
    plan = plan_heads(session, arguments.verb, filter_of(arguments), states)
    heads = tuple(head for head in plan.heads if head[1] == arguments.seq)
    if not heads:
        raise Unacceptable(f"seq {arguments.seq} is not the head of a lane of this key that waits")
    return replace(plan, heads=heads)


def _show_plan(plan: HeadPlan, arguments: argparse.Namespace) -> None:
    if arguments.json:
        print_json(
            {"plan": {"verb": plan.verb.value, "lanes": len(plan.heads), "behind": plan.waiting_behind}}
        )
        return
    if not plan.heads:
        tell("no blocked lane fits; nothing to do")
        return
    tell(
        f"{len(plan.heads)} to be {_PAST[plan.verb]}, {plan.waiting_behind} events wait behind them. Some:"
    )
    print_lanes(plan.sample, sys.stderr)
    tell(f"for each: {plan.verb.means}")
    if not plan.is_complete:
        tell("there are more; run it again for the rest")
