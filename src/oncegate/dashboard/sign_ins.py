"""What signing in leaves in the journal: who, when, from where; and how many were refused.

A visitor can be refused as often as they like, so refusals are counted and logged when
their number has doubled: at most some twenty records an hour and process, which tell at least half of
them. Must never keep a token, and never keep an operator out because the journal cannot be written: in the
night when the disk is full, an operator has to see that.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from oncegate.dashboard.operators import Operator
from oncegate.dashboard.request_context import Tools
from oncegate.errors import StoreError
from oncegate.store import LogKind, Note

WINDOW_MS: Final = 3_600_000
PAGE: Final = "page"  # whom refusals are told by: nobody is known
LOG: Final = logging.getLogger("oncegate.page")


class RefusedSignIns:
    """Counts refused sign-ins of an hour, and says when they are worth a record."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began_ms = 0
        self._count = 0
        self._told = 0

    def add(self, now_ms: int) -> str | None:
        """Counts one; what the journal should say of all so far, or None while it need not say more."""
        with self._lock:
            before = self._turn(now_ms)
            self._count += 1
            if self._count < 2 * self._told:
                return None
            self._told = self._count
            return f"{before}{self._words()}"

    def rest(self) -> str | None:
        """What the journal should say of those that are counted and not told yet; None if nothing."""
        with self._lock:
            if self._count == self._told:
                return None
            self._told = self._count
            return self._words()

    def _turn(self, now_ms: int) -> str:
        """Begins a new hour where the last is over, or a clock went back; tells what of it was not told."""
        if 0 <= now_ms - self._began_ms < WINDOW_MS:
            return ""
        rest, self._began_ms, self._count, self._told = self._count - self._told, now_ms, 0, 0
        return f"{rest} more in the hour that began before; " if rest else ""

    def _words(self) -> str:
        times = "once" if self._count == 1 else f"{self._count} times in an hour"
        return f"an unknown token, {times}"


class SignIns:
    """Keeps the records of one page."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._refusals = RefusedSignIns()

    def admitted(self, operator: Operator, place: str) -> None:
        """An operator has signed in. The journal now shows how many were refused before."""
        words = self._refusals.rest()
        if words is not None:
            self._note(LogKind.SIGN_IN_REFUSED, PAGE, words)
        self._note(LogKind.SIGNED_IN, operator.name, f"as {operator.role}, from {place}")

    def refused(self, place: str) -> None:
        """A visitor has come with an unknown token."""
        words = self._refusals.add(self._tools.clock.wall_ms())
        if words is not None:
            LOG.warning("refused on the page: %s, the last from %s", words, place)
            self._note(LogKind.SIGN_IN_REFUSED, PAGE, f"{words}, the last from {place}")

    def _note(self, kind: LogKind, actor: str, words: str) -> None:
        note = Note(0, kind, self._tools.clock.wall_ms(), actor, words[:300])
        try:
            with self._tools.commits.transaction() as session:
                session.add_notes([note])
        except StoreError as error:
            LOG.warning("the journal cannot be written (%s): %s %s", error, actor, kind.name.lower())
