"""`python -m lab chaos`: plays seeded schedules of faults against the production gate, or one again.

Data goes to stdout, talk to stderr. Must never say that a campaign passed unless it counts: progress was
made and every kind of fault and every crash point fired.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from oncegate.cli.exitcodes import DONE, NOT_SO
from oncegate.cli.output import print_json, tell
from oncegate.cli.parser import is_row_number, print_help_as_error, read_number
from oncegate.clock import SystemClock
from oncegate.errors import ConfigError

if TYPE_CHECKING:
    from lab.simulator.outcome import Outcome
    from lab.simulator.schedule import Schedule
    from lab.simulator.tally import Tally

SCHEDULES_DEFAULT: Final = 2_000
SEED_DEFAULT: Final = 1

_DESCRIPTION = """\
Play schedules of duplicates, crashes, stalls, lost replies and clock steps against the
production gate and reconciler, in virtual time, and check every invariant after each. The
same seed always gives the same run. The exit code is 1 if a promise was broken, or if the
runs do not count because some kind of fault never happened."""

_EPILOG = """\
examples:
  python -m lab chaos run
  python -m lab chaos run --seed 7 --minutes 10
  python -m lab chaos run --minutes 60 --tally docs/proof-tally.json
  python -m lab chaos replay 4711"""


def add_parser(subparsers: Any) -> None:
    """Adds the command to the command line."""
    parser = subparsers.add_parser(
        "chaos", help="play seeded faults against the gate", description=_DESCRIPTION, epilog=_EPILOG
    )
    parser.set_defaults(run=print_help_as_error)
    commands = parser.add_subparsers(metavar="COMMAND")
    _add_run(commands)
    _add_replay(commands)


def _add_run(commands: Any) -> None:
    run = commands.add_parser("run", help="play many schedules", description=_DESCRIPTION)
    run.add_argument(
        "--seed", type=read_number, help="the first seed (default: 1, or where the tally ends)"
    )
    run.add_argument("--schedules", type=read_number, metavar="N", help="how many (default: 2000)")
    run.add_argument("--minutes", type=_minutes, metavar="M", help="or for how long")
    run.add_argument("--processes", type=read_number, metavar="P", help="at once (default: one a core)")
    run.add_argument(
        "--tally", type=Path, metavar="FILE", help="go on after this file's last seed, and add to it"
    )
    run.add_argument("--json", action="store_true", help="print one JSON document")
    run.set_defaults(run=run_campaign)


def _add_replay(commands: Any) -> None:
    text = "Play one schedule again, print everything that happened, and make it small if it fails."
    replay = commands.add_parser("replay", help="play one schedule again", description=text)
    replay.add_argument("schedule", metavar="SEED|SCHEDULE", help="a seed, or a schedule as it was printed")
    replay.add_argument(
        "--traffic", action="store_true", help="a seed's schedule of lanes, feed and rulings instead"
    )
    replay.set_defaults(run=run_replay)


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0
    if not 0 < minutes <= 60 * 24 * 31:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number of minutes")
    return minutes


def run_campaign(arguments: argparse.Namespace) -> int:
    """Plays many schedules and says what they came to."""
    from lab.simulator.campaign import campaign
    from lab.simulator.report import summary
    from lab.simulator.tally_file import TallyFile

    file = None if arguments.tally is None else TallyFile(arguments.tally)
    first = arguments.seed or (file.next_seed if file else SEED_DEFAULT)
    clock = SystemClock()
    started = clock.ticks_ms()
    until = None if arguments.minutes is None else started + arguments.minutes * 60_000
    tally = campaign(
        first,
        goes_on=lambda _: until is None or clock.ticks_ms() < until,
        schedules_max=arguments.schedules or (SCHEDULES_DEFAULT if until is None else None),
        processes=arguments.processes,
        may_fork=True,  # this command has no ledger, and no threads yet
    )
    seconds = (clock.ticks_ms() - started) / 1000
    if file is not None:
        file.add(first, tally, seconds, clock.wall_ms())
    if arguments.json:
        print_json({"seed": first, "seconds": seconds, **tally.document(), "gaps": list(tally.gaps())})
    else:
        print("\n".join(summary(tally, first, seconds)))
    _explain(tally)
    return NOT_SO if tally.failed or any(tally.gaps()) else DONE


def _explain(tally: Tally) -> None:
    """Makes the first failing schedule small and shows it."""
    if not tally.failures:
        return
    from lab.simulator.outcome import play
    from lab.simulator.report import failure, smallest
    from lab.simulator.tally import TRAFFIC
    from lab.simulator.workload import make_schedule

    seed, texts = next(iter(tally.failures.items()))
    if texts[0].startswith(TRAFFIC):
        tell(f"again: python -m lab chaos replay --traffic {seed}")
        return
    schedule = make_schedule(seed)
    small = smallest(schedule, play(schedule).violations)
    tell("the first of them, made as small as it gets:")
    for line in failure(small, play(small).violations):
        tell(line)


def run_replay(arguments: argparse.Namespace) -> int:
    """Plays one schedule and shows its trace."""
    from lab.simulator.outcome import play_with_trace
    from lab.simulator.report import failure, smallest
    from lab.simulator.schedule import describe

    if arguments.traffic:
        return _replay_traffic(arguments.schedule)
    schedule = _read_schedule(arguments.schedule)
    outcome, trace = play_with_trace(schedule)
    _print_trace(describe(schedule), trace, outcome)
    if not outcome.violations:
        return DONE
    small = smallest(schedule, outcome.violations)
    print("\n".join(failure(small, outcome.violations)))
    return NOT_SO


def _replay_traffic(text: str) -> int:
    """Plays a seed's schedule of lanes, feed and rulings, and makes it small if it fails."""
    from lab.simulator.traffic.outcome import play_traffic_with_trace
    from lab.simulator.traffic.plan import describe, make_traffic
    from lab.simulator.traffic.shrinking import smallest_traffic

    if not is_row_number(text):
        raise ConfigError(f"{text[:60]!r} is not a seed")
    schedule = make_traffic(int(text))
    outcome, trace = play_traffic_with_trace(schedule)
    _print_trace(describe(schedule), trace, outcome)
    if not outcome.violations:
        return DONE
    print("\n".join(f"  {line}" for line in describe(smallest_traffic(schedule, outcome.violations))))
    print("\n".join(f"  => {violation}" for violation in outcome.violations))
    return NOT_SO


def _print_trace(description: list[str], trace: list[tuple[Any, ...]], outcome: Outcome) -> None:
    print("\n".join(description))
    for at, *words in trace:
        print(f"{at:>14.3f} s  {' '.join(str(word) for word in words)}")
    print(f"trace {outcome.digest}: {_ended(outcome)}")


def _ended(outcome: Outcome) -> str:
    return f"{len(outcome.violations)} promises broken" if outcome.violations else "every promise was kept"


def _read_schedule(text: str) -> Schedule:
    from msgspec import DecodeError

    from lab.simulator.schedule import Schedule
    from lab.simulator.workload import make_schedule

    if text.isascii() and text.isdigit() and len(text) < 20:
        return make_schedule(int(text))
    try:
        schedule = Schedule.decode(text)
    except (DecodeError, ValueError, json.JSONDecodeError):
        raise ConfigError(f"{text[:60]!r} is neither a seed nor a schedule as `chaos` prints it") from None
    if not schedule.deliveries or any(item.event >= len(schedule.events) for item in schedule.deliveries):
        raise ConfigError("the schedule delivers nothing, or an event that it does not have")
    return schedule
