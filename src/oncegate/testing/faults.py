"""A store whose commits fail as told: the reply is lost, the commit is undone, the store is down.

Wraps any real store, so that what the ledger holds after a fault is what a real ledger would hold. Every
call that writes is noted with its size, which shows what went into one batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any, cast

from oncegate.errors import StoreUnavailable, StoreUnknown
from oncegate.store import Session, Store


class Fault(Enum):
    """What goes wrong with one commit."""

    NONE = "nothing"
    LOST_REPLY = "it is committed, and the reply is lost"
    UNDONE = "it is undone, and the caller cannot know"
    DOWN = "the store cannot be reached"


class Faults:
    """What a faulty store does, and what was done to it.

    `plan` holds one fault for each coming unit; when it is used up, nothing goes wrong. `down` makes every
    connect and unit fail. `before_commit` is called inside each unit, after its work.
    """

    def __init__(self) -> None:
        self.plan: deque[Fault] = deque()
        self.down = False
        self.before_commit: Callable[[], object] = lambda: None
        self.calls: list[tuple[str, int]] = []
        self.units = 0
        self.connects = 0

    def next(self) -> Fault:
        """Takes the fault that the coming unit has."""
        if self.down:
            return Fault.DOWN
        return self.plan.popleft() if self.plan else Fault.NONE

    def sizes(self, call: str) -> list[int]:
        """Tells how many requests each call of one kind carried."""
        return [size for name, size in self.calls if name == call]


class _Undo(Exception):
    """Tells the real unit to roll back."""


class _FaultySession:
    """A session that does what its faults say, and everything else as the real one."""

    def __init__(self, session: Session, faults: Faults) -> None:
        self._session = session
        self._faults = faults

    @contextmanager
    def unit(self, *, wait: bool = True, single: bool = False, patient: bool = True) -> Iterator[None]:
        fault = self._faults.next()
        self._faults.units += 1
        if fault is Fault.DOWN:
            raise StoreUnavailable("the store is down")
        if fault is Fault.UNDONE:
            yield from self._undone(wait, patient)
            raise StoreUnknown("no reply to the commit")
        with self._session.unit(wait=wait, single=single, patient=patient):
            yield
            self._faults.before_commit()
        if fault is Fault.LOST_REPLY:
            raise StoreUnknown("no reply to the commit")

    def _undone(self, wait: bool, patient: bool) -> Iterator[None]:
        try:  # not `single`: a statement that commits by itself could not be undone
            with self._session.unit(wait=wait, patient=patient):
                yield
                self._faults.before_commit()
                raise _Undo
        except _Undo:
            return

    def _noted(self, name: str, wanted: Sequence[Any]) -> Any:
        self._faults.calls.append((name, len(wanted)))
        return getattr(self._session, name)(wanted)

    def reserve(self, wanted: Sequence[Any]) -> Any:
        return self._noted("reserve", wanted)

    def record(self, wanted: Sequence[Any], outcome: bytes) -> Any:
        self._faults.calls.append(("record", len(wanted)))
        return self._session.record(wanted, outcome)

    def renew(self, wanted: Sequence[Any]) -> Any:
        return self._noted("renew", wanted)

    def progress(self, wanted: Sequence[Any]) -> Any:
        return self._noted("progress", wanted)

    def settle(self, wanted: Sequence[Any], *, last: bool = False) -> Any:
        return self._noted("settle", wanted)

    def attach(self, wanted: Sequence[Any]) -> Any:
        return self._noted("attach", wanted)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


class _FaultyStore:
    def __init__(self, store: Store, faults: Faults) -> None:
        self._store = store
        self._faults = faults

    def connect(self) -> Any:
        self._faults.connects += 1
        if self._faults.down:
            raise StoreUnavailable("the store is down")
        return _FaultySession(self._store.connect(), self._faults)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def faulty(store: Store, faults: Faults) -> Store:
    """Wraps a store so that `faults` decides what goes wrong."""
    return cast("Store", _FaultyStore(store, faults))
