"""The answer to an arrival: a verdict, and the value where there is one."""

from __future__ import annotations

from enum import Enum
from typing import Any

from msgspec import Struct

from oncegate.errors import Busy, Conflict, Held, Quarantined, RecordedFailure
from oncegate.gate.cache import Remembered
from oncegate.gate.codec import Codec
from oncegate.gate.outcome import Outcome, decode_outcome, value_of
from oncegate.model.keys import Key
from oncegate.model.states import Decision, State
from oncegate.store import Reserved


class Verdict(Enum):
    """What the gate said to an arrival."""

    RUN = "run"
    REPLAY = "replay"
    BUSY = "busy"
    CONFLICT = "conflict"
    QUARANTINE = "quarantine"
    HOLD = "hold"
    ACCEPTED = "accepted"


class Admission(Struct, frozen=True):
    """A verdict with what belongs to it.

    `value` is what the handler returned, now or when the key was first run; None for an accepted event,
    which runs later. `error` is the recorded final failure of a replayed key. `reason` of a conflict says
    what became of the content that came; of the other one it tells nothing.
    """

    verdict: Verdict
    key: str
    value: Any = None
    resource: str | None = None
    reason: str | None = None
    error: str | None = None
    retry_after_seconds: float = 0.0

    @property
    def replay(self) -> bool:
        """Whether this arrival was already settled: nothing was run or changed."""
        return self.verdict is Verdict.REPLAY

    def result(self) -> Any:
        """The value, or the typed error that says why there is none."""
        if self.error is not None:
            raise RecordedFailure(self.error)
        if self.verdict in (Verdict.RUN, Verdict.REPLAY, Verdict.ACCEPTED):
            return self.value
        raise self._refusal()

    def _refusal(self) -> Exception:
        if self.verdict is Verdict.BUSY:
            return Busy(f"{self.key} is in flight elsewhere", self.retry_after_seconds)
        if self.verdict is Verdict.CONFLICT:
            kept = "" if self.reason is None else f"; {self.reason}"
            return Conflict(f"{self.key} is known with another content; nothing was run{kept}")
        if self.verdict is Verdict.QUARANTINE:
            return Quarantined(f"{self.key} is in quarantine: {self.reason}")
        return Held(f"{self.key} waits for a person: {self.reason}")


class Familiar(Struct, frozen=True, gc=False):
    """The key and content of an event that was admitted: what its bytes stand for, whoever sends them."""

    key: Key
    fingerprint: bytes


def replayed(key: Key, outcome: Outcome, state: State, reason: str | None, codec: Codec) -> Admission:
    """A replay: the recorded value, or the recorded failure."""
    if state is State.FAILED:
        error = outcome.error or reason or "failed"
        return Admission(Verdict.REPLAY, key.text, error=error, reason=reason)
    return Admission(
        Verdict.REPLAY, key.text, value_of(outcome, codec), resource=outcome.resource, reason=reason
    )


def from_memory(key: Key, content: bytes, known: Remembered, codec: Codec) -> Admission:
    """A replay or a conflict, answered from the cache of final outcomes."""
    if known.fingerprint != content:
        return Admission(Verdict.CONFLICT, key.text)
    return replayed(key, decode_outcome(known.outcome), known.state, known.reason, codec)


def from_reserved(key: Key, reserved: Reserved, codec: Codec) -> Admission:
    """The answer to an arrival that may not run."""
    if reserved.decision is Decision.REPLAY:
        return replayed(key, decode_outcome(reserved.outcome), reserved.state, reserved.reason, codec)
    return Admission(
        Verdict(reserved.decision.value),
        key.text,
        reason=reserved.reason,
        retry_after_seconds=reserved.retry_after_ms / 1000,
    )
