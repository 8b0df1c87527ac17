"""A stable address in front of whichever worker came last, as a load balancer gives: for one peer's faults.

Each new connection goes to the port that the newest worker wrote down. Timed runs do not pass through here.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

CHUNK: Final = 65_536
START_SECONDS_MAX: Final = 30.0


@contextmanager
def forwarded(port_file: Path) -> Iterator[int]:
    """Serves on a port of its own, in a thread; yields that port."""
    loop, ready, ports = asyncio.new_event_loop(), threading.Event(), list[int]()

    async def serve() -> None:
        server = await asyncio.start_server(lambda *ends: _pass_on(port_file, *ends), "127.0.0.1", 0)
        ports.append(server.sockets[0].getsockname()[1])
        ready.set()

    def run() -> None:
        serving = loop.create_task(serve())
        loop.run_forever()
        left = [serving, *asyncio.all_tasks(loop)]
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        if not ready.wait(START_SECONDS_MAX):
            raise RuntimeError("the forwarder did not start")
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(START_SECONDS_MAX)


async def _pass_on(port_file: Path, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, ValueError, asyncio.CancelledError):
        port = int(port_file.read_text())  # noqa: ASYNC240 - five bytes, in a loop that does nothing else
        there, back = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(_copy(reader, back), _copy(there, writer))
    writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(CHUNK):
            writer.write(chunk)
            await writer.drain()
    writer.close()
