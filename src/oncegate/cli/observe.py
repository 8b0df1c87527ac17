"""`oncegate observe report`: what the gate would have done at surfaces that observe."""

from __future__ import annotations

import argparse
from datetime import timedelta
from typing import Any

from oncegate.cli.exitcodes import DONE
from oncegate.cli.ledger import open_ledger, reading
from oncegate.cli.output import grouped, print_json, print_table, tell, utc
from oncegate.cli.parser import add_json, add_url, print_help_as_error, read_text
from oncegate.cli.sending import cells
from oncegate.clock import SystemClock
from oncegate.model.durations import parse_duration
from oncegate.review.observation import ObservedSurface, observed_surfaces
from oncegate.review.surface_decisions import check_known
from oncegate.store import Facet

_DESCRIPTION = """\
A surface with mode="observe" runs its handler for every arrival, as without a gate. The gate records
what it would have done. When the report looks right, switch the surface on; what ran while it
observed is known then, and replays."""
_EPILOG = """\
examples:
  oncegate observe report
  oncegate observe report --since 30d --surface orders --json
  oncegate surfaces switch orders on --reason 'a week without surprises'"""
_HEADERS = (
    "SURFACE", "ARRIVALS", "NEW", "REPEATS", "BUSY", "CONFLICTS", "QUARANTINES", "HELD", "NOT RECORDED"
)  # fmt: skip


def add_parser(subparsers: Any) -> None:
    """Adds the commands to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "observe", help="see what the gate would have done before it is switched on",
        description=_DESCRIPTION, epilog=_EPILOG,
    )  # fmt: skip
    parser.set_defaults(run=print_help_as_error)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    report = commands.add_parser("report", help="count what the gate would have stopped, with samples")
    report.add_argument("--surface", type=read_text, help="only this one")
    report.add_argument("--since", default="7d", metavar="TIME", help="how far back (default: %(default)s)")
    add_url(report)
    add_json(report)
    report.set_defaults(run=run_report)


def run_report(arguments: argparse.Namespace) -> int:
    """Prints what was observed."""
    until_ms = SystemClock().wall_ms()
    since_ms = until_ms - parse_duration(arguments.since) // timedelta(milliseconds=1)
    with reading(open_ledger(arguments.url, needs=Facet.STATS), arguments.url) as session:
        found = observed_surfaces(session, since_ms, until_ms)
        if arguments.surface is not None:
            found = [one for one in found if one.surface == arguments.surface]
            if not found:
                check_known(session, arguments.surface)
    period = {"since": utc(since_ms), "until": utc(until_ms)}
    if arguments.json:
        for one in found:
            print_json({**period, **_facts(one)})
        return DONE
    if not found:
        name = arguments.surface or "no surface"
        has = "has observed nothing" if arguments.surface else "has observed anything"
        tell(f"{name} {has} since {utc(since_ms)}; declare it with mode='observe', or switch it:")
        tell(f"oncegate surfaces switch {arguments.surface or 'NAME'} observe --reason WHY")
        return DONE
    print(f"{period['since']} to {period['until']}; every arrival ran")
    print_table(_HEADERS, [cells(*_row(one)) for one in found])
    for one in found:
        _print_more(one)
    return DONE


def _row(one: ObservedSurface) -> tuple[str, ...]:
    counts = (
        one.arrivals, one.new, one.repeats, one.busy, one.conflicts, one.quarantines, one.held,
        one.not_recorded,
    )  # fmt: skip
    return one.surface, *(grouped(count) for count in counts)


def _print_more(one: ObservedSurface) -> None:
    """Reasons, and the latest samples of what would have been stopped."""
    if one.reasons:
        reasons = ", ".join(f"{reason} {grouped(count)}" for reason, count in sorted(one.reasons.items()))
        print(f"\n{one.surface}: reasons for quarantine: {reasons}")
    if one.not_recorded:
        print(f"\n{one.surface}: not recorded: see the log oncegate.surfaces of its processes for why")
    if one.samples:
        print(f"\n{one.surface}: samples, the latest first")
        rows = [cells(utc(s.at_ms), s.what, s.label, s.key[:12], s.reason) for s in one.samples]
        print_table(("AT (UTC)", "WOULD BE", "LABEL", "KEY", "WHY"), rows)


def _facts(one: ObservedSurface) -> dict[str, Any]:
    return {
        "surface": one.surface,
        "arrivals": one.arrivals,
        "new": one.new,
        "would_stop": one.stopped,
        "repeats": one.repeats,
        "busy": one.busy,
        "conflicts": one.conflicts,
        "quarantines": one.quarantines,
        "held": one.held,
        "not_recorded": one.not_recorded,
        "reasons": one.reasons,
        "samples": [
            {"at": utc(s.at_ms), "would_be": s.what, "label": s.label, "key": s.key, "why": s.reason}
            for s in one.samples
        ],
    }
