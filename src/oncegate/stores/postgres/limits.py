"""A connection that waits for no answer without a limit.

The server's own limits end statements that take too long; this one ends the wait for a server, or for a
network, that says nothing at all. What the server did is not known then, and the connection is closed.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from select import POLLIN, POLLOUT, poll
from typing import Any, Final

import psycopg

from oncegate.clock import SystemClock
from oncegate.commit.greenlet_bridge import (
    READABLE,
    WRITABLE,
    GreenletAbandoned,
    SocketWaiter,
    in_greenlet,
    wait_for,
)
from oncegate.errors import ConfigError

ANSWER_WAIT_MS: Final = 28_000  # above the server's limit for a statement, below what callers wait
_clock: Final = SystemClock()
# Drivers from 3.3 on can wait with a limit themselves, at no cost.
_LOST: Final = (
    OSError,
    GreenletAbandoned,
    ValueError,
    RuntimeError,
)  # the last two: an epoll, a loop that closed
_TIMEOUT: Final[type[Exception] | None] = getattr(psycopg.errors, "_WaitTimeout", None)


def _is_patched() -> bool:
    """Whether gevent has replaced what waits for sockets."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("select"))


_PATCHED_FIRST: Final = _is_patched()


def refuse_late_patches() -> None:
    """Refuses gevent's patches that came after the import: each wait would hold up every greenlet."""
    if _is_patched() and not _PATCHED_FIRST:
        raise ConfigError(
            "gevent.monkey.patch_all() was called after oncegate was imported: a wait for the server would "
            "stop all greenlets; call it first of all, before any other import"
        )


class LimitedConnection(psycopg.Connection[tuple[Any, ...]]):
    """Gives up, and closes itself, when the server has said nothing for too long."""

    answer_wait_ms = ANSWER_WAIT_MS

    def __init__(self, pgconn: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(pgconn, *arguments, **options)
        self._ear = SocketWaiter()

    def close(self) -> None:
        """Closes the connection."""
        self._ear.close()
        super().close()

    def _abandon(self) -> None:
        self._ear.close()
        self.pgconn.finish()

    def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
        """Runs one exchange with the server, within the limit."""
        if in_greenlet():
            return self._wait_in_loop(gen)
        if _TIMEOUT is None:
            return super().wait(self._limited(gen), *arguments, **options)
        options.setdefault("timeout", self.answer_wait_ms / 1000)
        try:
            return super().wait(gen, *arguments, **options)
        except _TIMEOUT:
            raise self._given_up() from None

    def _wait_in_loop(self, exchange: Generator[int, int, Any]) -> Any:
        """The same inside an event loop, which goes on with other things meanwhile."""
        fileno, seconds = self.pgconn.socket, self.answer_wait_ms / 1000
        try:
            wanted = next(exchange)
            while True:
                ready = self._ready(fileno, wanted, seconds)
                wanted = exchange.send(ready)
        except StopIteration as ended:
            return ended.value
        except _LOST as error:
            self._abandon()
            raise psycopg.OperationalError(f"the connection was lost: {error}") from error

    def _ready(self, fileno: int, wanted: int, seconds: float) -> int:
        if wanted & WRITABLE:
            ready = _ready_now(fileno, wanted) or wait_for(fileno, wanted, seconds)
        else:
            ready = self._ear.wait(fileno, seconds)
        if not ready:
            raise self._given_up()
        return ready

    def _given_up(self) -> psycopg.OperationalError:
        self._abandon()
        return psycopg.OperationalError(
            f"the server has not answered within {self.answer_wait_ms / 1000:g} s"
        )

    def _limited(self, exchange: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        deadline = _clock.ticks_ms() + self.answer_wait_ms
        try:
            wanted = next(exchange)
            while True:
                ready = yield wanted
                if not ready and _clock.ticks_ms() > deadline:
                    raise self._given_up()
                wanted = exchange.send(ready)
        except StopIteration as ended:
            return ended.value


def _ready_now(fileno: int, wanted: int) -> int:
    """What a socket is ready for already; it nearly always is writable, and the loop need not be asked."""
    poller = poll()
    poller.register(fileno, POLLOUT | (POLLIN if wanted & READABLE else 0))
    found = poller.poll(0)
    events = found[0][1] if found else 0
    return (WRITABLE if events & ~POLLIN else 0) | (READABLE if events & ~POLLOUT else 0)
