"""Wakes readers of this process that wait for the next event of a tenant, whichever thread publishes it."""

from __future__ import annotations

import asyncio
import contextlib
import threading


class Waking:
    """Who waits for which tenant."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: dict[str, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}
        self.is_closed = False

    async def wait(self, tenant: str, seconds: float) -> None:
        """Returns when the tenant is woken, or after so many seconds; once it is closed, at once."""
        if self.is_closed:
            return
        place = (asyncio.get_running_loop(), asyncio.Event())
        with self._guard:
            self._waiting.setdefault(tenant, set()).add(place)
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(place[1].wait(), seconds)
        finally:
            self._leave(tenant, place)

    def _leave(self, tenant: str, place: tuple[asyncio.AbstractEventLoop, asyncio.Event]) -> None:
        with self._guard:
            waiting = self._waiting.get(tenant, set())
            waiting.discard(place)
            if not waiting:
                self._waiting.pop(tenant, None)

    def wake(self, tenant: str) -> None:
        """Wakes every reader who waits for the tenant."""
        with self._guard:
            waiting = list(self._waiting.get(tenant, ()))
        for loop, event in waiting:
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile, and its waits with it
                loop.call_soon_threadsafe(event.set)

    def close(self) -> None:
        """Wakes all readers; from now on no reader waits."""
        self.is_closed = True
        with self._guard:
            tenants = list(self._waiting)
        for tenant in tenants:
            self.wake(tenant)
