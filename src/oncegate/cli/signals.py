"""`oncegate signals`: what is measured, what calls somebody, and what others watch it with.

Must only read. Ends with 1 if anything pages, so that a job or a probe can ask.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from oncegate.cli.entries import refuse_unknown_surface
from oncegate.cli.exitcodes import DONE, NOT_SO
from oncegate.cli.ledger import open_ledger, reading
from oncegate.cli.output import Cell, Colour, print_json, print_table, tell
from oncegate.cli.parser import add_json, add_url, read_number, read_text
from oncegate.cli.repeats import print_repeats, repeat_facts
from oncegate.clock import SystemClock

if TYPE_CHECKING:
    from oncegate.signals.alerts import Signal
    from oncegate.store import Repeat

DAYS_DEFAULT: Final = 7
BUGS_SHOWN: Final = 20
DAY_MINUTES: Final = 1440

_DESCRIPTION = """\
Measure every signal of every surface and show those that matter, the worst first: each with
its value, its limit, what it means and what to do. Without a command, the exit code is 1 if
anything pages somebody, 0 otherwise."""

_EPILOG = """\
examples:
  oncegate signals
  oncegate signals --all --json
  oncegate signals --no-repeats internal.jobs
  oncegate signals repeats --surface portbase.cis
  oncegate signals rules > oncegate.rules.yml
  oncegate signals dashboard > oncegate.dashboard.json"""


def add_parser(subparsers: Any) -> None:
    """Adds the command group to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "signals",
        help="show what is measured and what calls somebody",
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
    _add_rules(commands)
    _add_dashboard(commands)


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
    from oncegate.signals.definitions import Level, Thresholds
    from oncegate.signals.measures import measure

    store = open_ledger(arguments.url)
    with reading(store, arguments.url) as session:
        for surface in arguments.no_repeats:
            refuse_unknown_surface(session, surface)
        snapshot = measure(session, SystemClock())
    found = evaluate(snapshot, Thresholds(no_repeats=frozenset(arguments.no_repeats)))
    shown = [signal for signal in found if arguments.all or signal.level is not Level.OK]
    if arguments.json:
        for signal in shown:
            print_json(facts(signal))
    else:
        _print_signals(shown)
    if not found:
        tell("nothing was seen yet: no gate has told this ledger about any arrival")
    elif not shown:
        tell(f"all {len(found)} signals are as they should be; --all shows them")
    return NOT_SO if worst(found) is Level.PAGE else DONE


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
        if signal.level.value and signal.definition.name not in told:
            told.add(signal.definition.name)
            tell("")
            tell(f"{signal.definition.name}: {signal.definition.meaning}")
            tell(f"  {signal.action}")


def _row(signal: Signal) -> list[Cell]:
    colours = (Colour.GREEN, Colour.YELLOW, Colour.RED)
    return [
        Cell.of(signal.level.label, colours[signal.level]),
        Cell.of(signal.definition.name),
        Cell.of(signal.surface),
        Cell.of(shown_value(signal, signal.value)),
        Cell.of("" if signal.limit is None else shown_value(signal, signal.limit)),
        Cell.of(signal.detail),
    ]


def shown_value(signal: Signal, value: float) -> str:
    """A value with its unit, for people."""
    from oncegate.signals.definitions import Unit

    unit = signal.definition.unit
    if unit is Unit.RATIO:
        return f"{value:.1%}"
    return f"{value:,.3g} s" if unit is Unit.SECONDS and value < 1 else _whole(value, unit is Unit.SECONDS)


def _whole(value: float, is_time: bool) -> str:
    return f"{value:,.0f} s" if is_time else f"{value:,.0f}"


def run_repeats(arguments: argparse.Namespace) -> int:
    """Prints classes and evidence."""
    from oncegate.signals.snapshot import NOTHING, by_surface

    clock = SystemClock()
    end = clock.wall_ms() // 60_000 + 1
    store = open_ledger(arguments.url)
    with reading(store, arguments.url) as session:
        refuse_unknown_surface(session, arguments.surface)
        begin = end - arguments.days * DAY_MINUTES
        counts = by_surface(session.tally_sums(begin, end)).get(arguments.surface, NOTHING)
        bugs = session.sender_bugs(arguments.surface, BUGS_SHOWN)
    classes = sorted(counts.classes().items())
    if arguments.json:
        _print_repeats_json(arguments.surface, counts.arrivals, classes, bugs)
        return DONE
    tell(f"{counts.arrivals} arrivals in {arguments.days} days, {counts.repeats} of keys already known")
    rows = [
        [Cell.of(kind.label), Cell.of(count), Cell.of(kind.harm.value), Cell.of(kind.advice)]
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


def run_rules(arguments: argparse.Namespace) -> int:
    """Prints alert rules."""
    from oncegate.signals.rules import alert_rules

    print(alert_rules(), end="")
    return DONE


def run_dashboard(arguments: argparse.Namespace) -> int:
    """Prints a dashboard."""
    from oncegate.signals.dashboard import dashboard

    print(dashboard(), end="")
    return DONE
