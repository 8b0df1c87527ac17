"""How costs grow with what a ledger holds: keys on both stores, and lanes. They must stay all but flat.

Keys are filled in through the store's own reservations and settlements, many in one transaction, with
tiny payloads: the real schema and statements, without the gate around them. On PostgreSQL, where five
million keys would otherwise take longer to fill than all else to measure, filling does not wait for the
disk, has several connections and a server with room in memory; what is measured waits, on one connection.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from lab.bench.lanes import measure_lanes
from oncegate.bench.samples import Sample
from oncegate.bench.size import bytes_used
from oncegate.clock import SystemClock
from oncegate.maintenance.pruner import Bounds, forget_older
from oncegate.model.states import State
from oncegate.store import Reservation, Session, Settlement, Store
from oncegate.testing.postgres import PostgresServer
from oncegate.wiring import open_store

SURFACE: Final = "growth"
FILL: Final = 500  # keys a transaction
UNFLUSHED: Final = "SET synchronous_commit = off"
FILLING: Final = 3  # connections at once
ROOMY: Final = {"shared_buffers": "4GB", "max_wal_size": "16GB"}  # the default holds a million keys
PROBES: Final = 300  # reservations that are timed at each size
PRUNED: Final = 2_000  # keys that are forgotten at each size
OLD: Final = timedelta(days=200)
SIZES: Final = (10_000, 100_000, 1_000_000, 5_000_000)
LANES: Final = (1, 100, 10_000, 100_000)
LANE_EVENTS_MIN: Final = 2_000


@dataclass(slots=True)
class Growth:
    """What to measure."""

    sizes: tuple[int, ...] = SIZES
    lanes: tuple[int, ...] = LANES
    postgres: PostgresServer | None = None
    talk: Callable[[str], None] = field(default=lambda line: None)
    fill_seconds_max: float = 420.0  # a size that would take longer to fill is left out, and said to be
    _left_out: list[str] = field(default_factory=list)

    def run(self) -> dict[str, Any]:
        """Measures keys and lanes on every store there is."""
        stores = ["sqlite"] + (["postgres"] if self.postgres is not None else [])
        keys = [point for store in stores for point in self._keys(store)]
        lanes = [point for store in stores for point in self._lanes(store)]
        return {"keys": keys, "lanes": lanes, "left_out": self._left_out}

    def _keys(self, name: str) -> Iterator[dict[str, Any]]:
        with self._roomy_address(name) as url:
            held, a_key = 0, 0.0
            for size in self.sizes:
                if (size - held) * a_key > self.fill_seconds_max:
                    minutes = (size - held) * a_key / 60
                    self._left_out.append(
                        f"{name}: filling up to {size:,} keys takes about {minutes:.0f} minutes"
                    )
                    break
                self.talk(f"{name}: filling up to {size:,} keys")
                began = perf_counter()
                _fill(url, held, size)
                filled = perf_counter() - began
                held, a_key = size, filled / (size - held)
                yield {"store": name, "keys": size, "fill_seconds": round(filled, 1), **_point(url, size)}

    def _lanes(self, name: str) -> Iterator[dict[str, Any]]:
        for lanes in self.lanes:
            self.talk(f"{name}: {lanes:,} lanes")
            with self._address(name) as url:
                each = max(1, LANE_EVENTS_MIN // lanes)
                figures = asyncio.run(measure_lanes(open_store(url), keys=lanes, events_each=each))
            rate, gap = round(figures.delivered_per_second), round(figures.successor_ms_median, 2)
            yield {"store": name, "lanes": lanes, "delivered_per_second": rate, "successor_ms": gap}

    @contextmanager
    def _roomy_address(self, name: str) -> Iterator[str]:
        if name == "postgres":
            with PostgresServer(ROOMY) as server:
                yield server.new_database()
        else:
            with self._address(name) as url:
                yield url

    @contextmanager
    def _address(self, name: str) -> Iterator[str]:
        if name == "postgres":
            assert self.postgres is not None
            yield self.postgres.new_database()
            return
        with tempfile.TemporaryDirectory(prefix="oncegate-bench-") as folder:
            yield f"sqlite:///{folder}/ledger.db"


def _fill(url: str, first: int, last: int) -> None:
    store, blocks = open_store(url), range(first, last, FILL)
    if not url.startswith("postgresql"):
        _fill_blocks(store, blocks, last)
        return
    with ThreadPoolExecutor(FILLING) as threads:
        shares = [blocks[share::FILLING] for share in range(FILLING)]
        for filling in [threads.submit(_fill_blocks, store, share, last, UNFLUSHED) for share in shares]:
            filling.result()


def _fill_blocks(store: Store, starts: range, last: int, setting: str | None = None) -> None:
    session = store.connect()
    try:
        if setting is not None:
            with session.unit():
                session.execute(setting, ())
        for start in starts:
            _settle_block(session, range(start, min(start + FILL, last)), "fill")
    finally:
        session.close()


def _settle_block(session: Session, numbers: range, prefix: str) -> None:
    long_ago = SystemClock().wall_ms() - OLD // timedelta(milliseconds=1)
    requests = [_reservation(f"{prefix}-{number}", long_ago) for number in numbers]
    with session.unit():
        claims = session.reserve(requests)
        session.settle([Settlement(*claim.claim, State.COMMITTED, long_ago, "bench") for claim in claims])


def _reservation(key: str, at_ms: int) -> Reservation:
    digest = sha256(key.encode()).digest()
    return Reservation(
        digest, "", SURFACE, key, digest, b"{}", at_ms, lease_ms=20_000, attempts_max=8, token=1
    )


def _point(url: str, size: int) -> dict[str, Any]:
    opened, store, session = _opened(url)
    try:
        reserving = _time_reservations(session, size)
    finally:
        session.close()
    weight = _weight(url, store, size)
    pruning = _time_pruning(store, size)
    return {
        "open_ms": round(opened, 1),
        "reserve_p50_ms": round(reserving.percentile(0.5), 3),
        "reserve_p99_ms": round(reserving.percentile(0.99), 3),
        "bytes_per_key": round(weight, 1),
        "prune_us_per_key": round(pruning, 1),
    }


def _opened(url: str) -> tuple[float, Store, Session]:
    """How long it takes from an address to a session that has answered, on a ledger that exists."""
    begun = perf_counter()
    store = open_store(url)
    session = store.connect()
    with session.unit():
        session.now_ticks()
    return (perf_counter() - begun) * 1000, store, session


def _time_reservations(session: Session, size: int) -> Sample:
    latencies: list[float] = []
    begun = perf_counter()
    probes = min(PROBES, max(10, size // 10))
    for number in range(probes):
        started = perf_counter()
        with session.unit():
            (claim,) = session.reserve([_reservation(f"probe-{size}-{number}", SystemClock().wall_ms())])
        latencies.append((perf_counter() - started) * 1000)
        with session.unit():
            session.settle([Settlement(*claim.claim, State.COMMITTED, 0, "bench")])
    return Sample(probes, perf_counter() - begun, tuple(latencies))


def _weight(url: str, store: Store, size: int) -> float:
    """Bytes on disk for each key, with its log record and a payload of two bytes."""
    if url.startswith("sqlite"):
        connection = sqlite3.connect(Path(url.removeprefix("sqlite:///")))
        try:
            return bytes_used(connection) / size
        finally:
            connection.close()
    session = store.connect()
    try:
        with session.unit():
            ((total,),) = session.execute(
                "SELECT sum(pg_total_relation_size(oid)) FROM pg_class"
                " WHERE relkind IN ('r', 'm') AND relname LIKE 'oncegate%'",
                (),
            )
    finally:
        session.close()
    return float(total) / size


def _time_pruning(store: Store, size: int) -> float:
    bounds = Bounds(forgotten_max=min(PRUNED, size // 5))
    begun = perf_counter()
    done, _ = forget_older(store, SystemClock(), SURFACE, OLD / 2, actor="bench", bounds=bounds)
    return (perf_counter() - begun) / max(1, done.entries) * 1e6
