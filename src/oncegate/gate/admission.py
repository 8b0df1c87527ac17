"""The answer to an arrival: a verdict, and the value where there is one."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Any, Final

from msgspec import Struct

from oncegate.clock import from_wall_ms, utc_text
from oncegate.errors import Busy, Conflict, Held, OutcomeErased, Paused, Quarantined, RecordedFailure
from oncegate.gate.codec.outcome import Outcome, decode_outcome, value_of
from oncegate.gate.codec.values import Codec
from oncegate.gate.runtime.cache import CachedOutcome
from oncegate.gate.runtime.not_run_log import DONE_BEFORE
from oncegate.model.keys import Key
from oncegate.model.states import Decision, State
from oncegate.store import Reserved

ERASED: Final = "its outcome was erased"


class Verdict(Enum):
    """The gate's decision about an arrival."""

    RUN = "run"
    REPLAY = "replay"
    BUSY = "busy"
    CONFLICT = "conflict"
    QUARANTINE = "quarantine"
    HOLD = "hold"
    ACCEPTED = "accepted"


# By verdict, and whether it is a failure that is replayed or a key that waits after one.
_REASONS: Final = {
    (Verdict.REPLAY, False): DONE_BEFORE,
    (Verdict.REPLAY, True): "already failed",
    (Verdict.BUSY, False): "in flight elsewhere",
    (Verdict.BUSY, True): "waits to be tried again",
    (Verdict.ACCEPTED, False): "kept, and run later",
}


class Admission(Struct, frozen=True):
    """The answer to one arrival: the verdict, and the recorded outcome or the reason.

    `value` is what the handler returned, now or when the key was first run; None for an accepted event,
    which runs later, or runs elsewhere already (`on_busy="acknowledge"`). `error` is the recorded final
    failure of a replayed key. `reason` says why nothing was run; of a conflict it says what became of the
    content that came, and nothing of the other one. `first_seen_ms` is when the key first arrived; None if
    it is new. `skew_ms` is how far the event's own time is ahead of ours, where that is why it did not run.
    `delayed` is a busy key whose last attempt failed: it waits to be tried again; with `is_down` because a
    downstream of its surface is down, as far as this process knows. `is_kept` is False for a conflict whose
    content was not kept, and for what waits for a person on a ledger that keeps no events. `differs` names
    the fields in which a conflict's content differs from the known one, and `difference` says so in words;
    no answer over HTTP has either. `is_paused` is a busy answer of a surface that is paused: nothing was
    looked at.
    """

    verdict: Verdict
    key: str
    value: Any = None
    resource: str | None = None
    reason: str | None = None
    error: str | None = None
    retry_after_seconds: float = 0.0
    first_seen_ms: int | None = None
    skew_ms: int | None = None
    delayed: bool = False
    is_down: bool = False
    is_kept: bool = True
    differs: tuple[str, ...] = ()
    difference: str | None = None
    is_paused: bool = False

    @property
    def first_seen(self) -> datetime | None:
        """When the key first arrived, in UTC; None where it is new."""
        return None if self.first_seen_ms is None else from_wall_ms(self.first_seen_ms)

    def why(self, reason: str | None = None) -> dict[str, Any]:
        """Why nothing was run, since when the key is known, and the skew of the event's time.

        Another reason than the verdict's own must be in words of ours: a handler's error may be a secret.
        """
        told = reason or _REASONS.get((self.verdict, self.error is not None or self.delayed))
        found: dict[str, Any] = {} if told is None else {"reason": told}
        if self.first_seen_ms is not None:
            found["first_seen"] = utc_text(self.first_seen_ms)
        if self.skew_ms is not None:
            found["skew_ms"] = self.skew_ms
        return found

    @property
    def replay(self) -> bool:
        """Whether this arrival was already settled: nothing was run or changed."""
        return self.verdict is Verdict.REPLAY

    @property
    def acknowledge(self) -> bool:
        """Whether the queue's message may be acknowledged: the event is settled, or kept for a person.

        False for a busy key, whose message must come again after `retry_after_seconds`, for a conflict that
        was not kept, and for what waits for a person on a ledger that keeps no events. An exception from
        `admit` never allows an acknowledgement.
        """
        return self.verdict is not Verdict.BUSY and self.is_kept

    def result(self) -> Any:
        """The value, or the typed error that says why there is none."""
        if self.error is not None:
            raise RecordedFailure(self.error)
        if self.verdict is Verdict.REPLAY and self.reason is ERASED:
            raise OutcomeErased(f"{self.key} ran before, and {ERASED}")
        if self.verdict in (Verdict.RUN, Verdict.REPLAY, Verdict.ACCEPTED):
            return self.value
        raise self._refusal()

    def _refusal(self) -> Exception:
        if self.is_paused:
            return Paused(f"{self.reason}; try again later", self.retry_after_seconds)
        if self.verdict is Verdict.BUSY:
            where = "waits to be tried again" if self.delayed else "is in flight elsewhere"
            return Busy(f"{self.key} {where}", self.retry_after_seconds)
        if self.verdict is Verdict.CONFLICT:
            kept = "" if self.reason is None else f"; {self.reason}"
            said = "" if self.difference is None else f"; {self.difference}"
            error = Conflict(f"{self.key} is known with another content; nothing was run{said}{kept}")
            error.differs = self.differs
            return error
        if self.verdict is Verdict.QUARANTINE:
            return Quarantined(f"{self.key} is in quarantine: {self.reason}")
        return Held(f"{self.key} waits for a person: {self.reason}")


class Familiar(Struct, frozen=True, gc=False):
    """The key and content of an admitted event: what its bytes stand for, from any sender."""

    key: Key
    fingerprint: bytes


def replayed(
    key: Key, outcome: Outcome, state: State, reason: str | None, codec: Codec, *, first_ms: int
) -> Admission:
    """A replay: the recorded value, or the recorded failure."""
    if outcome.erased and state is not State.FAILED:
        return Admission(Verdict.REPLAY, key.text, reason=ERASED, first_seen_ms=first_ms or None)
    if state is State.FAILED:
        error = outcome.error or reason or (ERASED if outcome.erased else "failed")
        return Admission(
            Verdict.REPLAY, key.text, error=error, reason=reason or error, first_seen_ms=first_ms or None
        )
    return Admission(
        Verdict.REPLAY,
        key.text,
        value_of(outcome, codec),
        resource=outcome.resource,
        reason=reason or DONE_BEFORE,
        first_seen_ms=first_ms or None,
    )


def from_memory(key: Key, known: CachedOutcome, codec: Codec) -> Admission:
    """A replay, answered from the cache of final outcomes."""
    return replayed(
        key, decode_outcome(known.outcome), known.state, known.reason, codec, first_ms=known.received_at_ms
    )


def from_reserved(key: Key, reserved: Reserved, codec: Codec, skew_ms: int | None = None) -> Admission:
    """The answer to an arrival that may not run, under the key that was judged."""
    if reserved.judged is not None:
        key = Key(reserved.judged)
    if reserved.decision is Decision.REPLAY:
        first_ms = reserved.received_at_ms
        outcome = decode_outcome(reserved.outcome)
        return replayed(key, outcome, reserved.state, reserved.reason, codec, first_ms=first_ms)
    verdict = Verdict(reserved.decision.value)
    delayed = verdict is Verdict.BUSY and reserved.state is State.RETRYABLE
    return Admission(
        verdict,
        key.text,
        reason=reserved.reason or _REASONS.get((verdict, delayed)),
        retry_after_seconds=reserved.retry_after_ms / 1000,
        first_seen_ms=reserved.received_at_ms or None,
        skew_ms=skew_ms if reserved.decision is Decision.QUARANTINE else None,
        delayed=delayed,
    )


def from_busy(key: Key, reserved: Reserved) -> Admission:
    """The acknowledgement of an arrival whose key is in flight: its body is in the ledger already."""
    reason = f"entry {reserved.entry_id} has the same event, and is finished without this arrival"
    first_ms = reserved.received_at_ms or None
    return Admission(Verdict.ACCEPTED, key.text, reason=reason, first_seen_ms=first_ms)
