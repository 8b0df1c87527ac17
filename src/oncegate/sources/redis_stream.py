"""Redis Streams, for Redis and Valkey: a consumer group whose idle messages are claimed by any worker.

A stream has no lease of its own: a message that was idle for `lease` is claimed by XAUTOCLAIM, and its
holder makes it young again meanwhile. Both are done only by the worker that holds the message, checked in
one script, so that a late worker takes nothing back. Giving back sets the idle time, so that the message
is claimed after the delay. Redis deletes messages that a producer trims, also pending ones.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from oncegate.errors import BadSource, ConfigError, SourceUnavailable
from oncegate.model.redact import masked_url
from oncegate.sources.contract import Delivery, InFlight, Traits

LEASE_SECONDS: Final = 30.0
CALL_SECONDS: Final = 10.0
CLAIM_EVERY_SECONDS: Final = 1.0
FORGOTTEN_AFTER_MS: Final = 86_400_000  # a consumer without messages that was silent for a day
INSTALL: Final = "Redis Streams need a client: pip install 'oncegate[redis]'"

# Sets the idle time of messages that this consumer holds. JUSTID: it is no delivery and is not counted.
_AGE: Final = """
local kept = 0
for i = 4, #ARGV do
  local mine = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1, ARGV[2])
  if #mine > 0 then
    redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[i], 'IDLE', ARGV[3], 'JUSTID')
    kept = kept + 1
  end
end
return kept
"""

log = logging.getLogger("oncegate.sources")


class RedisStream:
    """Messages of a stream, by a consumer group that all workers share.

    The stream must exist. The group is made if it does not, from the beginning of the stream. `field` has
    the event; other fields are headers. `dead_letters` names a stream for messages that are no events.
    """

    def __init__(
        self,
        url: str,
        *,
        stream: str,
        group: str,
        field: str = "body",
        lease: float = LEASE_SECONDS,
        dead_letters: str | None = None,
        **connect: Any,
    ) -> None:
        if not stream or not group:
            raise ConfigError("Redis Streams: stream and group must be named")
        if lease <= 0:
            raise ConfigError("Redis Streams: lease must be longer than nothing")
        self.url, self.stream, self.group, self.dead_letters = url, stream, group, dead_letters
        self._field, self._lease_ms, self._options = field.encode(), int(lease * 1000), connect
        self._me = f"oncegate-{socket.gethostname()[:60]}-{os.getpid()}-{secrets.token_hex(4)}"
        self._redis: Any = None
        self._age: Any = None
        self._claimed_at = 0.0
        self._cursor: Any = "0-0"

    @property
    def name(self) -> str:
        """`redis:` with the stream and the group."""
        return f"redis:{self.stream}/{self.group}"

    async def open(self, in_flight: InFlight) -> Traits:
        """Connects, finds the stream, finds or makes the group, and checks what could lose messages."""
        if self._redis is None:
            self._connect()
        with self._trouble("opening"):
            info = await self._info()
            await self._make_group()
            await self._forget_old_consumers()
            await self._check_pending(info)
            warnings = await self._check_server()
        return Traits(
            kind="redis",
            server=masked_url(self.url),
            queue=f"{self.stream}/{self.group}",
            lease_seconds=self._lease_ms / 1000,
            delay_max_seconds=self._lease_ms / 1000,
            counts_deliveries=True,
            has_dead_letters=self.dead_letters is not None,
            retention_seconds={"stream": None},  # Redis trims by the producer's word only
            poll_seconds=min(1.0, self._lease_ms / 3000),
            warnings=tuple(warnings),
        )

    def _connect(self) -> None:
        try:
            from redis.asyncio import Redis
        except ModuleNotFoundError as error:
            raise ConfigError(INSTALL) from error
        options = {"socket_timeout": CALL_SECONDS, "socket_connect_timeout": 5.0, **self._options}
        self._redis = Redis.from_url(self.url, decode_responses=False, **options)
        self._age = self._redis.register_script(_AGE)

    async def _info(self) -> Any:
        from redis.exceptions import ResponseError

        try:
            return await self._redis.xinfo_stream(self.stream)
        except ResponseError as error:
            if "no such key" in str(error).lower():
                raise BadSource(
                    f"there is no stream {self.stream!r} at {masked_url(self.url)}; make it with its group:"
                    f" XGROUP CREATE {self.stream} {self.group} 0 MKSTREAM"
                ) from None
            raise BadSource(f"{self.stream!r} at {masked_url(self.url)} cannot be read: {error}") from None

    async def _make_group(self) -> None:
        from redis.exceptions import ResponseError

        try:
            await self._redis.xgroup_create(self.stream, self.group, id="0")
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    async def _forget_old_consumers(self) -> None:
        """Removes our own dead consumers; one that has messages stays, because they would go with it."""
        for one in await self._redis.xinfo_consumers(self.stream, self.group):
            is_old = one["pending"] == 0 and one["idle"] > FORGOTTEN_AFTER_MS
            if is_old and one["name"].startswith(b"oncegate-"):
                await self._redis.xgroup_delconsumer(self.stream, self.group, one["name"])

    async def _check_pending(self, info: Any) -> None:
        """Refuses a stream whose pending messages were trimmed: a person must know that they are gone."""
        pending = await self._redis.xpending(self.stream, self.group)
        oldest, first = pending["min"], info["first-entry"]
        if oldest is None:
            return
        if first is None or _order(oldest) < _order(first[0]):
            raise BadSource(
                f"{self.stream}: message {oldest.decode()} is pending and was deleted, by MAXLEN, XTRIM or"
                " XDEL: its event is lost. Trim by XTRIM MINID below the oldest pending message only."
                f" Confirm the loss with: XACK {self.stream} {self.group} {oldest.decode()}"
            )

    async def _check_server(self) -> list[str]:
        from redis.exceptions import ResponseError

        try:
            found = await self._redis.config_get("maxmemory-policy", "appendonly", "save")
        except ResponseError:  # managed servers do not tell
            return []
        policy = found.get("maxmemory-policy", "noeviction")
        if policy.startswith("allkeys"):
            raise BadSource(
                f"{masked_url(self.url)}: maxmemory-policy is {policy}, which deletes streams when memory"
                " is short; set it to noeviction"
            )
        if found.get("appendonly") == "no":
            return [f"{masked_url(self.url)} has no append-only file: a crash of the server loses messages"]
        return []

    @contextmanager
    def _trouble(self, what: str) -> Iterator[None]:
        """Errors of the client as errors of the contract."""
        from redis import exceptions

        try:
            yield
        except (exceptions.AuthenticationError, exceptions.NoPermissionError) as error:
            raise BadSource(f"{masked_url(self.url)} refuses: {error}; check user and password") from error
        except exceptions.ResponseError as error:
            if "NOGROUP" in str(error):
                raise BadSource(f"{self.stream}: group {self.group} was removed: {error}") from error
            raise SourceUnavailable(f"Redis at {masked_url(self.url)}, {what}: {error}") from error
        except (exceptions.RedisError, OSError, TimeoutError) as error:
            told = f"{error or type(error).__name__}"
            raise SourceUnavailable(f"Redis at {masked_url(self.url)}, {what}: {told}") from error

    async def receive(self, count_max: int, wait_seconds: float) -> Sequence[Delivery]:
        """Claims what was idle for too long, then reads what is new."""
        if self._redis is None:
            raise SourceUnavailable("the source is not open")
        with self._trouble("receiving"):
            found = await self._claim(count_max)
            if found:
                return found
            every = min(CLAIM_EVERY_SECONDS, self._lease_ms / 3000)
            block_ms = max(1, int(min(wait_seconds, every) * 1000))
            answer = await self._redis.xreadgroup(
                self.group, self._me, {self.stream: ">"}, count=count_max, block=block_ms
            )
        return [self._delivery(one, fields, 1) for _, entries in _pairs(answer) for one, fields in entries]

    async def _claim(self, count_max: int) -> list[Delivery]:
        now = asyncio.get_running_loop().time()
        if now - self._claimed_at < min(CLAIM_EVERY_SECONDS, self._lease_ms / 3000):
            return []
        answer = await self._redis.xautoclaim(
            self.stream, self.group, self._me, self._lease_ms, start_id=self._cursor, count=count_max
        )
        self._cursor, entries, deleted = answer[0], answer[1], answer[2] if len(answer) > 2 else []
        if self._cursor == b"0-0":  # the end of the pending messages
            self._claimed_at = now
        for lost in deleted:
            log.critical("source %s: message %s was trimmed while pending: its event is lost; trim by MINID"
                         " below the oldest pending message only", self.name, lost.decode())  # fmt: skip
        found = [(one, fields) for one, fields in entries if fields is not None]
        if not found:
            return []
        counts = await self._counts([one for one, _ in found])
        return [self._delivery(one, fields, counts.get(one, 2)) for one, fields in found]

    async def _counts(self, ids: list[Any]) -> dict[Any, int]:
        told = await self._redis.xpending_range(
            self.stream, self.group, min=ids[0], max=ids[-1], count=10 * len(ids), consumername=self._me
        )
        return {one["message_id"]: int(one["times_delivered"]) for one in told}

    def _delivery(self, one: bytes, fields: Any, times: int) -> Delivery:
        headers = {
            name.decode("utf-8", "replace"): value.decode("utf-8", "replace")
            for name, value in fields.items()
            if name != self._field
        }
        return Delivery(
            fields.get(self._field, b""), one.decode(), headers, times_delivered=times, handle=one
        )

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """One XACK for all."""
        if not deliveries:
            return
        with self._trouble("acknowledging"):
            await self._redis.xack(self.stream, self.group, *(one.handle for one in deliveries))

    async def give_back(self, delivery: Delivery, delay_seconds: float) -> None:
        """Makes a message as old as it takes to be claimed after the delay."""
        await self._set_age([delivery], self._lease_ms - int(delay_seconds * 1000))

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        """Makes messages young again."""
        await self._set_age(deliveries, 0)

    async def _set_age(self, deliveries: Sequence[Delivery], idle_ms: int) -> None:
        words = [self.group, self._me, max(0, idle_ms), *(one.handle for one in deliveries)]
        with self._trouble("extending"):
            await self._age(keys=[self.stream], args=words)

    async def bury(self, delivery: Delivery, reason: str) -> None:
        """Moves a message to the stream of dead letters, in one transaction."""
        told: dict[Any, Any] = dict(delivery.headers)
        told |= {"oncegate-reason": reason, "oncegate-id": delivery.message_id}
        fields = {self._field: delivery.body, **told}
        with self._trouble("burying"):
            async with self._redis.pipeline(transaction=True) as together:
                together.xadd(self.dead_letters, fields)
                together.xack(self.stream, self.group, delivery.handle)
                await together.execute()

    async def lag(self) -> int | None:
        """How many messages the group has not read; None after a trim, when Redis cannot tell."""
        if self._redis is None:
            return None
        with self._trouble("asking for the lag"):
            for group in await self._redis.xinfo_groups(self.stream):
                if group["name"] == self.group.encode():
                    found = group.get("lag")
                    return None if found is None else int(found)
        return None

    async def close(self) -> None:
        """Removes this consumer unless it holds messages, and disconnects."""
        redis, self._redis = self._redis, None
        if redis is None:
            return
        try:
            consumers = await redis.xinfo_consumers(self.stream, self.group)
            if any(one["name"] == self._me.encode() and one["pending"] == 0 for one in consumers):
                await redis.xgroup_delconsumer(self.stream, self.group, self._me)
        except Exception as error:  # noqa: BLE001  it is removed after a day
            log.debug("source %s: its consumer stays for now: %s", self.name, error)
        finally:
            await redis.aclose()


def _order(one: bytes) -> tuple[int, int]:
    """A message id as it is ordered."""
    at, _, number = one.decode().partition("-")
    return int(at), int(number or 0)


def _pairs(answer: Any) -> list[Any]:
    """The answer of XREADGROUP in either protocol: by stream, its entries."""
    if isinstance(answer, dict):
        return [(name, [one for part in parts for one in part]) for name, parts in answer.items()]
    return list(answer or ())
