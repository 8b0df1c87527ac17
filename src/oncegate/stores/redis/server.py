"""What a Redis server says about itself: version, role, persistence, eviction; and what follows from it.

Asked once a session, before anything is written. Must never trust a server that may remove keys by itself.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import redis
from msgspec import Struct

from oncegate.errors import DurabilityRefused, StoreUnavailable
from oncegate.store import Durability
from oncegate.stores.redis import failures
from oncegate.stores.redis.connection import Where
from oncegate.stores.redis.wire import RedisWire

RETENTION_MAX: Final = timedelta(hours=72)
RETENTION_FORCED: Final = timedelta(days=3650)
REDIS_MIN: Final = (7, 0)
VALKEY_MIN: Final = (8, 0)
_SETTINGS: Final = ("appendonly", "appendfsync", "maxmemory-policy")


class ServerFacts(Struct, frozen=True):
    """One server. `sync` is `appendfsync`, None where the server does not tell."""

    software: str
    version: tuple[int, ...]
    role: str
    primary: str
    history: str
    replicas: int
    is_cluster: bool
    appends: bool | None
    sync: str | None
    eviction: str | None
    memory_used: int
    memory_max: int

    @property
    def name(self) -> str:
        """The software and its version."""
        return f"{self.software} {'.'.join(map(str, self.version))}"

    @property
    def durability(self) -> Durability:
        """What survives, by what the server says."""
        if not self.appends or self.sync is None:
            return Durability.MEMORY
        return Durability.POWER_LOSS if self.sync == "always" else Durability.PROCESS_CRASH

    @property
    def persistence(self) -> str:
        """How the server keeps what it acknowledged."""
        if self.appends is None:
            return "the server does not tell"
        if not self.appends:
            return "appendonly no"
        return f"appendfsync {self.sync or 'not told'}"


def read_facts(wire: RedisWire, where: Where | None = None) -> ServerFacts:
    """Asks one server."""
    info = _info(wire, where)
    settings = _settings(wire, where)
    is_valkey = "valkey_version" in info
    version = info.get("valkey_version") or info.get("redis_version", "0")
    appends = settings.get("appendonly") or {"1": "yes", "0": "no"}.get(info.get("aof_enabled", ""))
    return ServerFacts(
        "Valkey" if is_valkey else "Redis",
        tuple(int(part) for part in version.split(".")[:3] if part.isdigit()),
        info.get("role", ""),
        f"{info.get('master_host', '')}:{info.get('master_port', '')}",
        info.get("master_replid", ""),
        int(info.get("connected_slaves", "0")),
        info.get("cluster_enabled") == "1",
        None if appends is None else appends == "yes",
        settings.get("appendfsync"),
        settings.get("maxmemory-policy") or info.get("maxmemory_policy"),
        int(info.get("used_memory", "0")),
        int(info.get("maxmemory", "0")),
    )


def _info(wire: RedisWire, where: Where | None) -> dict[str, str]:
    try:
        text = wire.ask(where, "INFO")
    except redis.exceptions.ResponseError as error:
        raise failures.translate(error, "INFO") from error
    lines = bytes(text).decode("utf-8", "replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def _settings(wire: RedisWire, where: Where | None) -> dict[str, str]:
    """What managed servers do not tell is left out."""
    try:
        pairs: Any = wire.ask(where, "CONFIG", "GET", *_SETTINGS)
    except redis.exceptions.ResponseError:
        return {}
    texts = [bytes(part).decode("utf-8", "replace") for part in pairs]
    return dict(zip(texts[::2], texts[1::2], strict=True))


def check_server(facts: ServerFacts, shown: str) -> None:
    """Raises where a server must not hold a ledger."""
    least = VALKEY_MIN if facts.software == "Valkey" else REDIS_MIN
    if facts.version < least:
        needed = ".".join(map(str, least))
        raise StoreUnavailable(
            f"{shown} is {facts.name}; the ledger needs {facts.software} {needed} or newer"
        )
    if facts.role != "master":
        raise StoreUnavailable(
            f"{shown} is a read-only replica of {facts.primary}; name the primary in the ledger's address"
        )
    if facts.eviction != "noeviction":
        told = facts.eviction or "not told by the server"
        raise DurabilityRefused(
            f"{shown}: maxmemory-policy is {told}: a full server would forget keys, and their events would"
            " run again; run CONFIG SET maxmemory-policy noeviction, and set it in the server's settings"
        )
