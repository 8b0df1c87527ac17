"""One connection to a Redis server: sends commands in one go and reads answers.

It never retries and never reconnects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from oncegate.stores.redis import failures
from oncegate.stores.redis.address import RedisAddress

CONNECT_SECONDS: Final = 5.0
CONNECT_AGAIN_SECONDS: Final = 0.5  # to a server of a cluster that was away a moment ago
ANSWER_SECONDS: Final = 10.0

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

    def __init__(
        self, address: RedisAddress, where: Where, shown: str, connect_seconds: float = CONNECT_SECONDS
    ) -> None:
        self._driver = _driver_for(address, where, connect_seconds)
        try:
            self._driver.connect()
        except (redis.exceptions.RedisError, OSError, UnicodeError) as error:
            raise failures.unreachable(error, shown) from error

    def send(self, commands: Sequence[Command]) -> None:
        """Sends commands in one go."""
        packed = b"".join(self._driver.pack_commands(commands) if _PACK is None else map(_PACK, commands))
        self._driver.send_packed_command([packed])

    def read(self) -> Any:
        """One answer; an error that the server answers is a value."""
        try:
            return self._driver.read_response(disconnect_on_error=False)
        except redis.exceptions.ResponseError as error:
            return error

    @property
    def is_closed(self) -> bool:
        """The server never speaks unasked: what can be read is the end of the connection."""
        try:
            return bool(self._driver.can_read(0))
        except (redis.exceptions.RedisError, OSError):
            return True

    def close(self) -> None:
        """Ends the connection; never raises."""
        try:
            self._driver.disconnect()
        except (redis.exceptions.RedisError, OSError):
            return


def _driver_for(address: RedisAddress, where: Where, connect_seconds: float) -> Any:
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
        socket_connect_timeout=connect_seconds,
        socket_timeout=ANSWER_SECONDS,
        retry=Retry(NoBackoff(), 0),
        health_check_interval=0,
        protocol=2,
        **extra,
    )
