"""The ledger on Redis or Valkey: opens sessions, checks the servers, says what the ledger can lose."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import redis

from oncegate.clock import Clock, SystemClock
from oncegate.errors import SchemaMismatch, StoreUnavailable, StoreUnknown
from oncegate.model.durations import format_duration
from oncegate.store import AuditTrail, Capabilities, Durability, Facet, Finding, Migration, Units
from oncegate.store.incarnations import Incarnations, Sight
from oncegate.stores.redis import failures
from oncegate.stores.redis.address import parse_address
from oncegate.stores.redis.connection import Where
from oncegate.stores.redis.examination import examine
from oncegate.stores.redis.functions import library
from oncegate.stores.redis.open_entries import Layout
from oncegate.stores.redis.server import (
    RETENTION_FORCED,
    RETENTION_MAX,
    ServerFacts,
    check_server,
    read_facts,
)
from oncegate.stores.redis.session import RedisSession
from oncegate.stores.redis.wire import Outages, RedisWire

SCHEMA: Final = 1
WRITERS: Final = 2
TIME_KEPT_EVERY_MS: Final = 1_000
_LOG: Final = logging.getLogger("oncegate.stores.redis")
_TICKS: Final = SystemClock()


class FunctionMigration(Migration, frozen=True):
    """Creates the ledger: its functions, and its name."""

    @property
    def script(self) -> str:
        """The text for `redis-cli -x FUNCTION LOAD`."""
        return self.sql


_CREATION: Final = FunctionMigration(SCHEMA, "functions and name of the ledger", library(), "")


class RedisStore:
    """One ledger in one Redis database or cluster, under one prefix.

    `clock` replaces the server's clock as the ledger's time; only tests do that.
    """

    def __init__(self, url: str, *, clock: Clock | None = None) -> None:
        self._where = parse_address(url)
        self._clock = clock
        self._layout = Layout(self._where.prefix)
        self._incarnations = Incarnations()
        self._facts: tuple[ServerFacts, ...] = ()
        self._kept_at_ms = 0
        self._outages = Outages()
        self._histories: dict[Where, str] = {}
        self._name: str | None = None

    @property
    def capabilities(self) -> Capabilities:
        """Claims, each by itself. Before the first session the least is promised."""
        facts, where = self._facts, self._where
        levels = list(Durability)
        worst = max((levels.index(one.durability) for one in facts), default=len(levels) - 1)
        return Capabilities(
            "redis",
            levels[worst],
            WRITERS,
            AuditTrail.NONE,
            business_writes=False,
            one_writer=False,
            is_local=False,
            facets=frozenset({Facet.CLAIMS, Facet.OPEN_ENTRIES}),
            units=Units.PER_CALL,
            keeps_bodies=False,
            forgets_on_failover=not facts or any(one.replicas for one in facts),
            retention_max=RETENTION_FORCED if where.long_retention else RETENTION_MAX,
        )

    @property
    def incarnations(self) -> Incarnations:
        """Which incarnation of the ledger this process has seen."""
        return self._incarnations

    @property
    def address(self) -> str:
        """Where the ledger is, without secrets."""
        return self._where.shown

    @property
    def warning(self) -> str:
        """What every user of this ledger should know, on one line."""
        said, facts = self.capabilities, self._facts
        replicas = sum(one.replicas for one in facts)
        failover = "a failover may lose the last records" if said.forgets_on_failover else "no replica"
        if waits := self._where.wait or self._where.wait_synced:
            failover += f", each write waits for {waits} of {replicas} replicas"
        longest = format_duration(said.retention_max or RETENTION_MAX)
        kept = ", ".join(sorted({one.persistence for one in facts})) or "not asked yet"
        return (
            f"ledger {self.address}: claims and open entries, for short windows ({longest} at most);"
            f" no audit trail; {said.durability.value} ({kept}); {failover}"
        )

    def connect(self) -> RedisSession:
        """Opens a session on the primaries; makes the ledger where there is none."""
        return self._session(self._open_for_use(), reopen=self._open_for_use)

    def _open_for_use(self) -> RedisWire:
        wire, facts = self._open()
        try:
            self._use(wire, facts)
        except StoreUnknown as error:
            wire.close()
            raise StoreUnavailable(f"the ledger cannot be opened: {error}") from error
        except BaseException:
            wire.close()
            raise
        return wire

    def _use(self, wire: RedisWire, facts: tuple[ServerFacts, ...]) -> None:
        """Checks the servers and which ledger it is, before anything else uses the wire."""
        for one in facts:
            check_server(one, self.address)
        for server in wire.servers:
            wire.load(server)
        identity = self._identity(wire, create=True)
        is_first, self._facts = not self._facts, facts
        if is_first:
            is_weak = self.capabilities.forgets_on_failover or self.capabilities.durability.name == "MEMORY"
            _LOG.log(logging.WARNING if is_weak else logging.INFO, "%s", self.warning)
        self._compare(wire, identity, dict(zip(wire.servers, facts, strict=True)))

    def _compare(self, wire: RedisWire, identity: str, found: dict[Where, ServerFacts]) -> None:
        """Compares the incarnation. While a part is away nothing of it can be read: then the others must be
        those that were seen before, and all are compared when it is back.
        """
        histories = {where: one.history for where, one in found.items()}
        if wire.away and histories.items() <= self._histories.items():
            return
        sight = Sight("/".join([identity, *(histories[where] for where in sorted(histories))]), 0)
        self._incarnations.check(sight, lambda: self._session(wire))
        self._histories = histories

    def _open(self) -> tuple[RedisWire, tuple[ServerFacts, ...]]:
        wire = RedisWire(self._where, self._outages)
        try:
            wire.find_seed()
            seed = read_facts(wire)
            wire.open(is_cluster=seed.is_cluster)
            if seed.is_cluster and self._where.database:
                raise StoreUnavailable(f"{self.address}: a cluster has database 0 only")
            facts = tuple(read_facts(wire, where) for where in wire.servers) if seed.is_cluster else (seed,)
        except BaseException:
            wire.close()
            raise
        return wire, facts

    def _session(self, wire: RedisWire, reopen: Callable[[], RedisWire] | None = None) -> RedisSession:
        ticks = None if self._clock is None else self._clock.ticks_ms
        return RedisSession(
            wire, self._layout, self.address, ticks=ticks, reopen=reopen, is_time_due=self._is_time_due
        )

    def _is_time_due(self) -> bool:
        """Once a second one session of this process moves the clocks of all slots."""
        now = _TICKS.ticks_ms()
        if now - self._kept_at_ms < TIME_KEPT_EVERY_MS:
            return False
        self._kept_at_ms = now
        return True

    def _identity(self, wire: RedisWire, *, create: bool) -> str:
        """The random name of the ledger, which is written once; empty where there is none."""
        meta = self._layout.meta
        if wire.away and self._name is not None:
            return self._name
        found = self._ask_meta(wire, b"HMGET", meta, b"schema", b"name")
        if found[0] is None and create:
            session = self._session(wire)
            session.begin_clocks(self._server_ms(wire))
            self._ask_meta(wire, b"HSETNX", meta, b"name", secrets.token_hex(16).encode())
            self._ask_meta(wire, b"HSETNX", meta, b"schema", str(SCHEMA).encode())
            found = self._ask_meta(wire, b"HMGET", meta, b"schema", b"name")
        schema, name = found
        if schema is None or name is None:
            return ""
        if int(schema) > SCHEMA:
            raise SchemaMismatch(f"{self.address} was made by a newer oncegate; upgrade this program")
        self._name = name.decode()
        return self._name

    def _ask_meta(self, wire: RedisWire, *command: bytes) -> list[bytes | None]:
        answer = wire.ask_key(command[1], *command)
        if isinstance(answer, redis.exceptions.RedisError):
            raise failures.translate(answer, self.address) from answer
        return answer if isinstance(answer, list) else []

    def _server_ms(self, wire: RedisWire) -> int:
        seconds, micros = wire.ask(None, "TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    def exists(self) -> bool:
        """Whether the prefix holds a ledger."""
        wire, _ = self._open()
        try:
            return self._identity(wire, create=False) != ""
        finally:
            wire.close()

    @contextmanager
    def look(self, *, again: bool = False) -> Iterator[RedisSession]:
        """Reads what is there; on a replica, what has arrived there."""
        wire, _ = self._open()
        try:
            if not self._identity(wire, create=False):
                raise StoreUnavailable(f"there is no ledger at {self.address}")
            yield self._session(wire)
        finally:
            wire.close()

    def close(self) -> None:
        """Nothing is kept for further looks."""

    def pending_migrations(self) -> list[Migration]:
        """The creation of the ledger, where there is none."""
        return [] if self.exists() else [_CREATION]

    def migrate(self) -> list[Migration]:
        """Creates the ledger."""
        pending = self.pending_migrations()
        self.connect().close()
        return pending

    def examine(self) -> list[Finding]:
        """Looks at servers, durability and eviction, and rehearses a claim on a random key."""
        wire, facts = self._open()
        try:
            ticks = _TICKS if self._clock is None else self._clock
            return list(examine(wire, facts, self._where, self._layout, ticks))
        finally:
            wire.close()
