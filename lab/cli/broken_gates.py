"""`python -m lab broken-gates`: catches gates that are wrong on purpose, and shows how one is caught."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from oncegate.cli.exitcodes import DONE, NOT_SO
from oncegate.errors import ConfigError

if TYPE_CHECKING:
    from lab.broken_gates.broken_gate import BrokenGate

_DESCRIPTION = """\
Catch the deliberately broken gates of docs/broken-gates.md. With a name, show the smallest
schedule that gives this one away."""


def add_parser(commands: Any) -> None:
    """Registers the command."""
    parser = commands.add_parser("broken-gates", help="catch broken gates", description=_DESCRIPTION)
    parser.add_argument("name", nargs="?", metavar="NAME", help="only this one, with its smallest schedule")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Catches one broken gate or all."""
    from lab.broken_gates import BROKEN_GATES

    if arguments.name is not None and arguments.name not in BROKEN_GATES:
        known = ", ".join(BROKEN_GATES)
        raise ConfigError(f"there is no broken gate {arguments.name[:60]!r}; there are {known}")
    wanted = [arguments.name] if arguments.name else list(BROKEN_GATES)
    caught = [_catch(name, BROKEN_GATES[name], is_alone=len(wanted) == 1) for name in wanted]
    return DONE if all(caught) else NOT_SO


def _catch(name: str, broken: type[BrokenGate], *, is_alone: bool) -> bool:
    from lab.broken_gates.hunt import hunt
    from lab.simulator.schedule import describe

    catch = hunt(broken)
    if catch is None:
        print(f"{name:<28} escaped")
        return False
    invariant = catch.violations[0].invariant
    print(f"{name:<28} caught by {invariant} in schedule {catch.schedules}: {broken.title()}")
    if is_alone:
        print(broken.story())
        print("\n".join(f"  {line}" for line in describe(catch.schedule)))
        print("\n".join(f"  => {violation}" for violation in catch.violations))
    return True
