"""`oncegate surfaces switch` and `ignore`: decisions about a surface that running processes obey."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import closing
from typing import Any

from oncegate.cli.confirming import is_confirmed
from oncegate.cli.exitcodes import DONE, NOT_SO
from oncegate.cli.ledger import open_ledger, reading
from oncegate.cli.output import print_json, tell
from oncegate.cli.sending import word_of
from oncegate.clock import SystemClock
from oncegate.commit.group_commit import GroupCommit
from oncegate.model.surface_decisions import (
    OBEYED_SECONDS,
    SurfaceDecisions,
    SurfaceMode,
    ignoring,
    read_mode,
)
from oncegate.review.surface_decisions import check_known, decide, decided_about, switched_to

_SWITCH = f"""\
Switch a surface while programs run; they obey within {OBEYED_SECONDS} seconds, while the ledger answers.
  observe   the handler runs for every arrival; the gate records what it would have done
  on        the gate admits each event once; what ran while it observed is known, and replays
  paused    arrivals are refused (503, Retry-After); recovery and accepted events rest; nothing is lost"""
_IGNORE = """\
Ignore a field from now on when two arrivals of one key are compared, as ignore= does. Known keys are
compared without it too, as long as their events are kept. Name it in ignore= with the next release."""

Change = Callable[[SurfaceDecisions, str, str, int], SurfaceDecisions]


def add_commands(commands: Any, command: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds the commands to `oncegate surfaces`."""
    switch = command(commands, "switch", "observe, on or paused, while programs run", _SWITCH, run_switch)
    switch.add_argument("mode", metavar="observe|on|paused", help="what the gate does there from now on")
    ignore = command(
        commands, "ignore", "ignore a field that changes with each sending", _IGNORE, run_ignore
    )
    ignore.add_argument("path", metavar="FIELD", help="its path, such as payload.id")


def run_switch(arguments: argparse.Namespace) -> int:
    """Switches a surface."""
    mode = read_mode(arguments.mode)

    def change(seen: SurfaceDecisions, actor: str, reason: str, at_ms: int) -> SurfaceDecisions:
        return switched_to(seen, mode, actor, reason, at_ms)

    return make_decision(arguments, change, f"switched to {mode.value}", _MEANS[mode])


_MEANS = {
    SurfaceMode.OBSERVE: "every arrival runs, repeats too; the gate only records",
    SurfaceMode.ON: "each event runs once; keys that are known, also from observing, replay",
    SurfaceMode.PAUSED: "nothing runs and nothing is taken; senders are asked to come again",
}


def run_ignore(arguments: argparse.Namespace) -> int:
    """Ignores a field."""

    def change(seen: SurfaceDecisions, actor: str, reason: str, at_ms: int) -> SurfaceDecisions:
        return ignoring(seen, arguments.path)

    means = "two arrivals of one key that differ in it alone are the same event"
    return make_decision(arguments, change, f"ignores {arguments.path}", means)


def make_decision(arguments: argparse.Namespace, change: Change, what: str, means: str) -> int:
    """Shows what a decision means, and makes it once."""
    store, clock, word = open_ledger(arguments.url), SystemClock(), word_of(arguments)
    with reading(store, arguments.url) as session:
        check_known(session, arguments.surface)
        seen = decided_about(session, arguments.surface)
    made = change(seen.decided, word.actor, word.reason, clock.wall_ms())
    if not arguments.json:
        tell(f"{arguments.surface}: {what}: {means}; running processes obey within {OBEYED_SECONDS} s")
    is_done = not arguments.dry_run and (arguments.yes or is_confirmed(1))
    if is_done:
        with closing(GroupCommit(store)) as commits:
            decide(commits, clock, seen, made, what=what, actor=word.actor, reason=word.reason)
    if arguments.json:
        print_json({"surface": arguments.surface, "decided": made.text, "done": is_done})
    elif is_done:
        print(f"{arguments.surface}: {made.text}")
    else:
        tell("nothing was changed")
    return DONE if is_done or arguments.dry_run else NOT_SO
