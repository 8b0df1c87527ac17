"""`oncegate sources`: the queues that events come from; how they stand, and pausing them."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec import to_builtins

from oncegate.cli.app import add_app, load_gate
from oncegate.cli.exitcodes import DONE, NOT_SO
from oncegate.cli.ledger import open_ledger, reading
from oncegate.cli.output import age, print_json, print_table, tell, utc
from oncegate.cli.parser import add_json, add_url, print_help_as_error, read_text
from oncegate.cli.people import actor_of
from oncegate.cli.sending import cells
from oncegate.clock import SystemClock
from oncegate.commit.group_commit import GroupCommit
from oncegate.config import SETTINGS_FILE
from oncegate.errors import BadSource, ConfigError, SourceUnavailable
from oncegate.sources.contract import Traits
from oncegate.sources.options import Consumption, check_promises
from oncegate.sources.status import (
    SeenSource,
    SourcePause,
    change_pause,
    check_known,
    read_pauses,
    read_sources,
)
from oncegate.store import Facet
from oncegate.wiring import Gate

_HEADERS: Final = (
    "SOURCE", "SURFACE", "STATE", "LAG", "IN FLIGHT", "ACKED", "GIVEN BACK", "REDELIVERED", "POISON",
    "SAID", "BY", "LAST ERROR",
)  # fmt: skip
_CHECK_SECONDS: Final = 30.0
_EPILOG: Final = """\
examples:
  oncegate sources list
  oncegate sources check --app bookings:gate
  oncegate sources pause sqs:portbase --reason "a bad deploy"
  oncegate sources resume sqs:portbase"""


def add_parser(subparsers: Any) -> None:
    """Adds the command group to the command line."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "sources",
        help="list, check, pause and resume the queues that events come from",
        description="Look at the consumers of queues. They run in `oncegate worker` or in your program, and"
        " say in the ledger every few seconds how they stand.",
        epilog=_EPILOG,
    )
    parser.set_defaults(run=print_help_as_error)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    listing = commands.add_parser(
        "list",
        help="list consumers: lag, in flight, redeliveries, poison, last error",
        description="List the consumers that any process has told of in the last day.",
    )
    add_url(listing)
    add_json(listing)
    listing.set_defaults(run=_run_list)
    _add_check(commands)
    for name, text in (
        ("pause", "receive nothing from a source for now, in every process; messages stay in the queue"),
        ("resume", "receive from a paused source again"),
    ):
        _add_change(commands, name, text)


def _add_check(commands: Any) -> None:
    parser = commands.add_parser(
        "check",
        help="connect to every source and check its settings; nothing is received",
        description="Connect to every source that the program or oncegate.toml names, and check that its"
        " settings lose nothing. Nothing is received. The exit code is 1 if a source cannot be consumed.",
    )
    add_app(parser, required=False)
    add_json(parser)
    parser.set_defaults(run=_run_check)


def _add_change(commands: Any, name: str, text: str) -> None:
    parser = commands.add_parser(name, help=text, description=f"{text.capitalize()}.")
    parser.add_argument("source", type=read_text, help="the name, as listed")
    if name == "pause":
        parser.add_argument("--reason", type=read_text, required=True, help="why; kept in the log")
    parser.add_argument(
        "--as", "--by", dest="actor", metavar="NAME", type=read_text,
        help="who you are (default: your login)",
    )  # fmt: skip
    add_url(parser)
    parser.set_defaults(run=partial(_run_change, pauses=name == "pause"))


def _run_list(arguments: argparse.Namespace) -> int:
    with reading(open_ledger(arguments.url, needs=Facet.STATS), arguments.url) as session:
        seen, pauses = read_sources(session), read_pauses(session)
    if arguments.json:
        for one in seen:
            pause = pauses.get(one.name)
            print_json({
                "source": one.name, **to_builtins(one.status), "told_by": one.writer,
                "told_ago_ms": one.age_ms, "silent": one.is_silent,
                "paused_by": None if pause is None else pause.by,
                "paused_because": None if pause is None else pause.why,
            })  # fmt: skip
        return DONE
    if not seen:
        tell("no consumer has reported in the last day; start one with: oncegate worker --app MODULE:GATE")
        return DONE
    print_table(_HEADERS, [_row(one) for one in seen])
    for name, pause in sorted(pauses.items()):
        tell(f"{name} is paused by {pause.by} since {utc(pause.at_ms)[:19]}: {pause.why}")
    return DONE


def _row(one: SeenSource) -> Any:
    status = one.status
    return cells(
        one.name,
        status.surface,
        "silent" if one.is_silent else status.state,
        "" if status.lag is None else status.lag,
        status.in_flight,
        status.acknowledged,
        status.given_back,
        status.redelivered,
        status.poison + status.not_kept,
        f"{age(one.age_ms)} ago",
        one.writer,
        status.last_error or "",
    )


def _run_change(arguments: argparse.Namespace, *, pauses: bool) -> int:
    store, actor, now_ms = open_ledger(arguments.url), actor_of(arguments), SystemClock().wall_ms()
    with reading(store, arguments.url) as session:
        check_known(
            arguments.source, {one.name for one in read_sources(session)} | set(read_pauses(session))
        )
    pause = SourcePause(actor, arguments.reason, now_ms) if pauses else None
    with closing(GroupCommit(store)) as commits:
        changed = change_pause(commits, arguments.source, pause, actor=actor, at_ms=now_ms)
    if not changed:
        tell(
            f"{arguments.source} {'is paused' if pauses else 'is not paused'} already; nothing was changed"
        )
        return NOT_SO
    done = "paused; its consumers stop receiving within seconds" if pauses else "resumed"
    tell(f"{arguments.source} is {done}")
    return DONE


def _run_check(arguments: argparse.Namespace) -> int:
    gate = _gate(arguments)
    if not gate.sources:
        raise ConfigError("no source is named; use gate.consume(…) in the program, or [sources.NAME]")
    wrong = 0
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)  # the answer has the same line
    for one in gate.sources:
        try:
            traits = asyncio.run(_open(gate, one))
        except (BadSource, ConfigError, SourceUnavailable, TimeoutError) as error:
            wrong += 1
            _tell_checked(arguments, one, None, str(error) or "no answer in time")
            continue
        _tell_checked(arguments, one, traits, None)
    return NOT_SO if wrong else DONE


def _gate(arguments: argparse.Namespace) -> Gate:
    if arguments.app is not None:
        return load_gate(arguments.app)
    from oncegate.service.config_loader import read_configuration
    from oncegate.service.sources import consume_all
    from oncegate.service.summary import describe

    path = Path(SETTINGS_FILE)
    settings = read_configuration(path if path.exists() else None, os.environ).settings
    gate = Gate(settings.url)
    describe(gate, settings)
    consume_all(gate, settings, os.environ)
    return gate


async def _open(gate: Gate, one: Consumption) -> Traits:
    try:
        traits = await asyncio.wait_for(one.source.open(_Nothing()), _CHECK_SECONDS)
        return check_promises(one, gate.engine.surface(one.surface), traits)
    finally:
        await one.source.close()


class _Nothing:
    async def drain(self, which: Any, within_seconds: float) -> None:
        """Nothing was received."""


def _tell_checked(
    arguments: argparse.Namespace, one: Consumption, traits: Traits | None, error: str | None
) -> None:
    if arguments.json:
        facts = {} if traits is None else to_builtins(traits)
        print_json(
            {"source": one.name, "surface": one.surface, "ok": error is None, "error": error, **facts}
        )
        return
    if traits is None:
        print(f"{one.name}: cannot be consumed: {error}")
        return
    lease = "until the connection ends" if traits.lease_seconds is None else f"{traits.lease_seconds:g} s"
    print(f"{one.name}: ok: {traits.kind} at {traits.server}, {traits.queue}; held for {lease}")
    for warning in traits.warnings:
        print(f"{one.name}: warning: {warning}")
