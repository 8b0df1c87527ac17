"""Replies that get lost: of the store's next commit, done or undone, and of a downstream's next answer.

Wraps a real store and a real client; what the ledger and the downstream hold afterwards is real. A loss is
armed at a crash point and strikes whatever is waited for first after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Any

from oncegate.demo.terminal_client import TerminalAnswerLost, TerminalClient
from oncegate.errors import StoreUnknown


class Loss(Enum):
    """What nobody hears of."""

    DONE = "a commit that was done"
    UNDONE = "a commit that was undone"
    ANSWER = "a downstream's answer"


class Losses:
    """Which loss is armed, and how many have struck."""

    def __init__(self) -> None:
        self.armed: Loss | None = None
        self.struck = 0

    def take(self, *wanted: Loss) -> Loss | None:
        """Takes the armed loss, if it is one of these."""
        if self.armed not in wanted:
            return None
        taken, self.armed = self.armed, None
        self.struck += 1
        return taken

    def wrap(self, inside: Any) -> Any:
        """A store or a client that loses what is armed."""
        return _Client(inside, self) if isinstance(inside, TerminalClient) else _Store(inside, self)

    def over(self, session: Any) -> Any:
        """A session whose commits get lost."""
        return _Session(session, self)


class _Undo(Exception):
    """Tells the real unit to roll back."""


class _Wrapped:
    def __init__(self, inside: Any, losses: Losses) -> None:
        self._inside = inside
        self._losses = losses

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inside, name)


class _Store(_Wrapped):
    def connect(self) -> Any:
        return _Session(self._inside.connect(), self._losses)


class _Session(_Wrapped):
    @contextmanager
    def unit(self, *, wait: bool = True, single: bool = False, patient: bool = True) -> Iterator[None]:
        loss = None
        with suppress(_Undo), self._inside.unit(wait=wait, single=single, patient=patient):
            yield
            # Asked at the end, as a crash point inside the unit may have armed it.
            loss = self._losses.take(Loss.DONE, Loss.UNDONE)
            if loss is Loss.UNDONE:
                raise _Undo
        if loss is not None:
            raise StoreUnknown("no reply to the commit")


class _Client(_Wrapped):
    def claim(self, equipment: str, window: str, idempotency_key: str | None) -> Any:
        return self._heard(lambda: self._inside.claim(equipment, window, idempotency_key))

    def owned_by(self, key: str) -> Any:
        return self._heard(lambda: self._inside.owned_by(key))

    def _heard(self, call: Callable[[], Any]) -> Any:
        answer = call()
        if self._losses.take(Loss.ANSWER):
            raise TerminalAnswerLost("the answer was lost on its way")
        return answer
