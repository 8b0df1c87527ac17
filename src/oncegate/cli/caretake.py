"""`oncegate caretake`: runs the caretakers of the user's gate until told to stop."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import threading
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from oncegate.cli.app import add_app, load_gate
from oncegate.cli.exitcodes import DONE
from oncegate.cli.output import print_json, tell
from oncegate.cli.parser import add_json
from oncegate.config import SETTINGS_FILE
from oncegate.maintenance.background import Caretakers
from oncegate.maintenance.content_scan import ScanReport
from oncegate.maintenance.lane_pruner import LanesPruned
from oncegate.maintenance.pruner import PruneReport
from oncegate.maintenance.reconciler import Report
from oncegate.model.escape import visible
from oncegate.signals.watch import WatchReport
from oncegate.wiring import Gate

CLOSED_WITHIN_SECONDS: Final = 2.0
ALARMS_TO: Final = "ONCEGATE_ALARMS_TO"
PING: Final = "ONCEGATE_PING"

_DESCRIPTION = """\
Run a gate's caretakers until SIGTERM or an interrupt: the reconciler, which finishes what a crash
stranded, the pruner, which forgets what is past its retention, the scan for content duplicates, and
the watch, which raises alarms. The program that has the handlers is imported, because stranded
events run through them once more. Any number of these may run, beside programs that run their own.

Stopping waits a while for what is under way; a second signal does not wait."""

_EPILOG = """\
examples:
  oncegate caretake --app bookings:gate
  oncegate caretake --app bookings.wiring:gate --reconcile-every 10s --json
  oncegate caretake --app bookings:gate --alarm-command /usr/local/bin/page-me --urgent"""


def add_parser(subparsers: Any) -> None:
    """Adds the command to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "caretake",
        help="run the caretakers of your gate until stopped",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    add_app(parser, required=True)
    parser.add_argument(
        "--reconcile-every", default="5s", metavar="TIME",
        help="longest time between two looks for stranded keys (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--prune-every", default="1h", metavar="TIME",
        help="longest time between two prunings (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--keep-delivered", default="7d", metavar="TIME",
        help="how long events of lanes are kept once they are delivered (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--scan-every", default="1d", metavar="TIME",
        help="longest time between two scans for content duplicates (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--watch-every", default="1m", metavar="TIME",
        help="longest time between two looks at the signals (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--alarms-to", metavar="URL",
        help=f"also post alarms there, as JSON (default: ${ALARMS_TO}, if set)",
    )  # fmt: skip
    parser.add_argument(
        "--alarm-command", nargs="+", metavar="WORD",
        help="also run this program with its arguments, without a shell; the notice is JSON on its input",
    )  # fmt: skip
    parser.add_argument(
        "--ping", metavar="URL",
        help=f"post there at every look that went well: a dead man's ping (default: ${PING}, if set)",
    )  # fmt: skip
    parser.add_argument(
        "--grace", default="10s", metavar="TIME",
        help="how long stopping waits for what is under way (default: %(default)s)",
    )  # fmt: skip
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Runs until told to stop; what does not end within the grace is left to lapse."""
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    gate = load_gate(arguments.app)
    show = _show_json if arguments.json else _show
    caretakers = gate.caretakers(
        reconcile_every=arguments.reconcile_every,
        prune_every=arguments.prune_every,
        scan_every=arguments.scan_every,
        keep_delivered=arguments.keep_delivered,
        watch_every=arguments.watch_every,
        **_alarms(arguments),
        notice=show,
        grace=arguments.grace,
    )
    asyncio.run(_care(gate, caretakers))
    closing = threading.Thread(target=gate.close, daemon=True)
    closing.start()
    closing.join(CLOSED_WITHIN_SECONDS)
    if closing.is_alive() or caretakers.are_running:
        _leave()
    tell("stopped")
    return DONE


def _alarms(arguments: argparse.Namespace) -> dict[str, Any]:
    """Whom alarms go to: the settings in [alarms] of oncegate.toml, and what the command line adds."""
    from oncegate.service.alarming import alarm_options
    from oncegate.service.config_loader import read_configuration
    from oncegate.signals.commands import CommandNotifier

    path = Path(SETTINGS_FILE)
    settings = read_configuration(path if path.exists() else None, os.environ).settings
    options = alarm_options(settings, os.environ)
    if arguments.alarm_command:
        options["notifiers"].append(CommandNotifier(arguments.alarm_command))
    options["alarms_to"] = arguments.alarms_to or os.environ.get(ALARMS_TO) or None
    options["ping"] = arguments.ping or os.environ.get(PING) or options["ping"]
    return options


async def _care(gate: Gate, caretakers: Caretakers) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _ask_to_stop, stop)
    async with AsyncExitStack() as work:
        await work.enter_async_context(caretakers)
        if any(surface.lane is not None for surface in gate.engine.surfaces):
            await work.enter_async_context(gate.working())
        names = ", ".join(surface.name for surface in gate.engine.surfaces)
        tell(f"looking after {names} at {gate.engine.store.address}")
        await stop.wait()
        tell("stopping")


def _ask_to_stop(stop: asyncio.Event) -> None:
    if stop.is_set():
        _leave()
    stop.set()


def _leave() -> None:
    """Ends at once: a thread that hangs in a user's function would keep a normal end waiting for ever."""
    tell("stopped; what was still under way will be looked into once its lease is over")
    sys.stdout.flush()
    os._exit(DONE)


def _show(name: str, report: object) -> None:
    for line in _lines(name, report):
        print(
            visible(" ".join(str(value) for value in line.values() if value not in (None, ""))), flush=True
        )


def _show_json(name: str, report: object) -> None:
    for line in _lines(name, report):
        print_json(line)
    sys.stdout.flush()


def _lines(name: str, report: object) -> list[dict[str, Any]]:
    """What a turn did, one line a thing; a turn that found nothing to do has none."""
    if isinstance(report, Report):
        return [
            {"caretaker": name, "entry": item.entry_id, "surface": item.surface, "label": item.label,
             "became": item.became, "reason": item.reason}
            for item in report.looked
        ]  # fmt: skip
    if isinstance(report, WatchReport):
        return [
            {"caretaker": name, "surface": item.signal.surface, "signal": item.signal.definition.name,
             "became": item.change.value, "level": item.level.label}
            for item in report.notices
        ]  # fmt: skip
    if isinstance(report, ScanReport):
        return [
            {"caretaker": name, "entry": pair.entry_id, "became": f"a duplicate of entry {pair.other_id}"}
            for pair in report.pairs
        ]
    if isinstance(report, LanesPruned):
        return [{"caretaker": name, "forgotten": report.deliveries}] if report.deliveries else []
    if isinstance(report, PruneReport):
        gone = [(item.surface, item.entries) for item in report.surfaces] + [("unused names", report.names)]
        return [{"caretaker": name, "surface": what, "forgotten": count} for what, count in gone if count]
    return []
