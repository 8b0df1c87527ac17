"""What becomes of a delivery after its event met the gate. Pure: no I/O, no clock.

Must never decide to acknowledge after an exception: only the ledger says what is on record.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from msgspec import Struct

from oncegate.errors import (
    Backlogged,
    ClaimLost,
    ConfigError,
    DurabilityRefused,
    EventError,
    SchemaMismatch,
    StoreCorrupt,
    StoreUnavailable,
    StoreUnknown,
    Unacceptable,
    UsageError,
)
from oncegate.gate.admission import Admission, Verdict
from oncegate.model.states import State
from oncegate.store import Entry

BUSY_SECONDS_MIN: Final = 0.1
AGAIN_SECONDS: Final = 1.0  # where nothing says how long to wait
NOT_KEPT_SECONDS: Final = 300.0  # an event that cannot be kept until a person acts

_STOPS: Final = (ConfigError, UsageError, SchemaMismatch, StoreCorrupt, DurabilityRefused)
_ON_RECORD: Final = frozenset({State.COMMITTED, State.FAILED, State.HELD, State.QUARANTINED})


class OnRecord(Struct, frozen=True):
    """The ledger has it: acknowledge. `value` is what the handler returned, now or before."""

    value: Any = None


class Later(Struct, frozen=True):
    """Not on record: deliver it again after `seconds`."""

    seconds: float
    why: str


class LetGo(Struct, frozen=True):
    """Another worker has the message or the key: neither acknowledge, extend nor give back."""

    why: str
    is_claim_lost: bool = False


class Poisoned(Struct, frozen=True):
    """The message can never be an event of this surface."""

    reason: str


class LedgerAway(Struct, frozen=True):
    """The ledger cannot be used now: stop receiving until it can."""

    why: str


class StopNow(Struct, frozen=True):
    """The program is wrong: every further message would meet the same error."""

    error: BaseException


class AskLedger(Struct, frozen=True):
    """The handler raised: what the gate recorded about it decides."""

    error: BaseException


Decided: TypeAlias = OnRecord | Later | LetGo | Poisoned | LedgerAway | StopNow | AskLedger


def after_admission(admission: Admission) -> Decided:
    """Acknowledges what is on record; the rest comes again."""
    if admission.acknowledge:
        return OnRecord(admission.value)
    if admission.verdict is Verdict.BUSY:
        why = "waits for its next attempt" if admission.delayed else "its key is in flight elsewhere"
        return Later(max(admission.retry_after_seconds, BUSY_SECONDS_MIN), why)
    return Later(NOT_KEPT_SECONDS, admission.reason or "another content under a known key, not kept")


def after_error(error: Exception) -> Decided:
    """Tells errors of the program, of the ledger and of the event apart; the rest are the handler's."""
    if isinstance(error, _STOPS) and not isinstance(error, Unacceptable):
        return StopNow(error)  # Unacceptable is about what one event wanted to send
    if isinstance(error, ClaimLost):
        return LetGo(str(error), is_claim_lost=True)
    if isinstance(error, (StoreUnavailable, StoreUnknown)):
        return LedgerAway(f"{type(error).__name__}: {error}")
    if isinstance(error, Backlogged):
        return Later(error.retry_after_seconds or AGAIN_SECONDS, str(error))
    if isinstance(error, EventError):
        return Poisoned(str(error))
    return AskLedger(error)


def by_ledger(entry: Entry | None, now_ticks: int, why: str, again_seconds: float) -> Decided:
    """What the entry of a failed attempt says; without one nothing was recorded."""
    if entry is not None and entry.state in _ON_RECORD:
        return OnRecord()
    due = None
    if entry is not None:
        due = entry.retry_at_ticks if entry.state is State.RETRYABLE else entry.lease_until_ticks
    wait = again_seconds if due is None else (due - now_ticks) / 1000
    return Later(max(wait, BUSY_SECONDS_MIN), why)
