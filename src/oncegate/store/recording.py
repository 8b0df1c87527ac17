"""Recording by the two steps that every store has, for those whose units are one transaction.

A store that lets a single call commit by itself (`Session.unit`) must record in one statement instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from oncegate.errors import StoreUnavailable
from oncegate.model.states import Decision, State
from oncegate.store.claims import Reservation, Reserved, Settlement

# Reading a member from its class takes longer than the comparisons that every event passes.
_RUN: Final = Decision.RUN
_BUSY: Final = Decision.BUSY
_COMMITTED: Final = State.COMMITTED


class TwoSteps(Protocol):
    """What of a session is needed here."""

    def reserve(self, wanted: Sequence[Reservation]) -> list[Reserved]:
        """As in `Claims`."""

    def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """As in `Claims`."""


def record_in_two_steps(
    claims: TwoSteps, wanted: Sequence[Reservation], outcome: bytes
) -> Sequence[Reserved]:
    """Reserves, and settles what was new; the caller's unit commits both or neither."""
    answers = claims.reserve(wanted)
    ends = [
        Settlement(*answer.claim, _COMMITTED, item.received_at_ms, item.actor, outcome)
        for item, answer in zip(wanted, answers, strict=True)
        if answer.decision is _RUN
    ]
    if ends and not all(claims.settle(ends)):
        raise StoreUnavailable("what was reserved just now could not be settled; nothing was changed")
    return answers if len(ends) == len(answers) else _asked_again(claims, wanted, answers)


def _asked_again(
    claims: TwoSteps, wanted: Sequence[Reservation], answers: list[Reserved]
) -> list[Reserved]:
    """Judges arrivals that found a key in flight again: what this batch has settled is a replay by now."""
    return [
        claims.reserve([item])[0] if answer.decision is _BUSY else answer
        for item, answer in zip(wanted, answers, strict=True)
    ]
