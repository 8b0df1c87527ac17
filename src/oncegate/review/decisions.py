"""What a person decides about one entry: checked against what they saw, then carried out once.

The command line, pages and programs come here. Must never guess for the person: a step that may have
happened is run again, or skipped, only on their word. Must name the fence they saw, so that a double click
or a second operator changes nothing and learns who was first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from oncegate.clock import Clock, from_wall_ms
from oncegate.commit.group_commit import GroupCommit
from oncegate.commit.review_operations import Rule
from oncegate.errors import ConfigError, RulingRefused
from oncegate.gate.codec.outcome import Outcome, decode_outcome, encode_outcome, finished
from oncegate.gate.codec.values import attested
from oncegate.model.decisions import Verb, check_actor, check_reason, has_owner, verbs_for
from oncegate.model.states import State
from oncegate.model.timestamps import format_timestamp
from oncegate.review.doubles import refusal_of, twin_that_ran
from oncegate.store import (
    Entry,
    EntryDetail,
    Facet,
    LogKind,
    LogRecord,
    Ruling,
    RulingAnswer,
    StepRecord,
    StepState,
    require,
)
from oncegate.store.people import latest_ruling

RESOURCE_LENGTH_MAX: Final = 200  # as long as the gate keeps
RESULT_BYTES_MAX: Final = 65_536
_ENDINGS: Final = frozenset({LogKind.FAILED, LogKind.REJECTED, LogKind.DISCARDED})


class StepDecision(Struct, frozen=True):
    """What a person found out about a step in doubt.

    If it happened, `resource` is what it got there and `result` (JSON) what the call would have returned.
    """

    happened: bool
    resource: str | None = None
    result: bytes | None = None

    def __post_init__(self) -> None:
        if not self.happened and (self.resource is not None or self.result is not None):
            raise ConfigError("a step that did not happen has neither a resource nor a result")
        text = self.resource
        if text is not None and not (0 < len(text) <= RESOURCE_LENGTH_MAX and text.isprintable()):
            raise ConfigError(f"a resource is 1 to {RESOURCE_LENGTH_MAX} printable characters")
        if self.result is not None:
            _check_json(self.result)


class EntryDecision(Struct, frozen=True):
    """What a person says: the verb, who they are, why, and what they know about steps in doubt.

    `doubles` confirms that a change may run twice, where the entry is the same change as another one.
    """

    verb: Verb
    actor: str
    reason: str
    steps: Mapping[str, StepDecision] = {}
    doubles: bool = False

    def __post_init__(self) -> None:
        check_actor(self.actor)
        msgspec.structs.force_setattr(self, "reason", check_reason(self.reason))


class Decisions:
    """Carries out decisions on one ledger."""

    def __init__(self, commits: GroupCommit, clock: Clock) -> None:
        self.commits = commits
        self.clock = clock

    def approve(
        self,
        entry_id: int,
        *,
        actor: str,
        reason: str,
        steps: Mapping[str, StepDecision] | None = None,
        fence: int | None = None,
        doubles: bool = False,
    ) -> Entry:
        """Lets a held or doubtful entry run; what is in doubt must be said in `steps`."""
        return self.say(entry_id, EntryDecision(Verb.APPROVE, actor, reason, steps or {}, doubles), fence)

    def reject(self, entry_id: int, *, actor: str, reason: str, fence: int | None = None) -> Entry:
        """Ends a held or doubtful entry permanently; replays get who and why."""
        return self.say(entry_id, EntryDecision(Verb.REJECT, actor, reason), fence)

    def release(
        self, entry_id: int, *, actor: str, reason: str, fence: int | None = None, doubles: bool = False
    ) -> Entry:
        """Lets an entry out of quarantine; it runs once, under the key it has.

        `doubles` confirms that it may run although it is the same change as one that ran.
        """
        return self.say(entry_id, EntryDecision(Verb.RELEASE, actor, reason, doubles=doubles), fence)

    def discard(self, entry_id: int, *, actor: str, reason: str, fence: int | None = None) -> Entry:
        """Ends a quarantined entry permanently; its key stays known."""
        return self.say(entry_id, EntryDecision(Verb.DISCARD, actor, reason), fence)

    def retry(
        self,
        entry_id: int,
        *,
        actor: str,
        reason: str,
        steps: Mapping[str, StepDecision] | None = None,
        fence: int | None = None,
        doubles: bool = False,
    ) -> Entry:
        """Lets an entry run again that failed; steps that are done are skipped."""
        return self.say(entry_id, EntryDecision(Verb.RETRY, actor, reason, steps or {}, doubles), fence)

    def say(
        self, entry_id: int, word: EntryDecision, fence: int | None = None, key: bytes | None = None
    ) -> Entry:
        """Carries a word out and returns the entry as it is then; raises RulingRefused if it cannot count.

        `fence` and `key` are those the person saw. Without them, what stands there now counts as seen.
        """
        with self.commits.store.look() as session:
            seen = session.detail(entry_id)
            ran = twin_that_ran(session, entry_id) if word.verb.runs and not word.doubles else None
        if seen is None:
            raise RulingRefused(f"there is no entry {entry_id}; nothing was changed")
        if key is not None and key != seen.entry.key:
            raise RulingRefused(
                f"entry {entry_id} is another event than the one you saw: the ledger went back. Nothing was"
                " changed; look at it again"
            )
        if fence is not None and fence != seen.entry.fence:
            raise RulingRefused(standing(seen.entry, latest_ruling(seen.records)))
        if ran is not None:
            raise RulingRefused(refusal_of(seen, ran))
        (answer,) = self.carry_out((ruling_of(seen, word, self.clock.wall_ms()),))
        if not answer.done or answer.entry is None:
            raise RulingRefused(refusal(answer, entry_id))
        return answer.entry

    def carry_out(self, rulings: tuple[Ruling, ...]) -> list[RulingAnswer]:
        """Carries decisions out in one commit; a commit in doubt is read back before the answer.

        Failed entries run again only where the ledger keeps their steps: without, what is done would be
        done again.
        """
        if any(one.verb is Verb.RETRY for one in rulings):
            try:
                require(self.commits.store, Facet.REVIEW, "running failed entries again")
            except ConfigError as missing:
                raise RulingRefused(f"{missing}; nothing was changed") from None
        return self.commits.submit(Rule(rulings))


def ruling_of(seen: EntryDetail, word: EntryDecision, at_ms: int) -> Ruling:
    """Makes the request from what the person saw and said; raises RulingRefused if it cannot count."""
    entry, verb = seen.entry, word.verb
    if verb not in verbs_of(seen):
        raise RulingRefused(standing(entry, latest_ruling(seen.records)))
    if verb.runs:
        _check_can_run(seen)
    steps = _steps_of(seen, word)
    said = f"{verb.past} by {word.actor}: {word.reason}"
    outcome = None if verb.runs else _ending(seen, steps, said, verb)
    note = "; ".join([word.reason, *(_told(step) for step in steps)])
    seen_as = (entry.entry_id, entry.fence, entry.key)
    declared = decode_outcome(seen.outcome).declared if verb is Verb.RETRY else None
    return Ruling(*seen_as, verb, word.actor, note, said, at_ms, steps, outcome, declared)


def verbs_of(seen: EntryDetail) -> tuple[Verb, ...]:
    """What can be said about an entry; one that a person ended stays ended."""
    ended = next((one.kind for one in reversed(seen.records) if one.kind in _ENDINGS), None)
    is_final = seen.entry.state is State.FAILED and ended is not LogKind.FAILED
    return () if is_final else verbs_for(seen.entry.state)


def doubts(seen: EntryDetail) -> tuple[StepRecord, ...]:
    """The steps that a person must say something about before the entry runs again.

    Those that may have happened; where there are none, those whose result the handler could not be given.
    """
    started = tuple(step for step in seen.steps if step.state is StepState.STARTED)
    if started or seen.entry.state is not State.UNKNOWN:
        return started
    return tuple(step for step in seen.steps if _is_lost(step))


def sayable(seen: EntryDetail) -> tuple[StepRecord, ...]:
    """The steps that a person may say something about."""
    return tuple(step for step in seen.steps if step.state is StepState.STARTED or _is_lost(step))


def _is_lost(step: StepRecord) -> bool:
    return step.state is StepState.DONE and step.result is None


def _check_can_run(seen: EntryDetail) -> None:
    if seen.body is None:
        raise RulingRefused(f"entry {seen.entry.entry_id} has no stored event any more; it cannot be run")
    if not has_owner(seen.entry.reason):
        raise RulingRefused(
            f"entry {seen.entry.entry_id} cannot be run: its tenant is not known. Discard it and"
            " let the sender send it again with its tenant"
        )


def _steps_of(seen: EntryDetail, word: EntryDecision) -> tuple[StepRecord, ...]:
    """What the person said about steps, as records; all that is in doubt must be said before a run."""
    open_steps = {step.name: step for step in sayable(seen)}
    for name in word.steps:
        if name not in open_steps:
            known = ", ".join(open_steps) or "none"
            raise RulingRefused(f"step {name[:64]!r} is not in doubt here; steps in doubt: {known}")
    unsaid = [step for step in doubts(seen) if step.name not in word.steps]
    if unsaid and word.verb.runs:
        raise RulingRefused(_choices(seen.entry, unsaid[0]))
    return tuple(_said(open_steps[name], told) for name, told in word.steps.items())


def _choices(entry: Entry, step: StepRecord) -> str:
    where = f"step {step.name} at {step.downstream}"
    if step.state is StepState.DONE:
        return (
            f"entry {entry.entry_id}: {where} happened, but what it returned was lost; say what it got:"
            f" --step {step.name}=happened:RESOURCE"
        )
    return (
        f"entry {entry.entry_id}: {where} may or may not have happened. Find out there, then say which:"
        f" --step {step.name}=happened:RESOURCE (it is skipped and the rest is finished)"
        f" or --step {step.name}=did-not-happen (it is called again)"
    )


def _said(step: StepRecord, told: StepDecision) -> StepRecord:
    if not told.happened:
        if step.state is StepState.DONE:
            raise RulingRefused(
                f"step {step.name} is on record as done; it cannot be said not to have been"
            )
        return StepRecord(
            step.name, StepState.NOT_APPLIED, step.downstream, started_at_ms=step.started_at_ms
        )
    resource = told.resource if told.resource is not None else step.resource
    result = told.result if told.result is not None else attested(resource)
    return StepRecord(step.name, StepState.DONE, step.downstream, result, resource, step.started_at_ms)


def _told(step: StepRecord) -> str:
    if step.state is StepState.NOT_APPLIED:
        return f"{step.name} did not happen"
    return f"{step.name} happened" + ("" if step.resource is None else f" ({step.resource})")


def _ending(seen: EntryDetail, said: tuple[StepRecord, ...], error: str, verb: Verb) -> bytes:
    """The outcome of an entry that a person ended: what was done stays visible in it."""
    steps = {step.name: step for step in (*seen.steps, *said)}
    done = finished(steps.values(), seen.entry.received_at_ms)
    return encode_outcome(Outcome(steps=done, error=error, error_type=verb.past.capitalize()))


def refusal(answer: RulingAnswer, entry_id: int) -> str:
    """Why a ruling that reached the ledger did not count."""
    if answer.entry is None:
        return f"there is no entry {entry_id} any more; nothing was changed"
    return standing(answer.entry, answer.decided)


def standing(entry: Entry, decided: LogRecord | None) -> str:
    """The present state and who decided it, for an operator who came too late or to the wrong entry."""
    now = f"entry {entry.entry_id} is {entry.state.label} now"
    if decided is not None:
        at = format_timestamp(from_wall_ms(decided.at_ms))
        now += f": {decided.actor} {decided.kind.name.lower()} it at {at} ({decided.note})"
    verbs = " or ".join(verb.value for verb in verbs_for(entry.state))
    return f"{now}; nothing was changed" + (f". Look at it again, then {verbs}" if verbs else "")


def _check_json(body: bytes) -> None:
    if len(body) > RESULT_BYTES_MAX:
        raise ConfigError(f"a result is at most {RESULT_BYTES_MAX} bytes of JSON")
    try:
        msgspec.json.decode(body)
    except msgspec.DecodeError:
        raise ConfigError(f"the result {body[:60]!r} is not JSON") from None
