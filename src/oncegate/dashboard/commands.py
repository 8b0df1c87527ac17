"""What a button does, as the command that does the same, for terminals and runbooks."""

from __future__ import annotations

import shlex

from oncegate.model.rulings import Verb
from oncegate.sender.desk import Verb as HeadVerb
from oncegate.store import Entry, EntryFilter, LaneView, StepRecord
from oncegate.upkeep.waiting import waits_for


def ruling_command(verb: Verb, entry: Entry, doubtful: tuple[StepRecord, ...]) -> str:
    """Says a word about an entry, as it is seen now."""
    words = ["oncegate", waits_for(entry.state), verb.value, str(entry.entry_id)]
    if verb.runs:
        for step in doubtful:
            words += ["--step", f"{step.name}=happened:RESOURCE"]
    return _with_reason([*words, "--fence", str(entry.fence)])


def bulk_command(verb: Verb, wanted: EntryFilter) -> str:
    """Says a word about all that fit a filter."""
    desk = waits_for(next(iter(verb.starts_from)))
    options = []
    for name, value in (
        ("surface", wanted.surface),
        ("tenant", wanted.tenant),
        ("reason-contains", wanted.reason_contains),
    ):
        options += [] if value is None else [f"--{name}", value]
    return _with_reason(["oncegate", desk, verb.value, *(options or ["--all"])])


def dismiss_command(entry_id: int) -> str:
    """Says that a pair is meant to be two."""
    return _with_reason(["oncegate", "duplicates", "dismiss", str(entry_id)])


def head_command(verb: HeadVerb, lane: LaneView) -> str:
    """Retries or skips a lane's head."""
    seq = ["--seq", str(lane.head_seq)]
    return _with_reason(["oncegate", "dead-letters", verb.value, *_lane_options(lane), *seq])


def replay_command(lane: LaneView) -> str:
    """Sends past events of a lane once more."""
    return _with_reason(
        ["oncegate", "dead-letters", "replay", *_lane_options(lane), "--from", "1", "--to", "N"]
    )


def steer_command(verb: str, destination: str) -> str:
    """Pauses or resumes a destination."""
    return _with_reason(["oncegate", "endpoints", verb, destination])


def heads_command(verb: HeadVerb, destination: str) -> str:
    """Retries or skips the heads of all blocked lanes of a destination."""
    return _with_reason(["oncegate", "dead-letters", verb.value, "--endpoint", destination])


def _lane_options(lane: LaneView) -> list[str]:
    tenant = ["--tenant", lane.tenant] if lane.tenant else []
    return ["--endpoint", lane.destination, "--key", lane.key, *tenant]


def _with_reason(words: list[str]) -> str:
    return shlex.join(words) + ' --reason "…"'
