"""`oncegate signals`: what is measured, what calls a person, and how other programs watch it.

Must only read. Ends with 1 if anything pages, so that a job or a probe can ask.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from oncegate.cli.entries import refuse_unknown_surface
from oncegate.cli.exitcodes import DONE, NOT_SO, UNKNOWN
from oncegate.cli.ledger import open_ledger, reading
from oncegate.cli.limits import add_limits
from oncegate.cli.output import Cell, Colour, grouped, print_json, print_table, tell
from oncegate.cli.parser import add_json, add_url, read_number, read_text
from oncegate.cli.repeats import print_repeats, repeat_facts
from oncegate.clock import SystemClock
from oncegate.config import SETTINGS_FILE
from oncegate.store import Facet

if TYPE_CHECKING:
    from oncegate.model.drift import Drift
    from oncegate.signals.alerts import Signal
    from oncegate.store import Repeat

DAYS_DEFAULT: Final = 7
BUGS_SHOWN: Final = 20
HOURS_DEFAULT: Final = 48
ENTRIES_LOOKED_AT: Final = 2_000_000
REALTIME, WINDOWS = "wes.realtime", "wes.confirmations.windows"  # the contract's surfaces
DRIFT_COLUMNS: Final = (
    "PARTNER", "WINDOW", "REALTIME CALLS", "ONLY REALTIME", "ONLY CONFIRMED", "DIFFERENT", "WHAT",
)  # fmt: skip
_CODES: Final = {-1: UNKNOWN, 0: DONE, 1: DONE, 2: NOT_SO}  # by level
DAY_MINUTES: Final = 1440

_DESCRIPTION = """\
Measure every signal of every surface and show those that matter, the worst first: each with
its value, its limit, what it means and what to do. Without a command, the exit code is 1 if
anything pages a person, 7 if nothing has arrived in the last hour to tell by, 0 otherwise."""

_EPILOG = """\
examples:
  oncegate signals
  oncegate signals --all --json
  oncegate signals --no-repeats internal.jobs
  oncegate signals repeats --surface portbase.cis
  oncegate signals drift --partner exec-1
  oncegate signals rules > oncegate.rules.yml
  oncegate signals limit quarantines --surface routes --page 10 --reason "migration until Friday"
  oncegate signals dashboard > oncegate.dashboard.json"""


def add_parser(subparsers: Any) -> None:
    """Adds the command group to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "signals",
        help="show what is measured and what calls a person",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    add_url(parser)
    add_json(parser)
    parser.add_argument("--all", action="store_true", help="also show signals that are as they should be")
    parser.add_argument(
        "--no-repeats", action="append", default=[], metavar="SURFACE",
        help="a surface on which nothing is ever sent twice: no repeats are no alarm there",
    )  # fmt: skip
    parser.set_defaults(run=run_signals)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    _add_repeats(commands)
    _add_drift(commands)
    _add_rules(commands)
    _add_dashboard(commands)
    add_limits(commands)


def _add_repeats(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "repeats",
        help="show a surface's repeats by class, with the evidence against senders",
        description="Show how often each class of repeats was seen at a surface, what to do about it, and"
        " the latest ones that point at a fault of the sender.",
    )
    parser.add_argument("--surface", type=read_text, required=True, help="repeats of this surface")
    parser.add_argument(
        "--days", type=read_number, default=DAYS_DEFAULT, metavar="N",
        help="of the last so many days (default: %(default)s)",
    )  # fmt: skip
    add_url(parser)
    add_json(parser)
    parser.set_defaults(run=run_repeats)


def _add_drift(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "drift",
        help="compare realtime calls with the confirmations of their windows",
        description="Compare what partners said in realtime with the confirmation of the same window: items"
        " that only one side has, quantities that differ, windows never confirmed. A window is judged when"
        " nothing has come for 15 minutes, one without a confirmation after a day. The exit code is 1 if"
        " any differs.",
    )
    parser.add_argument("--partner", type=read_text, help="only windows of this partner")
    parser.add_argument(
        "--hours", type=read_number, default=HOURS_DEFAULT, metavar="N",
        help="windows of the last so many hours (default: %(default)s)",
    )  # fmt: skip
    for name, default in (
        ("window", "window"),
        ("item", "item"),
        ("quantity", "quantity"),
        ("lines", "lines"),
    ):
        parser.add_argument(
            f"--{name}-field", default=default, metavar="PATH",
            help=f"where calls have it, as in [contract] {name}_field (default: %(default)s)",
        )  # fmt: skip
    add_url(parser)
    add_json(parser)
    parser.set_defaults(run=run_drift)


def _add_rules(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "rules",
        help="print alert rules for Prometheus",
        description="Print the signals as alert rules for Prometheus, with the same limits and words.",
    )
    parser.set_defaults(run=run_rules)


def _add_dashboard(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "dashboard",
        help="print a dashboard for Grafana",
        description="Print a dashboard for Grafana with one panel a signal, its limits drawn in.",
    )
    parser.set_defaults(run=run_dashboard)


def run_signals(arguments: argparse.Namespace) -> int:
    """Measures, evaluates and prints."""
    from oncegate.signals.alerts import evaluate, worst
    from oncegate.signals.definition import Level
    from oncegate.signals.definitions import Thresholds
    from oncegate.signals.measures import measure

    store = open_ledger(arguments.url, needs=Facet.STATS)
    with reading(store, arguments.url) as session:
        for surface in arguments.no_repeats:
            refuse_unknown_surface(session, surface)
        snapshot = measure(session, SystemClock())
    given = Thresholds(no_repeats=frozenset(arguments.no_repeats))
    found = evaluate(snapshot, snapshot.thresholds.under(given))
    shown = [signal for signal in found if arguments.all or signal.level > Level.OK]
    if arguments.json:
        for signal in shown:
            print_json(facts(signal))
    else:
        _print_signals(shown)
    if not found:
        tell("nothing was seen yet: no gate has told this ledger about any arrival")
    elif not shown:
        _tell_quiet(found)
    return _CODES[worst(found)]


def _tell_quiet(found: list[Signal]) -> None:
    """Nothing is raised: how many signals are right, and what is not known (I28)."""
    from oncegate.signals.alerts import worst
    from oncegate.signals.definition import Level

    unknown = [signal for signal in found if signal.level is Level.UNKNOWN]
    if worst(found) is Level.UNKNOWN:
        tell("unknown: nothing has arrived in the last hour; nothing is raised. --all shows the signals")
        return
    tell(f"{len(found) - len(unknown)} signals are as they should be; --all shows them")
    silent = sorted({signal.surface for signal in unknown})
    if silent:
        tell(f"unknown: {len(unknown)} signals of {', '.join(silent)}: no arrivals in the last hour")


def facts(signal: Signal) -> dict[str, Any]:
    """A signal as JSON."""
    return {
        "signal": signal.definition.name,
        "surface": None,
        **({signal.definition.label: signal.surface} if signal.surface else {}),
        "level": signal.level.label,
        "value": signal.value,
        "unit": signal.definition.unit.value,
        "limit": signal.limit,
        "detail": signal.detail,
        "meaning": signal.definition.meaning,
        "action": signal.action,
    }


def _print_signals(signals: list[Signal]) -> None:
    if not signals:
        return
    print_table(
        ("LEVEL", "SIGNAL", "WHERE", "VALUE", "LIMIT", "DETAIL"), [_row(signal) for signal in signals]
    )
    told: set[str] = set()
    for signal in signals:
        if signal.level > 0 and signal.definition.name not in told:
            told.add(signal.definition.name)
            tell("")
            tell(f"{signal.definition.name}: {signal.definition.meaning}")
            tell(f"  {signal.action}")


def _row(signal: Signal) -> list[Cell]:
    colours = {0: Colour.GREEN, 1: Colour.YELLOW, 2: Colour.RED}
    colour, unit = colours.get(signal.level), signal.definition.unit
    return [
        Cell.of(signal.level.label) if colour is None else Cell.of(signal.level.label, colour),
        Cell.of(signal.definition.name),
        Cell.of(signal.surface),
        Cell.of(unit.shown(signal.value)),
        Cell.of("" if signal.limit is None else unit.shown(signal.limit)),
        Cell.of(grouped(signal.detail)),
    ]


def run_repeats(arguments: argparse.Namespace) -> int:
    """Prints classes and evidence."""
    from oncegate.signals.snapshot import NOTHING, by_surface

    clock = SystemClock()
    end = clock.wall_ms() // 60_000 + 1
    store = open_ledger(arguments.url, needs=Facet.STATS)
    with reading(store, arguments.url) as session:
        refuse_unknown_surface(session, arguments.surface)
        begin = end - arguments.days * DAY_MINUTES
        counts = by_surface(session.tally_sums(begin, end)).get(arguments.surface, NOTHING)
        bugs = session.sender_bugs(arguments.surface, BUGS_SHOWN)
    classes = sorted(counts.classes().items())
    if arguments.json:
        _print_repeats_json(arguments.surface, counts.arrivals, classes, bugs)
        return DONE
    asked = f"; {counts.retries:,} came again as asked" if counts.retries else ""
    known = f"{counts.repeats:,} of keys already known{asked}"
    tell(f"{counts.arrivals:,} arrivals in {arguments.days} days, {known}")
    rows = [
        [Cell.of(kind.label), Cell.of(grouped(count)), Cell.of(kind.harm.value), Cell.of(kind.advice)]
        for kind, count in classes
    ]
    if rows:
        print_table(("CLASS", "COUNT", "WHICH IS A", "WHAT TO DO"), rows)
    print_repeats("latest that point at a sender (UTC)", bugs, with_entry=True)
    return DONE


def _print_repeats_json(
    surface: str, arrivals: int, classes: Iterable[tuple[Any, int]], bugs: Iterable[Repeat]
) -> None:
    counted = {kind.label: count for kind, count in classes}
    evidence = [repeat_facts(bug) for bug in bugs]
    print_json({"surface": surface, "arrivals": arrivals, "classes": counted, "sender_bugs": evidence})


def run_drift(arguments: argparse.Namespace) -> int:
    """Compares and prints."""
    from oncegate.maintenance.drift_scan import DriftScan
    from oncegate.model.drift import DriftFields

    fields = DriftFields(
        arguments.window_field, arguments.item_field, arguments.quantity_field, arguments.lines_field
    )
    store = open_ledger(arguments.url, needs=Facet.STATS)
    with reading(store, arguments.url):
        pass  # says what is wrong with the address
    report = DriftScan(
        store, SystemClock(), realtime=REALTIME, confirmed=WINDOWS, fields=fields,
        horizon=timedelta(hours=arguments.hours), entries_max=ENTRIES_LOOKED_AT,
    ).look()  # fmt: skip
    found = [
        one
        for one in report.drifts
        if arguments.partner in (None, one.partner, f"{one.tenant}/{one.partner}")
    ]
    if arguments.json:
        for drift in found:
            print_json(msgspec.to_builtins(drift))
    elif found:
        print_table(DRIFT_COLUMNS, [_drift_row(drift) for drift in found])
    if not report.is_complete:
        tell(f"more than {report.looked:,} calls: nothing was judged; give fewer --hours")
        return NOT_SO
    tell(f"{report.judged:,} windows judged, {len(found):,} differ")
    return NOT_SO if found else DONE


def _drift_row(drift: Drift) -> list[Cell]:
    what = "no confirmation" if drift.unconfirmed else ", ".join(drift.examples)
    numbers = (drift.realtime_calls, drift.only_realtime, drift.only_confirmed, drift.differing)
    place = (f"{drift.tenant}/{drift.partner}", drift.window)
    return [*map(Cell.of, place), *map(Cell.of, numbers), Cell.of(what)]


def run_rules(arguments: argparse.Namespace) -> int:
    """Prints alert rules."""
    from oncegate.service.alarming import thresholds_of
    from oncegate.service.config_loader import read_configuration
    from oncegate.signals.rules import alert_rules

    path = Path(SETTINGS_FILE)
    settings = read_configuration(path if path.exists() else None, os.environ).settings
    print(alert_rules(thresholds_of(settings)), end="")
    return DONE


def run_dashboard(arguments: argparse.Namespace) -> int:
    """Prints a dashboard."""
    from oncegate.signals.dashboard import dashboard

    print(dashboard(), end="")
    return DONE
