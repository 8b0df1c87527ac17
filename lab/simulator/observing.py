"""A store whose fenced writes are watched from outside: what each met and what it left behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from oncegate.store.recording import record_in_two_steps
from oncegate.testing.simulation.ledger import Row
from oncegate.testing.simulation.store import SimulatedSession, SimulatedStore

Note = Callable[[str, tuple[int, int], "Row | None", "Row | None", bool], None]


class ObservedSession:
    """A session that tells about renewals, steps and settlements; all is done by the one behind it."""

    def __init__(self, session: SimulatedSession, note: Note) -> None:
        self._session = session
        self._note = note
        self._rows = session._tables.rows
        self.unit = session.unit
        self.reserve = session.reserve

    def _watched(self, name: str, items: Sequence[Any]) -> list[bool]:
        if len({item.entry_id for item in items}) < len(items):  # what one leaves, the next one meets
            return [answer for item in items for answer in self._watched(name, [item])]
        before = [self._rows.get(item.entry_id) for item in items]
        answers: list[bool] = getattr(self._session, name)(items)
        for item, met, answer in zip(items, before, answers, strict=True):
            self._note(name, (item.fence, item.token), met, self._rows.get(item.entry_id), answer)
        return answers

    def record(self, wanted: Sequence[Any], outcome: bytes) -> Sequence[Any]:
        """Watched, as the two steps it is."""
        return record_in_two_steps(self, wanted, outcome)

    def renew(self, claims: Sequence[Any]) -> list[bool]:
        """Watched."""
        return self._watched("renew", claims)

    def progress(self, wanted: Sequence[Any]) -> list[bool]:
        """Watched."""
        return self._watched("progress", wanted)

    def settle(self, settlements: Sequence[Any], *, last: bool = False) -> list[bool]:
        """Watched."""
        return self._watched("settle", settlements)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


class ObservedStore(SimulatedStore):
    """A simulated store whose sessions are observed."""

    note: Note

    def connect(self) -> Any:
        """Opens a session behind a watcher."""
        return ObservedSession(super().connect(), self.note)
