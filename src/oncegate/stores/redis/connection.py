"""One connection to a Redis server: sends commands in one go and reads answers, in a thread or a loop.

In a greenlet of an event loop it gives way while it waits. It never retries and never reconnects.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from oncegate.commit.greenlet_bridge import WRITABLE, SocketWaiter, in_greenlet, wait_for
from oncegate.stores.redis import failures
from oncegate.stores.redis.address import RedisAddress

CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 10.0
PIECE_BYTES: Final = 32_768  # what a socket that is writable takes at once, as a rule

Command = tuple[bytes | str | int, ...]


def _packer() -> Callable[[Any], bytes] | None:
    """What the extra brings; without it the driver's own packer works."""
    try:
        from hiredis import pack_command
    except ModuleNotFoundError:
        return None
    return pack_command


_PACK: Final = _packer()
Where = tuple[str, int]


class RedisConnection:
    """A connection of the driver, and how it waits."""

    def __init__(self, address: RedisAddress, where: Where, shown: str) -> None:
        self._driver = _driver_for(address, where)
        self._waiter = SocketWaiter()
        try:
            self._driver.connect()
            # The driver has no public name for its socket, and waiting in a loop needs its number.
            self._fileno: int = self._driver._sock.fileno()
        except (redis.exceptions.RedisError, OSError, UnicodeError) as error:
            raise failures.unreachable(error, shown) from error

    def send(self, commands: Sequence[Command]) -> None:
        """Sends commands in one go."""
        packed = b"".join(self._driver.pack_commands(commands) if _PACK is None else map(_PACK, commands))
        if not in_greenlet():
            self._driver.send_packed_command([packed])
            return
        for start in range(0, len(packed), PIECE_BYTES):
            if not self._is_writable() and not wait_for(self._fileno, WRITABLE, ANSWER_SECONDS):
                raise redis.exceptions.TimeoutError("the server takes nothing more")
            self._driver.send_packed_command([packed[start : start + PIECE_BYTES]])

    def _is_writable(self) -> bool:
        poller = select.poll()
        poller.register(self._fileno, select.POLLOUT)
        return bool(poller.poll(0))

    def read(self) -> Any:
        """One answer; an error that the server answers is a value."""
        while True:
            try:
                if not in_greenlet():
                    return self._driver.read_response(disconnect_on_error=False)
                return self._driver.read_response(disconnect_on_error=False, timeout=0)
            except redis.exceptions.ResponseError as error:
                return error
            except redis.exceptions.TimeoutError:
                if not in_greenlet() or not self._waiter.wait(self._fileno, ANSWER_SECONDS):
                    raise

    @property
    def is_closed(self) -> bool:
        """Nobody speaks unasked: what can be read is the end of the connection."""
        try:
            return bool(self._driver.can_read(0))
        except (redis.exceptions.RedisError, OSError):
            return True

    def close(self) -> None:
        """Ends the connection; never raises."""
        self._waiter.close()
        try:
            self._driver.disconnect()
        except (redis.exceptions.RedisError, OSError):
            return


def _driver_for(address: RedisAddress, where: Where) -> Any:
    """A connection of the driver that never retries by itself; the driver gives no types for it."""
    kind: Any = redis.SSLConnection if address.tls else redis.Connection
    extra: dict[str, Any] = {"host": where[0], "port": where[1]}
    if address.socket is not None:
        kind, extra = redis.UnixDomainSocketConnection, {"path": address.socket}
    elif address.tls and address.ca_file:
        extra["ssl_ca_certs"] = address.ca_file
    return kind(
        db=address.database,
        username=address.username,
        password=address.password,
        socket_connect_timeout=CONNECT_SECONDS,
        socket_timeout=ANSWER_SECONDS,
        retry=Retry(NoBackoff(), 0),
        health_check_interval=0,
        protocol=2,
        **extra,
    )
