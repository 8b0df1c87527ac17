"""An entry that waits for a person, in words: why it is here, what is in doubt, what each verb would do.

Commands and pages show these before they ask. Must only describe what is recorded: what a handler or a
downstream is declared to do is known to the user's program, not to the ledger.
"""

from __future__ import annotations

from typing import Final

from oncegate.model.conflicts import LOGGED_MAX
from oncegate.model.decisions import Verb, has_own_key, has_owner
from oncegate.model.states import State
from oncegate.review.conflicts import NONE, Contest, contest_remarks, releasing_another
from oncegate.review.decisions import doubts
from oncegate.store import EntryDetail, LogKind, LogRecord, StepRecord, StepState

_PARKING: Final = frozenset({LogKind.HELD, LogKind.UNKNOWN, LogKind.QUARANTINED})
_RUNS: Final = "with the next round of a reconciler or the next arrival of the event"


def parked_by(seen: EntryDetail) -> LogRecord | None:
    """The record that brought the entry here: who, when and why."""
    return next((record for record in reversed(seen.records) if record.kind in _PARKING), None)


def corrections(seen: EntryDetail) -> str:
    """How often other content was refused under this key since the entry waits; empty for never.

    The log has no more than so many conflicts of an entry: then it is said to be more.
    """
    parked = parked_by(seen)
    since = 0 if parked is None else parked.position
    conflicts = [record for record in seen.records if record.kind is LogKind.CONFLICT]
    refused = sum(record.position > since for record in conflicts)
    if len(conflicts) >= LOGGED_MAX:
        return f"{refused} times or more"
    return "" if not refused else "once" if refused == 1 else f"{refused} times"


def in_doubt(step: StepRecord) -> str:
    """What is known of a step that a person must speak about."""
    if step.state is StepState.DONE:
        return f"step {step.name} at {step.downstream} happened, but what it returned was lost"
    return (
        f"step {step.name} at {step.downstream} may or may not have happened; {step.downstream} could not"
        " be asked, or its answer was not clear"
    )


def remarks(seen: EntryDetail, contest: Contest = NONE) -> list[str]:
    """What the operator should know."""
    said = [in_doubt(step) for step in doubts(seen)]
    if not has_own_key(seen.entry.reason):
        said.append(
            "no key could be read from the event: it is known by its content alone. Sent again corrected,"
            " it is another event and runs as well"
        )
    return said + contest_remarks(contest, corrections(seen))


def consequence(verb: Verb, seen: EntryDetail, contest: Contest = NONE) -> str:
    """What will happen if a person says this."""
    if verb is Verb.APPROVE:
        return _approving(seen)
    if verb is Verb.RETRY:
        return f"{_approving(seen)}. Events that came after it have run meanwhile: it runs out of its order"
    if verb is Verb.RELEASE:
        return _releasing(seen, contest)
    kept = "what was done stays done" if seen.steps else "nothing runs"
    if contest.is_later:
        return f"{kept}; the content stays known, and its sender still gets the conflict"
    return f"{kept}; the key stays known, and every later arrival gets who {verb.past} it and why"


def _approving(seen: EntryDetail) -> str:
    open_steps = doubts(seen)
    if not open_steps:
        return f"it runs {_RUNS}; its attempts count from zero, and steps that are done are skipped"
    names = " ".join(f"--step {step.name}=…" for step in open_steps)
    return (
        f"say what happened with {names}: happened:RESOURCE skips the step and finishes the rest,"
        f" did-not-happen calls it again; it runs {_RUNS}"
    )


def _releasing(seen: EntryDetail, contest: Contest) -> str:
    if not has_owner(seen.entry.reason):
        return "cannot be released: its tenant is not known"
    if contest.is_later:
        return (
            f"{releasing_another(contest)}. A reconciler's next round runs it; its time is not judged again"
        )
    return f"it runs once, under the key it has, {_RUNS}; its time is not judged again"


def waits_for(state: State) -> str:
    """The command group that looks after entries in a state."""
    return {State.QUARANTINED: "quarantine", State.FAILED: "entries"}.get(state, "held")
