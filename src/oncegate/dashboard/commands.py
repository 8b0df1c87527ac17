"""What a button does, as the command that does the same, for terminals and runbooks."""

from __future__ import annotations

import shlex
from datetime import timedelta

from oncegate.clock import utc_text
from oncegate.dashboard.plans import Range
from oncegate.model.decisions import Verb
from oncegate.model.durations import format_duration
from oncegate.model.states import State
from oncegate.review.review_view import waits_for
from oncegate.sender.operator_actions import LaneVerb as HeadVerb
from oncegate.store import Entry, EntryFilter, LaneView, StepRecord


def ruling_command(
    verb: Verb, entry: Entry, doubtful: tuple[StepRecord, ...], *, doubles: bool = False
) -> str:
    """Says a word about an entry, as it is seen now."""
    words = ["oncegate", waits_for(entry.state), verb.value, str(entry.entry_id)]
    if verb.runs:
        for step in doubtful:
            words += ["--step", f"{step.name}=happened:RESOURCE"]
    words += ["--doubles", "all"] if doubles else []
    return _with_reason([*words, "--fence", str(entry.fence)])


def bulk_command(verb: Verb, wanted: EntryFilter, now_ms: int) -> str:
    """Says a word about all that fit a filter: every term of it, or the command would mean more."""
    desk = waits_for(next(iter(verb.starts_from)))
    options = [option for state in _only_state(verb, wanted) for option in ("--state", state.label)]
    for name, value in (
        ("surface", wanted.surface),
        ("tenant", wanted.tenant),
        ("key", wanted.key_prefix),
        ("label", wanted.label_contains),
        ("reason-contains", wanted.reason_contains),
        ("cause", wanted.cause),
        ("older-than", _age(wanted.settled_before_ms, now_ms)),
        ("age-over", _age(wanted.received_before_ms, now_ms)),
        ("age-under", _age(wanted.received_after_ms, now_ms)),
    ):
        options += [] if value is None else [f"--{name}", value]
    return _with_reason(["oncegate", desk, verb.value, *(options or ["--all"])])


def _only_state(verb: Verb, wanted: EntryFilter) -> list[State]:
    """The one state that a filter leaves of those that the verb is for; none where it leaves all."""
    left = [state for state in wanted.states if state in verb.starts_from]
    return left if len(left) < len(verb.starts_from) else []


def _age(moment_ms: int | None, now_ms: int) -> str | None:
    return None if moment_ms is None else format_duration(timedelta(milliseconds=now_ms - moment_ms))


def pair_command(verb: str, entry_id: int) -> str:
    """Says a word about a pair."""
    return _with_reason(["oncegate", "duplicates", verb, str(entry_id)])


def resource_command(verb: str, number: int) -> str:
    """Says a word about a second resource."""
    return _with_reason(["oncegate", "resources", verb, str(number)])


def head_command(verb: HeadVerb, lane: LaneView) -> str:
    """Retries or skips a lane's head."""
    seq = ["--seq", str(lane.due_seq)]
    return _with_reason(["oncegate", "dead-letters", verb.value, *_lane_options(lane), *seq])


def replay_command(lane: LaneView) -> str:
    """Sends past events of a lane once more."""
    return _with_reason(
        ["oncegate", "dead-letters", "replay", *_lane_options(lane), "--from", "1", "--to", "N"]
    )


def replays_command(asked: Range) -> str:
    """Sends past events of all keys of a destination once more."""
    words = ["oncegate", "dead-letters", "replay", "--endpoint", asked.destination]
    words += [] if asked.seq_from == 1 else ["--from", str(asked.seq_from)]
    words += [] if asked.seq_to is None else ["--to", str(asked.seq_to)]
    words += [] if asked.since_ms is None else ["--since", utc_text(asked.since_ms)]
    words += [] if asked.until_ms is None else ["--until", utc_text(asked.until_ms)]
    words += [] if asked.type is None else ["--type", asked.type]
    return _with_reason([*words, *(["--only-dead"] if asked.only_dead else [])])


def repeats_command(surface: str) -> str:
    """Shows the repeats of a surface."""
    return shlex.join(["oncegate", "signals", "repeats", "--surface", surface])


def trace_command(name: str) -> str:
    """Follows a journey."""
    return shlex.join(["oncegate", "trace", name])


def cancel_replay_command(name: str) -> str:
    """Takes back what is left of a replay."""
    return _with_reason(["oncegate", "dead-letters", "cancel", name])


def steer_command(verb: str, destination: str) -> str:
    """Pauses or resumes a destination."""
    return _with_reason(["oncegate", "endpoints", verb, destination])


def heads_command(verb: HeadVerb, destination: str, tenant: str | None = None) -> str:
    """Retries or skips the heads of all blocked lanes of a destination, or of one tenant's there."""
    whose = [] if tenant is None else ["--tenant", tenant]
    return _with_reason(["oncegate", "dead-letters", verb.value, "--endpoint", destination, *whose])


def _lane_options(lane: LaneView) -> list[str]:
    tenant = ["--tenant", lane.tenant] if lane.tenant else []
    return ["--endpoint", lane.destination, "--key", lane.key, *tenant]


def _with_reason(words: list[str]) -> str:
    return shlex.join(words) + ' --reason "…"'


def rollback_command(verb: str, plan: str, digest: str | None = None) -> str:
    """Approves or cancels a roll-back plan."""
    hashed = [] if digest is None else ["--hash", digest[:16]]
    return _with_reason(["oncegate", "rollback", verb, plan, *hashed])


def switch_command(surface: str) -> str:
    """Switches a surface."""
    return _with_reason(["oncegate", "surfaces", "switch", surface, "MODE"])


def limit_command(signal: str, place: str) -> str:
    """Sets the limits of a signal."""
    where = ["--surface", place] if place else []
    return _with_reason(
        ["oncegate", "signals", "limit", signal, *where, "--ticket", "LIMIT", "--page", "LIMIT"]
    )
