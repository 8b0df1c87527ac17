"""What `oncegate doctor` says of a Redis ledger. Leaves nothing behind: its own random key is removed."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import Final

from oncegate.clock import Clock, SystemClock
from oncegate.errors import StoreError
from oncegate.model.durations import format_duration
from oncegate.model.states import Decision
from oncegate.store import Durability, Finding, Reservation
from oncegate.stores.redis.address import RedisAddress
from oncegate.stores.redis.open_entries import Layout
from oncegate.stores.redis.server import RETENTION_MAX, ServerFacts, check_server
from oncegate.stores.redis.session import RedisSession
from oncegate.stores.redis.wire import RedisWire

MEMORY_USED_MAX: Final = 0.8  # of maxmemory; a full server refuses new events
REHEARSAL_MS: Final = 60_000
_TIMER: Final = SystemClock()


def examine(
    wire: RedisWire, facts: Sequence[ServerFacts], where: RedisAddress, layout: Layout, clock: Clock
) -> Iterator[Finding]:
    """Everything there is to say, in the order of how much it matters."""
    for one in facts:
        try:
            check_server(one, where.shown)
        except StoreError as error:
            yield Finding(False, "server", one.name, str(error))
            return
    yield Finding(True, "server", _servers(facts))
    yield _use()
    yield _durability(facts)
    yield _failover(facts, where)
    yield _memory(facts)
    yield _rehearsal(wire, where, layout, clock)
    yield Finding(True, "functions", wire.loaded_as)


def _servers(facts: Sequence[ServerFacts]) -> str:
    kinds = ", ".join(sorted({one.name for one in facts}))
    return f"{kinds}, cluster of {len(facts)} primaries" if facts[0].is_cluster else kinds


def _use() -> Finding:
    longest = format_duration(RETENTION_MAX)
    return Finding(True, "use", f"short windows only ({longest}), no audit trail")


def _durability(facts: Sequence[ServerFacts]) -> Finding:
    levels = list(Durability)
    worst = max(facts, key=lambda one: levels.index(one.durability))
    step = ""
    if worst.durability is not Durability.POWER_LOSS:
        step = (
            "acknowledged records can be lost, so that events run again:"
            " set appendonly yes and appendfsync always"
        )
    return Finding(True, "durability", f"{worst.durability.value} ({worst.persistence})", step)


def _failover(facts: Sequence[ServerFacts], where: RedisAddress) -> Finding:
    replicas, least = sum(one.replicas for one in facts), min(one.replicas for one in facts)
    waits = where.wait or where.wait_synced
    if not replicas:
        step = f"waits for {waits} replicas and has none: every write fails" if waits else ""
        return Finding(not waits, "failover", "no replica: nothing takes over", step)
    if least < waits:
        return Finding(False, "failover", f"{least} replicas", f"{waits} are waited for: every write fails")
    if waits:
        how = "WAITAOF" if where.wait_synced else "WAIT"
        step = "waiting is no consensus: a replica that lags and takes over may still lack records"
        return Finding(True, "failover", f"{replicas} replicas, {how} {waits}", step)
    step = "a failover may lose the last records, so that events run again: add wait=1 to the address"
    return Finding(True, "failover", f"{replicas} replicas, not waited for", step)


def _memory(facts: Sequence[ServerFacts]) -> Finding:
    used, limit = sum(one.memory_used for one in facts), sum(one.memory_max for one in facts)
    shown = f"{used / 2**20:.1f} MiB used"
    if not limit:
        return Finding(True, "memory", f"{shown}, no maxmemory, noeviction")
    step = "a full server refuses new events: raise maxmemory" if used > limit * MEMORY_USED_MAX else ""
    return Finding(True, "memory", f"{shown} of {limit / 2**20:.1f} MiB, noeviction", step)


def _rehearsal(wire: RedisWire, where: RedisAddress, layout: Layout, clock: Clock) -> Finding:
    """Reserves a random key and withdraws it."""
    session = RedisSession(wire, layout, where.shown, ticks=clock.ticks_ms)
    key = secrets.token_bytes(32)
    wanted = Reservation(
        key, "", "oncegate doctor", "rehearsal", key, b"", clock.wall_ms(), REHEARSAL_MS, 1,
        secrets.randbits(62), keep_ms=REHEARSAL_MS,
    )  # fmt: skip
    begun = _TIMER.elapsed_us()
    try:
        (claim,) = session.reserve([wanted])
        is_gone = session.withdraw([claim.claim]) == [True]
    except StoreError as error:
        return Finding(False, "writing", "not possible", str(error))
    ms = (_TIMER.elapsed_us() - begun) / 2000
    ok = claim.decision is Decision.RUN and is_gone
    return Finding(
        ok, "writing", f"possible, {ms:.1f} ms a write", "" if ok else "the key was not withdrawn"
    )
