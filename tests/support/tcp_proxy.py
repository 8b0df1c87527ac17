"""A proxy between a client and a server on this machine, whose connections a test cuts."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self


class TcpProxy:
    """Passes bytes to `port`; `cut` resets every connection. Lives in the running event loop."""

    def __init__(self, port: int) -> None:
        self._target, self._writers = port, set[asyncio.StreamWriter]()
        self.port, self.cuts = 0, 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """Resets all connections; counts those that were open."""
        for writer in list(self._writers):
            self.cuts += 1
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            onward, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        await asyncio.gather(self._pass(reader, back), self._pass(onward, writer))
        self._writers -= {writer, back}

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.transport.abort()
