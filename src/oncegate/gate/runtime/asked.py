"""Which arrivals come again because their event was not done when their sender came before (A7).

An event that failed, or is in flight for long, is answered with 503 or `Busy`: its sender is asked to come
again. Such an arrival says nothing about the sender. Bounded; safe to lose, as all that is only counted.
"""

from __future__ import annotations

from typing import Final

from oncegate.model.states import Decision, State
from oncegate.store import Reserved

ASKED_MAX: Final = 20_000  # entries kept, the oldest are forgotten first
RACE_MS: Final = (
    2_000  # an arrival that comes sooner, while an event is in flight, was sent at once with it
)

_TAKEN_UP: Final = frozenset({Decision.RETRY, Decision.RECOVER})


class AskedAgain:
    """Entries whose senders were asked to come again, as far as this process knows."""

    def __init__(self) -> None:
        self.due: dict[int, bool] = {}  # False once the sender has come and found the event done

    def is_asked(self, reserved: Reserved, now_ms: int) -> bool:
        """Whether an arrival of a known key was asked for."""
        decision, entry_id = reserved.decision, reserved.entry_id
        if decision is Decision.REPLAY:
            return self.finds_done(entry_id, reserved.claimed_again)
        asked = decision in _TAKEN_UP
        if decision is Decision.BUSY:
            asked = reserved.state is State.RETRYABLE or now_ms - reserved.received_at_ms >= RACE_MS
        if asked:
            self._keep(entry_id, is_due=True)
        return asked

    def finds_done(self, entry_id: int, claimed_again: bool) -> bool:
        """Whether a sender that was asked to come again finds its event done for the first time."""
        is_due = self.due.get(entry_id, claimed_again)
        if is_due:
            self._keep(entry_id, is_due=False)
        return is_due

    def _keep(self, entry_id: int, *, is_due: bool) -> None:
        if entry_id not in self.due and len(self.due) >= ASKED_MAX:
            self.due.pop(next(iter(self.due), 0), None)
        self.due[entry_id] = is_due

    def __len__(self) -> int:
        return len(self.due)
