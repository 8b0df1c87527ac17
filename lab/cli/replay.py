"""`python -m lab replay`: plays recorded arrivals in the simulator, with the faults of a seed."""

from __future__ import annotations

import argparse
from typing import Any

from oncegate.cli.replay import add_recording, conclude, read_files
from oncegate.recorder.recording import Recording
from oncegate.recorder.replaying import ReplayReport

_DESCRIPTION = """\
Play recorded arrivals to the production gate with three workers in the simulator, with the
faults of --seed. It needs no payloads. Every invariant is checked, and the exit code is 1 if
a promise was broken or an expectation was not met."""


def add_parser(commands: Any) -> None:
    """Registers the command."""
    parser = commands.add_parser(
        "replay", help="play recorded arrivals in the simulator", description=_DESCRIPTION
    )
    add_recording(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Plays the recording and tells what came of it."""
    report, broken = simulate(read_files(arguments), arguments)
    return conclude(report, broken, arguments)


def simulate(recording: Recording, arguments: argparse.Namespace) -> tuple[ReplayReport, list[str]]:
    """Plays in the simulator with the faults of a seed; broken promises are what is wrong with it."""
    from lab.simulator.outcome import play
    from lab.simulator.recorded import schedule_of
    from lab.simulator.report import repro

    schedule = schedule_of(recording, arguments.seed, shuffle=arguments.shuffle, surfaces=arguments.surface)
    outcome = play(schedule)
    report = ReplayReport(len(schedule.deliveries), outcome.effects, len(schedule.events))
    for name, count in outcome.counts.items():
        kind, _, what = name.partition(": ")
        if kind == "answer":
            report.verdicts[what] += count
    broken = [str(violation) for violation in outcome.violations]
    return report, [*broken, f"again: {repro(schedule)[:2000]}"] if broken else []
