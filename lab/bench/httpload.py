"""The load of the HTTP measurement, in a process of its own: POSTs of 500 bytes over kept connections.

`python -m lab.bench.httpload HOST PORT CONNECTIONS REQUESTS FRESH SECRET` says `ready`, begins when it
is given a line, and prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from time import perf_counter, process_time
from typing import Final

BODY_BYTES: Final = 500
SECONDS_MAX: Final = 240


class Connection(asyncio.Protocol):
    """One connection: the next request goes out when the answer to the last has come."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._buffer = b""
        self._sent_at = 0.0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send()

    def _send(self) -> None:
        assert self._transport is not None
        request = self._load.next_request()
        if request is None:
            self._transport.close()
            return
        self._sent_at = perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Takes an answer, and goes on once it is complete."""
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(rest) < length:
            return
        self._buffer = b""
        self._load.answered(head[9:12], perf_counter() - self._sent_at)
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        """Ends."""
        self._load.ended()


class Load:
    """All connections together."""

    def __init__(self, connections: int, requests: int, fresh: bool, secret: str) -> None:
        self._left = requests
        self._open = connections
        self._fresh = fresh
        self._run = uuid.uuid4().hex if fresh else "again"
        self._head = (
            f"POST /in/bench HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {secret}\r\n"
            f"content-type: application/json\r\ncontent-length: {BODY_BYTES}\r\n\r\n"
        ).encode()
        self.done = asyncio.Event()
        self.latencies: list[float] = []
        self.refused = 0

    def next_request(self) -> bytes | None:
        """The next request, or None at the end."""
        if self._left == 0:
            return None
        self._left -= 1
        number = self._left if self._fresh else self._left % 1000
        body = f'{{"id":"{self._run}-{number}","fill":"'.encode()
        return self._head + body + b"x" * (BODY_BYTES - len(body) - 2) + b'"}'

    def answered(self, status: bytes, seconds: float) -> None:
        """Counts an answer."""
        self.latencies.append(seconds)
        self.refused += status != b"200"

    def ended(self) -> None:
        """Counts a connection that has ended."""
        self._open -= 1
        if not self._open:
            self.done.set()


async def run(host: str, port: int, connections: int, load: Load) -> dict[str, float]:
    """Puts the load on and returns what it measured."""
    loop = asyncio.get_running_loop()
    started, used = perf_counter(), process_time()
    for _ in range(connections):
        await loop.create_connection(lambda: Connection(load), host, port)
    await asyncio.wait_for(load.done.wait(), SECONDS_MAX)
    seconds = perf_counter() - started
    ordered = sorted(load.latencies)
    if not ordered:
        raise SystemExit("no request was answered")
    return {
        "answered": len(ordered),
        "seconds": seconds,
        "p50_ms": ordered[len(ordered) // 2] * 1000,
        "p99_ms": ordered[int(len(ordered) * 0.99)] * 1000,
        "refused": load.refused,
        "processor_seconds": process_time() - used,
    }


def main(words: list[str]) -> None:
    """Runs from the command line."""
    host, port, connections, requests, fresh, secret = words

    async def scene() -> dict[str, float]:
        load = Load(int(connections), int(requests), fresh == "fresh", secret)
        return await run(host, int(port), int(connections), load)

    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()  # those of several servers begin together
    sys.stdout.write(json.dumps(asyncio.run(scene())) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
