"""`oncegate dead-letters replay|replays|cancel`: past events once more, how far that is, and an end to it.

One command plants a replay in the lanes; the worker or the sender delivers it. It is watched and
cancelled by its name, the nonce that receivers see as `x-replay`.
"""

from __future__ import annotations

import argparse
from typing import Any

from msgspec.structs import replace

from oncegate.cli.confirming import ProgressBar, cancelling, is_confirmed
from oncegate.cli.exitcodes import DONE, INTERRUPTED, NOT_SO
from oncegate.cli.ledger import open_ledger, reading
from oncegate.cli.output import Cell, print_json, print_table, tell, utc
from oncegate.cli.parser import add_json, add_url, read_number, read_text
from oncegate.cli.sending import (
    add_confirming,
    add_word,
    cells,
    opened_desk,
    refuse_unknown_endpoint,
    word_of,
)
from oncegate.cli.time_filters import add_times, span_of
from oncegate.clock import SystemClock
from oncegate.errors import ConfigError
from oncegate.model.moments import read_moment
from oncegate.sender.operator_actions import OperatorActions, ReplayJob
from oncegate.store import Facet, ReplayFilter, Replaying, ReplayOrder, ReplayWanted, replay_name

_HEADERS = (
    "REPLAY",
    "STATE",
    "ENDPOINT",
    "KEY",
    "SEQS",
    "KEYS",
    "GONE",
    "LEFT",
    "BEGUN (UTC)",
    "BY",
    "WHY",
)
_LISTED = 100


def add_parsers(commands: Any, epilog: str) -> None:
    """Adds the three commands to the group."""
    _add_replay(commands, epilog)
    listing: argparse.ArgumentParser = commands.add_parser(
        "replays",
        help="list replays that are under way, and how much of each is left",
        description="List the replays that are under way: of what, by whom and why, how many events have"
        " gone and how many are left. With --all also those that have ended or were cancelled, the latest"
        " first.",
    )
    listing.add_argument("--all", action="store_true", help="also those that are over")
    listing.add_argument("--endpoint", type=read_text, help="only of this endpoint")
    listing.add_argument("--before", type=read_number, metavar="N", help="go on before this number")
    add_url(listing)
    add_json(listing)
    add_times(listing, "began")
    listing.set_defaults(run=_run_list)
    cancel: argparse.ArgumentParser = commands.add_parser(
        "cancel",
        help="take back what is left of a replay",
        description="Take back what a replay has not sent yet. What is in flight ends; the keys go on with"
        " what is new.",
    )
    cancel.add_argument("replay", type=read_name, metavar="REPLAY", help="its name, from `replays`")
    add_word(cancel)
    add_json(cancel)
    cancel.set_defaults(run=_run_cancel)


def _add_replay(commands: Any, epilog: str) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "replay",
        help="send past events once more, in order, before anything newer of their key",
        description="Send past events once more: of one key or all, a range of seqs, or dead letters only."
        " They carry the same Idempotency-Key and a nonce of their own; newer events of the key wait.",
        epilog=epilog,
    )
    parser.add_argument("--endpoint", type=read_text, required=True, help="the endpoint")
    parser.add_argument("--key", type=read_text, help="the lane of this key (default: all)")
    parser.add_argument("--tenant", type=read_text, default="", help="the key's tenant")
    parser.add_argument("--from", dest="seq_from", type=read_number, default=1, metavar="SEQ", help="(1)")
    parser.add_argument("--to", dest="seq_to", type=read_number, metavar="SEQ", help="(the last one sent)")
    parser.add_argument("--only-dead", action="store_true", help="only dead letters")
    parser.add_argument(
        "--since", type=read_text, metavar="WHEN",
        help="only events emitted since then: how long ago (2h), or a time such as 2026-11-18T02:00Z",
    )  # fmt: skip
    parser.add_argument("--until", type=read_text, metavar="WHEN", help="only events emitted before then")
    parser.add_argument("--type", type=read_text, help="only events of this type")
    add_confirming(parser)
    parser.set_defaults(run=_run_replay)


def read_name(text: str) -> int:
    """Reads a replay's name: a nonce in hexadecimal digits."""
    digits = text.lower()
    if not 0 < len(digits) <= 16 or not set(digits) <= set("0123456789abcdef"):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not the name of a replay")
    return int(digits, 16)


def _run_replay(arguments: argparse.Namespace) -> int:
    with opened_desk(arguments.url) as desk:
        job = ReplayJob(desk, _wanted(desk, arguments))
        plan = job.plan()
        _show_plan(job.wanted, plan, arguments)
        if arguments.dry_run or not plan.deliveries:
            return DONE
        if not arguments.yes and not is_confirmed(plan.deliveries):
            tell("nothing was changed")
            return NOT_SO
        bar = ProgressBar(plan.deliveries)
        with cancelling(job):
            job.run(lambda planted: bar.tell(planted.deliveries))
    _tell_end(job, arguments)
    return INTERRUPTED if job.is_cancelled else DONE


def _wanted(desk: OperatorActions, arguments: argparse.Namespace) -> ReplayWanted:
    wanted = desk.replay_wanted(arguments.endpoint, word_of(arguments))
    if arguments.seq_to is not None and arguments.seq_to < arguments.seq_from:
        raise ConfigError("--to is before --from")
    since, until = _window(arguments)
    return replace(
        wanted,
        lane_id=_lane_id(arguments),
        seq_from=arguments.seq_from,
        seq_to=arguments.seq_to,
        only_dead=arguments.only_dead,
        since_ms=since,
        until_ms=until,
        type=arguments.type,
    )


def _window(arguments: argparse.Namespace) -> tuple[int | None, int | None]:
    now_ms = SystemClock().wall_ms()
    since, until = (
        None if text is None else read_moment(text, now_ms) for text in (arguments.since, arguments.until)
    )
    if since is not None and until is not None and until <= since:
        raise ConfigError("--until is not after --since; nothing was emitted in between")
    return since, until


def _lane_id(arguments: argparse.Namespace) -> int | None:
    with reading(open_ledger(arguments.url, needs=Facet.LANES), arguments.url) as session:
        refuse_unknown_endpoint(session, arguments.endpoint)
        if arguments.key is None:
            return None
        lane = session.find_lane(arguments.endpoint, arguments.tenant, arguments.key)
    if lane is None:
        raise ConfigError("no event was ever emitted for this endpoint and key")
    return lane.lane_id


def _show_plan(wanted: ReplayWanted, plan: Replaying, arguments: argparse.Namespace) -> None:
    with reading(open_ledger(arguments.url, needs=Facet.LANES), arguments.url) as session:
        names = session.lane_names([lane for lane, _ in plan.sample])
    sample = [(names[lane].key, count) for lane, count in plan.sample if lane in names]
    if arguments.json:
        keys = [{"key": key, "deliveries": count} for key, count in sample]
        counts = {"deliveries": plan.deliveries, "lanes": plan.lanes, "cut": plan.is_cut}
        print_json({"plan": {**counts, "sample": keys}})
    else:
        tell(f"{plan.deliveries} past events of {plan.lanes} keys are sent once more, in order; newer")
        tell("events of these keys wait until that is done. Receivers know them by their Idempotency-Key")
        for key, count in sample:
            tell(f"  {key}: {count} {'event' if count == 1 else 'events'}")
    if plan.refused:
        tell(f"{plan.refused} keys are in another replay and are left")
    if plan.is_cut:
        most = wanted.deliveries_max
        tell(f"of a key with more than {most} the first {most} are meant; go on with --from afterwards")


def _tell_end(job: ReplayJob, arguments: argparse.Namespace) -> None:
    name = replay_name(job.wanted.nonce)
    if arguments.json:
        counts = {"deliveries": job.deliveries, "lanes": job.lanes, "cancelled": job.is_cancelled}
        print_json({"replay": name, **counts})
        return
    if job.is_cancelled_elsewhere:
        tell("another operator cancelled this replay meanwhile; see: oncegate dead-letters replays --all")
        return
    print(f"{job.deliveries} deliveries of {job.lanes} keys wait to be sent once more")
    if job.deliveries:
        tell(
            f"how far it is: oncegate dead-letters replays; to end it: oncegate dead-letters cancel {name}"
        )


def _run_list(arguments: argparse.Namespace) -> int:
    wanted = ReplayFilter(arguments.endpoint, only_running=not arguments.all)
    with reading(open_ledger(arguments.url, needs=Facet.LANES), arguments.url) as session:
        refuse_unknown_endpoint(session, arguments.endpoint)
        found = session.replay_orders(wanted, arguments.before, _LISTED)
    span = span_of(arguments)
    shown = [order for order in found if span.has(order.at_ms)]
    if arguments.json:
        for order in shown:
            print_json(_facts(order))
    elif shown:
        print_table(_HEADERS, [_row(order) for order in shown])
    else:
        tell("there was no replay" if arguments.all else "no replay is under way")
    if len(found) == _LISTED:
        tell(f"there may be more; go on with --before {found[-1].number}")
    return DONE


def _row(order: ReplayOrder) -> tuple[Cell, ...]:
    last = "" if order.seq_to is None else order.seq_to
    return cells(
        order.name, order.state.value, order.destination, "" if order.lane is None else order.lane.key,
        f"{order.seq_from}-{last}{' dead' if order.only_dead else ''}{_narrowed(order)}",
        order.lanes, order.gone,
        order.left if order.is_left_counted else f"over {order.left - 1}", utc(order.at_ms)[:19],
        order.actor, order.reason if order.cancelled_at_ms is None else _ended(order),
    )  # fmt: skip


def _narrowed(order: ReplayOrder) -> str:
    words = "" if order.type is None else f" {order.type}"
    words += "" if order.since_ms is None else f" since {utc(order.since_ms)[:19]}"
    return words + ("" if order.until_ms is None else f" until {utc(order.until_ms)[:19]}")


def _ended(order: ReplayOrder) -> str:
    return f"{order.reason}; cancelled by {order.cancelled_by}: {order.cancelled_why}"


def _facts(order: ReplayOrder) -> dict[str, Any]:
    lane = order.lane
    return {
        "replay": order.name,
        "number": order.number,
        "state": order.state.value,
        "endpoint": order.destination,
        "tenant": None if lane is None else lane.tenant,
        "key": None if lane is None else lane.key,
        "seq_from": order.seq_from,
        "seq_to": order.seq_to,
        "only_dead": order.only_dead,
        "since": None if order.since_ms is None else utc(order.since_ms),
        "until": None if order.until_ms is None else utc(order.until_ms),
        "type": order.type,
        "lanes": order.lanes,
        "deliveries": order.deliveries,
        "gone": order.gone,
        "left": order.left,
        "is_left_counted": order.is_left_counted,
        "begun_at": utc(order.at_ms) or None,
        "by": order.actor,
        "reason": order.reason,
        "taken_back": order.taken_back,
        "cancelled_at": utc(order.cancelled_at_ms) or None,
        "cancelled_by": order.cancelled_by,
        "cancelled_why": order.cancelled_why,
    }


def _run_cancel(arguments: argparse.Namespace) -> int:
    with opened_desk(arguments.url) as desk:
        taken_back = desk.cancel_replay(arguments.replay, word_of(arguments))
    if arguments.json:
        print_json({"replay": replay_name(arguments.replay), "taken_back": taken_back})
    elif taken_back:
        print(f"{taken_back} deliveries were taken back")
    else:
        tell("nothing is left to send of a replay with this name; see: oncegate dead-letters replays")
    return DONE if taken_back else NOT_SO
