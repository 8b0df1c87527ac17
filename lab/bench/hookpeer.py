"""The receiver of the sender's measurement, in a process of its own: takes POSTs and judges their order.

`python -m lab.bench.hookpeer DELAY_MS FAILURES_PER_CENT` prints its port. An event is refused with 500
at its first arrival in the given share of cases, always if its key is `poisoned`. `GET` returns what was
seen. Times are compared with those in the payloads: both processes read the same monotonic clock.
"""

from __future__ import annotations

import asyncio
import json
import sys
from time import perf_counter
from typing import Any, Final
from zlib import crc32

POISONED: Final = b"poisoned"
_OK: Final = b"HTTP/1.1 204 No Content\r\n\r\n"
_FAILED: Final = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n"


class Record:
    """What arrived: the order of each key, repeats, and times."""

    def __init__(self, failures_per_cent: float) -> None:
        self._share = int(failures_per_cent * 100)
        self._acknowledged: dict[bytes, tuple[int, float]] = {}
        self._refused: set[tuple[bytes, int]] = set()
        self._unwell: set[bytes] = set()
        self.count = self.failed = self.reordered = self.repeated = 0
        self._gaps_ms: list[float] = []
        self._latencies: list[tuple[bytes, float]] = []
        self._first_at = self._last_at = 0.0

    def arrived(self, key: bytes, seq: int, now: float, emitted_at: float = 0.0) -> bool:
        """Judges an arrival; tells whether it is taken.

        How long it came after the acknowledgement of its predecessor counts only where it was emitted by
        then: otherwise that is the emitter's time, not the sender's.
        """
        self._first_at = self._first_at or now
        done, at = self._acknowledged.get(key, (0, 0.0))
        if seq <= done:
            self.repeated += 1
            return True
        if (key, seq) not in self._refused:
            self.reordered += seq != done + 1
            if done and emitted_at <= at:
                self._gaps_ms.append((now - at) * 1000)
        if self._fails(key, seq):
            self.failed += 1
            self._refused.add((key, seq))
            self._unwell.add(key)
            return False
        return True

    def _fails(self, key: bytes, seq: int) -> bool:
        if key == POISONED:
            return True
        is_chosen = crc32(b"%s %d" % (key, seq)) % 10_000 < self._share
        return is_chosen and (key, seq) not in self._refused

    def acknowledged(self, key: bytes, seq: int, emitted_at: float, now: float) -> None:
        """Notes an event whose answer goes out now."""
        if seq <= self._acknowledged.get(key, (0, 0.0))[0]:
            return
        self._acknowledged[key] = (seq, now)
        self._last_at = now
        self.count += 1
        if emitted_at:
            self._latencies.append((key, (now - emitted_at) * 1000))

    def report(self) -> dict[str, Any]:
        """Everything seen, in figures."""
        every = [latency for _, latency in self._latencies]
        well = [latency for key, latency in self._latencies if key not in self._unwell]
        return {
            "count": self.count,
            "failed": self.failed,
            "reordered": self.reordered,
            "repeated": self.repeated,
            "seconds": self._last_at - self._first_at,
            "successor_ms": share(self._gaps_ms, 0.5),
            "successor_p99_ms": share(self._gaps_ms, 0.99),
            "successors": len(self._gaps_ms),
            "p50_ms": share(every, 0.5),
            "p99_ms": share(every, 0.99),
            "healthy_p99_ms": share(well, 0.99),
        }


def share(values: list[float], part: float) -> float | None:
    """The value that this part of them stayed under; None without any."""
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * part))], 2) if ordered else None


class Connection(asyncio.Protocol):
    """One connection of a sender."""

    def __init__(self, record: Record, delay_seconds: float) -> None:
        self._record = record
        self._delay = delay_seconds
        self._buffer = b""
        self._transport: Any = None
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Takes a request once it is complete; clients here send one at a time."""
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        if head.startswith(b"GET"):
            self._tell()
        elif len(body) >= int(_header(head.lower(), b"content-length")):
            self._buffer = b""
            self._take(head, body)

    def _take(self, head: bytes, body: bytes) -> None:
        now = perf_counter()
        key, seq = _header(head, b"x-key"), int(_header(head, b"x-seq"))
        emitted_at = _emitted_at(body)
        taken = self._record.arrived(key, seq, now, emitted_at)
        if self._delay:
            self._loop.call_later(self._delay, self._answer, taken, key, seq, emitted_at)
        else:
            self._answer(taken, key, seq, emitted_at)

    def _answer(self, taken: bool, key: bytes, seq: int, emitted_at: float) -> None:
        if taken:
            self._record.acknowledged(key, seq, emitted_at, perf_counter())
        self._transport.write(_OK if taken else _FAILED)

    def _tell(self) -> None:
        body = json.dumps(self._record.report()).encode()
        self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        self._buffer = b""


def _header(head: bytes, name: bytes) -> bytes:
    return head.partition(b"\r\n" + name + b": ")[2].partition(b"\r\n")[0]


def _emitted_at(body: bytes) -> float:
    found = body.partition(b'"emitted_at":')[2]
    return float(found.partition(b",")[0].partition(b"}")[0]) if found else 0.0


async def serve(delay_ms: float, failures_per_cent: float) -> None:
    """Serves until the process ends."""
    record = Record(failures_per_cent)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(record, delay_ms / 1000), "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    from oncegate.sender.loops import run

    run(serve(float(sys.argv[1]), float(sys.argv[2])))
