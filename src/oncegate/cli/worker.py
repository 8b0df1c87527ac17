"""`oncegate worker`: does all background work of a ledger in one process, until it is stopped."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, Final

from oncegate.cli.app import add_app, load_gate
from oncegate.cli.exitcodes import DONE
from oncegate.cli.ledger import open_ledger
from oncegate.cli.output import print_json, tell
from oncegate.cli.parser import add_json, add_url
from oncegate.config import SETTINGS_FILE
from oncegate.errors import ConfigError, StoreUnavailable
from oncegate.journal.rollback.applying import RollbackReport
from oncegate.journal.snapshots.taking import SnapshotTaken
from oncegate.lanes import Pass
from oncegate.maintenance.background import Worker
from oncegate.maintenance.content_scan import ScanReport
from oncegate.maintenance.jobs import DOES, KINDS
from oncegate.maintenance.lane_pruner import LanesPruned
from oncegate.maintenance.pruner import PruneReport
from oncegate.maintenance.reconciler import Report
from oncegate.model.escape import visible
from oncegate.sender.endpoint_registry import KIND as ENDPOINT
from oncegate.sender.loops import run as run_in_loop
from oncegate.signals.watch import WatchReport
from oncegate.store import Facet
from oncegate.wiring import Gate

CLOSED_WITHIN_SECONDS: Final = 2.0
ALARMS_TO: Final = "ONCEGATE_ALARMS_TO"
PING: Final = "ONCEGATE_PING"
NO_HANDLERS: Final = "it needs the handlers; give the program with --app module:gate"

_DESCRIPTION = f"""\
Do all background work of a ledger in one process, until SIGTERM or an interrupt. The jobs:

{"".join(f"  {kind:<11} {DOES[kind]}{chr(10)}" for kind in KINDS)}
The program that has the handlers is imported: recovery, accepted events and sources run through
them. Sources are the queues that it names with gate.consume(…).
Without --app the other jobs run. Any number of workers may run on one ledger, beside programs
that do their own background work. Endpoints that are added later are noticed within seconds.

Stopping waits up to --grace for what is under way; a second signal does not wait. What is left
behind is recovered later. The exit code is 0 after a stop, 2 for a wrong option, and 4 to 6 for
a ledger that cannot be used. A ledger that cannot be reached is tried again; with --once the
exit code is 3."""

_EPILOG = """\
examples:
  oncegate worker --app bookings:gate
  oncegate worker --app bookings:gate --only recovery,pruning
  oncegate worker --app bookings:gate --without deliveries --reconcile-every 10s --json
  oncegate worker --only deliveries          # no handlers are needed
  oncegate worker --only deliveries --once   # send what can be sent now, then end"""

# Each is an option, its default, its placeholder and its help.
_OPTIONS: Final[tuple[tuple[str, str | None, str, str], ...]] = (
    ("--only", None, "JOBS", "run these jobs only, as a list with commas"),
    ("--without", None, "JOBS", "run all jobs but these"),
    ("--reconcile-every", "5s", "TIME", "longest time between two runs of recovery"),
    ("--prune-every", "1h", "TIME", "longest time between two prunings"),
    ("--keep-delivered", "7d", "TIME", "how long events of lanes are kept once they are delivered"),
    ("--scan-every", "1d", "TIME", "longest time between two scans for content duplicates"),
    ("--watch-every", "1m", "TIME", "longest time between two measurements of the signals"),
    ("--alarms-to", None, "URL", f"also post alarms there, as JSON (default: ${ALARMS_TO}, if set)"),
    (
        "--ping",
        None,
        "URL",
        f"post there after every measurement: a dead man's ping (default: ${PING}, if set)",
    ),
    ("--grace", "10s", "TIME", "how long stopping waits for what is under way"),
)


def add_parser(subparsers: Any) -> None:
    """Adds the command to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "worker",
        help="do all background work in one process, until stopped",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    add_app(parser, required=False)
    for name, default, metavar, text in _OPTIONS:
        shown = text if default is None else f"{text} (default: %(default)s)"
        parser.add_argument(name, default=default, metavar=metavar, help=shown)
    parser.add_argument(
        "--alarm-command", nargs="+", metavar="WORD",
        help="also run this program with its arguments, without a shell; the notice is JSON on its input",
    )  # fmt: skip
    parser.add_argument(
        "--once", action="store_true", help="run every job once with what is due now, then end"
    )
    add_url(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Works until it is stopped; what does not end within the grace is left behind."""
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    gate = _gate(arguments)
    worker = gate.worker(
        **_choice(arguments),
        reconcile_every=arguments.reconcile_every,
        prune_every=arguments.prune_every,
        scan_every=arguments.scan_every,
        keep_delivered=arguments.keep_delivered,
        watch_every=arguments.watch_every,
        **_settings(arguments),
        notice=_show_json if arguments.json else _show,
        grace=arguments.grace,
    )
    if arguments.app is None:
        worker.left_out["recovery"] = NO_HANDLERS
    _announce(gate, worker, is_once=arguments.once)
    run_in_loop(worker.run_once() if arguments.once else _work(worker))
    _close(gate, worker)
    tell("done" if arguments.once else "stopped")
    return DONE


def _gate(arguments: argparse.Namespace) -> Gate:
    if arguments.app is None:
        store = open_ledger(arguments.url, needs=Facet.OPEN_ENTRIES)
        if Facet.LANES not in store.capabilities.facets:
            raise ConfigError(f"a {store.capabilities.name} ledger needs recovery only: {NO_HANDLERS}")
        return Gate(store=store)
    if arguments.url is not None:
        raise ConfigError("--url and --app exclude each other: the gate knows its own ledger")
    return load_gate(arguments.app)


def _choice(arguments: argparse.Namespace) -> dict[str, Any]:
    """The jobs that were chosen; without handlers there is no recovery."""
    only, without = _names(arguments.only), _names(arguments.without) or []
    if arguments.app is not None:
        return {"only": only, "without": without}
    if only is not None and "recovery" in only:
        raise ConfigError(f"the job recovery cannot run: {NO_HANDLERS}")
    return {"only": only, "without": without if only else [*without, "recovery"]}


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",")]


def _announce(gate: Gate, worker: Worker, *, is_once: bool) -> None:
    """Says in a line each what runs and what does not, and why; raises where the ledger is unusable."""
    endpoints: int | None = None
    try:
        gate.engine.store.connect().close()
        with gate.engine.store.look() as session:
            if Facet.LANES in gate.engine.store.capabilities.facets:
                endpoints = len(session.documents(ENDPOINT))
    except StoreUnavailable as error:
        if is_once:
            raise
        tell(f"the ledger cannot be reached now and is tried again: {error}")
    names = ", ".join(surface.name for surface in gate.engine.surfaces)
    tell(f"worker at {gate.engine.store.address}{f' for {names}' if names else ''}")
    for kind in KINDS:
        if kind in worker.left_out:
            tell(f"{kind}: left out: {worker.left_out[kind]}")
        elif kind == "deliveries" and endpoints == 0:
            tell(f"{kind}: waits: there are no endpoints; add one with: oncegate endpoints add")
        else:
            tell(f"{kind}: {DOES[kind]}")


def _close(gate: Gate, worker: Worker) -> None:
    closing = threading.Thread(target=gate.close, daemon=True)
    closing.start()
    closing.join(CLOSED_WITHIN_SECONDS)
    if closing.is_alive() or worker.is_running:
        _leave()


def _settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """What oncegate.toml says of alarms and the feed, and what the command line adds.

    Without handlers and settings the feed is not pruned: only its service knows how long it keeps events.
    """
    from oncegate.service.alarming import alarm_options
    from oncegate.service.config_loader import read_configuration
    from oncegate.signals.commands import CommandNotifier

    path = Path(SETTINGS_FILE)
    settings = read_configuration(path if path.exists() else None, os.environ).settings
    options = alarm_options(settings, os.environ)
    is_known = arguments.app is not None or path.exists()
    options["feed_retention"] = settings.feed.retention if is_known else None
    if arguments.alarm_command:
        options["notifiers"].append(CommandNotifier(arguments.alarm_command))
    options["alarms_to"] = arguments.alarms_to or os.environ.get(ALARMS_TO) or None
    options["ping"] = arguments.ping or os.environ.get(PING) or options["ping"]
    return options


async def _work(worker: Worker) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _ask_to_stop, stop)
    async with worker:
        tell("started")
        await stop.wait()
        tell("stopping")


def _ask_to_stop(stop: asyncio.Event) -> None:
    if stop.is_set():
        _leave()
    stop.set()


def _leave() -> None:
    """Ends at once: a thread that hangs in a user's function would keep a normal end waiting for ever."""
    tell("stopped; what was still under way is recovered when its lease expires")
    sys.stdout.flush()
    os._exit(DONE)


def _show(name: str, report: object) -> None:
    for line in _lines(name, report):
        job, *facts = [(name, value) for name, value in line.items() if value not in (None, "")]
        print(visible(f"{job[1]}: {', '.join(f'{name} {value}' for name, value in facts)}"), flush=True)


def _show_json(name: str, report: object) -> None:
    for line in _lines(name, report):
        print_json(line)
    sys.stdout.flush()


def _lines(name: str, report: object) -> list[dict[str, Any]]:
    """What a run did, one line a thing; a run that found nothing to do has none."""
    if isinstance(report, Report):
        return [
            {"job": name, "entry": item.entry_id, "surface": item.surface, "label": item.label,
             "became": item.became, "reason": item.reason}
            for item in report.looked
        ]  # fmt: skip
    if isinstance(report, WatchReport):
        return [
            {"job": name, "surface": item.signal.surface, "signal": item.signal.definition.name,
             "became": item.change.value, "level": item.level.label}
            for item in report.notices
        ]  # fmt: skip
    if isinstance(report, ScanReport):
        return [
            {"job": name, "entry": pair.entry_id, "became": f"a duplicate of entry {pair.other_id}"}
            for pair in report.pairs
        ]
    if isinstance(report, LanesPruned):
        return [{"job": name, "forgotten": report.deliveries}] if report.deliveries else []
    if isinstance(report, PruneReport):
        gone = [(item.surface, item.entries) for item in report.surfaces] + [("unused names", report.names)]
        return [{"job": name, "surface": what, "forgotten": count} for what, count in gone if count]
    if isinstance(report, SnapshotTaken):
        wrong = "; ".join(f"{one.belief}: {one.why}" for one in report.suspicions)
        taken = {"job": name, "number": report.number, "hash": report.hash[:16], "looks_wrong": wrong}
        return [taken] if report.is_new else []
    if isinstance(report, RollbackReport):
        return [{"job": name, "plan": ended} for ended in report.ended]
    if name == "sources" and isinstance(report, list):
        return [
            {"job": name, "source": f"{one.kind} {one.queue}", "surface": one.surface,
             "acknowledged": one.acknowledged, "given_back": one.given_back, "poison": one.poison}
            for one in report
        ]  # fmt: skip
    if isinstance(report, Pass):
        return [{"job": name, "delivered": report.delivered, "failed": report.failed,
                 "next_due_ms": report.next_due_in_ms}]  # fmt: skip
    return []
