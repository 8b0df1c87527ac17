"""The life of an entry: its states, which may follow which, and what an arrival of a known key gets.

Every store calls `judge` with what it has recorded, inside the transaction that reserves; nothing else
decides. Must never read a clock: `now_ticks` is the store's own time.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final, Never

from msgspec import Struct

from oncegate.errors import StoreCorrupt

UNKNOWN_CONTENT: Final = (
    b"\0" * 16
)  # stands for the fingerprint of an imported key: any content is the same
INTERRUPTIONS_MAX: Final = 8  # claims in a row that ended with a dead worker; then a person looks


class Stored(IntEnum):
    """A choice that ledgers keep as its number. An unknown number means a damaged ledger."""

    @classmethod
    def _missing_(cls, value: object) -> Never:
        raise StoreCorrupt(
            f"the ledger is damaged: {str(value)[:40]!r} stands in it as a {cls.__name__}, and is none; "
            "restore it from a copy, do not delete its keys"
        )


class State(Stored):
    """Where an entry stands. The numbers are stored; never renumber."""

    IN_FLIGHT = 1
    COMMITTED = 2
    FAILED = 3
    RETRYABLE = 4
    UNKNOWN = 5
    HELD = 6
    QUARANTINED = 7

    is_final: bool  # whether the entry will never change again; every event asks, hence no property

    def __init__(self, number: int) -> None:
        self.is_final = number in (2, 3)

    @property
    def label(self) -> str:
        """The word shown to people and used in filters."""
        return self.name.lower()


# Exactly what stores do: `docs/life-of-an-event.md` has the picture and the reason for each.
TRANSITIONS: Final[dict[State, frozenset[State]]] = {
    # Taking over a stranded claim keeps the state, with a new fence.
    State.IN_FLIGHT: frozenset(State) - {State.QUARANTINED},
    State.RETRYABLE: frozenset({State.IN_FLIGHT, State.HELD, State.QUARANTINED}),
    State.UNKNOWN: frozenset({State.FAILED, State.RETRYABLE}),
    State.HELD: frozenset({State.FAILED, State.RETRYABLE, State.QUARANTINED}),
    State.QUARANTINED: frozenset({State.FAILED, State.RETRYABLE}),
    State.COMMITTED: frozenset(),
    State.FAILED: frozenset({State.RETRYABLE}),  # only by a person
}


def may_follow(before: State, after: State) -> bool:
    """Tells whether an entry may go from one state to another."""
    return after in TRANSITIONS[before]


class Decision(Enum):
    """What an arrival gets."""

    RUN = "run"
    RETRY = "retry"
    RECOVER = "recover"
    REPLAY = "replay"
    BUSY = "busy"
    CONFLICT = "conflict"
    QUARANTINE = "quarantine"
    HOLD = "hold"

    claims: bool  # whether the arrival now holds the key and may go on

    def __init__(self, word: str) -> None:
        self.claims = word in ("run", "retry", "recover")


class Known(Struct, frozen=True, gc=False):
    """What a store has recorded of a key, as far as an arrival's fate depends on it."""

    state: State
    fingerprint: bytes
    attempt: int
    lease_until_ticks: int
    retry_at_ticks: int = 0
    interruptions: int = 0  # claims in a row that were recovered, the newest one included
    deaths_max: int = INTERRUPTIONS_MAX


def judge(known: Known, fingerprint: bytes, now_ticks: int, attempts_max: int) -> Decision:
    """Decides what an arrival of a known key gets.

    Content is compared before anything else is revealed, so that another content under the same key
    learns nothing but that it conflicts. A key that was imported without its content has no conflicts.
    An expired lease leads to recovery, never to a plain second run. A failed attempt is made again when its
    wait is over; until then the key is busy and nothing is called.
    """
    if known.fingerprint not in (fingerprint, UNKNOWN_CONTENT):
        return Decision.CONFLICT
    if known.state is State.IN_FLIGHT and now_ticks < known.lease_until_ticks:
        return Decision.BUSY
    if known.state is State.RETRYABLE and now_ticks < known.retry_at_ticks:
        return Decision.BUSY
    if known.state in _TAKEN_UP_AGAIN:
        is_over = known.attempt >= attempts_max or _is_deadly(known)
        return Decision.HOLD if is_over else _TAKEN_UP_AGAIN[known.state]
    return _SETTLED_DECISIONS[known.state]


def free_in_ms(known: Known, now_ticks: int) -> int:
    """How long the key is still busy."""
    until = known.retry_at_ticks if known.state is State.RETRYABLE else known.lease_until_ticks
    return max(0, until - now_ticks)


def why_given_up(known: Known) -> str:
    """What the entry says when `judge` holds it for a person instead of letting it be tried again."""
    if known.state is State.IN_FLIGHT and _is_deadly(known):
        return f"gave up after {known.interruptions + 1} workers died of it in a row"
    return f"gave up after {known.attempt} attempts"


def _is_deadly(known: Known) -> bool:
    """Whether so many workers died of this event that the next one would too."""
    return known.state is State.IN_FLIGHT and known.interruptions + 1 >= known.deaths_max


_TAKEN_UP_AGAIN: Final = {State.IN_FLIGHT: Decision.RECOVER, State.RETRYABLE: Decision.RETRY}
_SETTLED_DECISIONS: Final = {
    State.COMMITTED: Decision.REPLAY,
    State.FAILED: Decision.REPLAY,
    State.UNKNOWN: Decision.HOLD,
    State.HELD: Decision.HOLD,
    State.QUARANTINED: Decision.QUARANTINE,
}


def conflict_note(state: State) -> str | None:
    """What the log says of other content under a key that waits for a person; the sender learns nothing.

    A sender that corrects an event sends other content under the same key. The person who decides about the
    waiting event must know that there was another.
    """
    if state not in (State.UNKNOWN, State.HELD, State.QUARANTINED):
        return None
    return "came while the first waits for a person"
