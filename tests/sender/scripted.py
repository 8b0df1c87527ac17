"""A server that does exactly what a test tells it: every connection is given to the test's own function."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Peer:
    """The server's side of one connection."""

    def __init__(self, site: Site, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.site = site
        self.reader = reader
        self.writer = writer

    async def request(self) -> bytes | None:
        """Reads one request; None if the client has gone. Notes it at the site."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            found = head + await self.reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        self.site.requests.append(found)
        return found

    async def send(self, data: bytes) -> None:
        """Writes and flushes; a client that has gone is no error."""
        try:
            self.writer.write(data)
            await self.writer.drain()
        except ConnectionError:
            return

    async def close(self) -> None:
        """Closes this side."""
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            return


Play = Callable[[Peer], Awaitable[None]]


class Site:
    """What the server saw."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0
        self.requests: list[bytes] = []


@asynccontextmanager
async def serving(
    play: Play, tls: ssl.SSLContext | None = None, *, bound: socket.socket | None = None
) -> AsyncIterator[Site]:
    """Serves on a port of loopback, or on a bound socket; drops open connections at the end."""
    site, tasks = Site(), set[asyncio.Task[None]]()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        site.connections += 1
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        peer = Peer(site, reader, writer)
        try:
            await play(peer)
        except asyncio.CancelledError:
            pass
        finally:
            writer.transport.abort()

    if bound is None:
        bound = socket.create_server(("127.0.0.1", 0))
    server = await asyncio.start_server(accept, sock=bound, ssl=tls)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def answering(*answers: bytes) -> Play:
    """Answers each request of a connection with the next of these, the last one for ever."""

    async def play(peer: Peer) -> None:
        number = 0
        while await peer.request() is not None:
            await peer.send(answers[min(number, len(answers) - 1)])
            number += 1

    return play
