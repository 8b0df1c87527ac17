"""Since when the page has had no answer from the ledger, and what it shows then: never an old state."""

from __future__ import annotations

import threading

from oncegate.dashboard.request_context import PageResponse
from oncegate.errors import StoreError


class Contact:
    """The last moment at which the ledger answered."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answered_ms: int | None = None

    def found(self, now_ms: int) -> None:
        """The ledger has answered."""
        with self._lock:
            self._answered_ms = now_ms

    def lost(self, now_ms: int, error: StoreError) -> PageResponse:
        """The ledger has not answered: a grey page with since when, and the error's next step."""
        with self._lock:
            if self._answered_ms is None:
                self._answered_ms = now_ms
            values = {"title": "No connection", "since_ms": self._answered_ms, "cause": str(error)}
        return PageResponse("lost.html", values, 503)
