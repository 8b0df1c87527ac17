"""What a person reads after a campaign or about one failing schedule."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from lab.simulator.checkers.violation import Violation
from lab.simulator.minimise import minimise
from lab.simulator.outcome import play
from lab.simulator.schedule import Schedule, describe
from lab.simulator.tally import Tally
from lab.simulator.worker import Blueprint


def summary(tally: Tally, first_seed: int, seconds: float) -> list[str]:
    """The campaign in a few lines."""
    played = tally.schedules + tally.traffic
    rate = played / seconds if seconds else 0.0
    lines = [
        f"{tally.schedules:,} schedules from seed {first_seed} in {seconds:.1f} s ({rate:,.0f} a second)",
        f"and {tally.traffic:,} of lanes, feed and rulings",
        *_processor_time(played, tally.processor_seconds),
        f"{tally.committed:,} events committed, {tally.effects:,} effects at downstreams",
        "",
    ]
    lines += [f"{count:>9,}  {name}" for name, count in sorted(tally.counts.items())]
    lines += ["", *_verdict(tally)]
    return lines


def _processor_time(played: int, seconds: float) -> Iterable[str]:
    """What a run costs, whatever else the machine was doing: to be compared where the rate is not."""
    if played and seconds:
        rate = 2 * played / seconds
        yield f"{seconds / played * 1000:.2f} ms of processor time each: {rate:,.0f} a second on two cores"


def _verdict(tally: Tally) -> Iterable[str]:
    gaps = list(tally.gaps())
    if tally.failed:
        yield f"{tally.failed} of {tally.schedules} schedules broke a promise:"
        for seed, texts in tally.failures.items():
            yield f"  seed {seed}: {texts[0]}"
    elif gaps:
        yield "no promise was broken, but this run does not count:"
        yield from (f"  {gap}" for gap in gaps)
    else:
        yield "every promise was kept, progress was made, and every fault and crash point fired"


def smallest(
    schedule: Schedule, violations: list[Violation], blueprint: Blueprint | None = None
) -> Schedule:
    """The failing schedule without anything that it does not need to fail in the same way."""
    wanted = {(violation.invariant, violation.checker) for violation in violations}

    def fails(candidate: Schedule) -> bool:
        found = {(v.invariant, v.checker) for v in play(candidate, blueprint).violations}
        return bool(found & wanted)

    return minimise(schedule, fails)


def failure(schedule: Schedule, violations: list[Violation]) -> list[str]:
    """One failing schedule, with the line that plays it again."""
    lines = [f"  {line}" for line in describe(schedule)]
    lines += [f"  => {violation}" for violation in violations]
    return [*lines, "again: " + repro(schedule)]


def repro(schedule: Schedule) -> str:
    """The command that plays this very schedule."""
    return f"oncegate chaos replay {shlex.quote(schedule.encode())}"
