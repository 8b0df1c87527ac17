"""A network that fails as told: a proxy of our own between a client and a server.

Passes bytes from one socket to another: Unix sockets for PostgreSQL, ports for other servers. On demand it
delays them, cuts connections, lets go of the client while the server goes on, resets after so many bytes,
or loses the server's reply to a commit. Used by tests; what was done is counted, so that a test can show
that its fault happened.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote, urlsplit, urlunsplit

SOCKET_NAME: Final = ".s.PGSQL.5432"
CHUNK_BYTES: Final = 65_536
BACKLOG: Final = 128
CONNECT_SECONDS: Final = 5.0


class _Link:
    """One client's connection to the server, and what has been decided about it."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.is_silent = False  # nothing more reaches the client
        self.replied_bytes = 0

    def cut(self) -> None:
        """Ends both sides at once."""
        for side in (self.client, self.server):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)

    def abandon(self) -> None:
        """Ends the client's side only: the server knows nothing of it and goes on."""
        self.is_silent = True
        with contextlib.suppress(OSError):
            self.client.shutdown(socket.SHUT_RDWR)


class Proxy:
    """Stands before the server whose socket is in `server_folder`; a context manager."""

    def __init__(self, server_folder: Path) -> None:
        self.happened: Counter[str] = Counter()
        self.delay_seconds = 0.0
        self._closing = threading.Event()
        self._server = str(server_folder / SOCKET_NAME)
        self._folder = Path(tempfile.mkdtemp(prefix="oncegate-proxy-"))
        self._guard = threading.Lock()
        self._links: list[_Link] = []
        self._on_reply: Callable[[_Link, bytes], bool] | None = None
        self._on_request: Callable[[_Link, bytes], bool] | None = None
        self._is_open = True
        self._listener = self._bind()
        self._listener.listen(BACKLOG)
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def _bind(self) -> socket.socket:
        """Where clients connect to."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self._folder / SOCKET_NAME))
        return listener

    def _dial(self) -> socket.socket:
        """A connection to the server; raises OSError where there is none."""
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            server.connect(self._server)
        except OSError:
            server.close()
            raise
        return server

    def url(self, direct: str) -> str:
        """The address that leads to the same database through the proxy."""
        return urlunsplit(urlsplit(direct)._replace(query=f"host={quote(str(self._folder), safe='')}"))

    # --- faults ---

    def refuse(self) -> None:
        """From now on the server is gone: connections are cut, new ones closed at once."""
        self.refuse_new()
        self.cut()

    def refuse_new(self) -> None:
        """Closes new connections at once, and leaves those that are there."""
        self._is_open = False

    def allow(self) -> None:
        """The server is back."""
        self._is_open = True

    def cut(self) -> int:
        """Cuts every connection, on both sides; returns how many."""
        links = self._living()
        for link in links:
            link.cut()
        self.happened["cut"] += len(links)
        return len(links)

    def abandon(self) -> int:
        """Lets go of every client, while the server goes on with what it was asked; returns how many."""
        links = self._living()
        for link in links:
            link.abandon()
        self.happened["abandon"] += len(links)
        return len(links)

    def reset_after(self, count: int) -> None:
        """Cuts the next connection that has been sent this many bytes by the server, and no other."""

        def decide(link: _Link, data: bytes) -> bool:
            if link.replied_bytes + len(data) < count:
                return False
            self._on_reply = None
            self.happened["reset"] += 1
            link.cut()
            return True

        self._on_reply = decide

    def lose_reply(
        self, marker: bytes, *, skip: int = 0, silently: bool = False, for_good: bool = False
    ) -> None:
        """Loses the reply that holds the marker, after letting some pass; then cuts, or says nothing.

        With `for_good` the server is gone from then on.
        """
        left = skip

        def decide(link: _Link, data: bytes) -> bool:
            nonlocal left
            if marker not in data:
                return False
            left -= 1
            if left >= 0:
                return False
            self._on_reply = None
            self.happened["lost reply"] += 1
            if silently:
                link.is_silent = True
            elif for_good:
                self.refuse()
            else:
                link.cut()
            return True

        self._on_reply = decide

    def lose_request(self, marker: bytes) -> None:
        """Cuts the connection whose client sends the marker, before the server hears of it."""

        def decide(link: _Link, data: bytes) -> bool:
            if marker not in data:
                return False
            self._on_request = None
            self.happened["lost request"] += 1
            link.cut()
            return True

        self._on_request = decide

    # --- passing bytes on ---

    def _living(self) -> list[_Link]:
        with self._guard:
            return list(self._links)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._begin(client)

    def _begin(self, client: socket.socket) -> None:
        try:
            if not self._is_open:
                raise OSError("refused")
            server = self._dial()
        except OSError:
            self.happened["refused"] += 1
            client.close()
            return
        link = _Link(client, server)
        with self._guard:
            self._links.append(link)
        for work in (self._pass_requests, self._pass_replies):
            threading.Thread(target=work, args=(link,), daemon=True).start()

    def _pass_requests(self, link: _Link) -> None:
        with contextlib.suppress(OSError):
            while data := link.client.recv(CHUNK_BYTES):
                decide = self._on_request
                if decide is not None and decide(link, data):
                    return
                link.server.sendall(data)
        if not link.is_silent:
            link.cut()

    def _pass_replies(self, link: _Link) -> None:
        with contextlib.suppress(OSError):
            while data := link.server.recv(CHUNK_BYTES):
                if self.delay_seconds:
                    self._closing.wait(self.delay_seconds)
                decide = self._on_reply
                if link.is_silent or (decide is not None and decide(link, data)):
                    continue
                link.replied_bytes += len(data)
                link.client.sendall(data)
        link.cut()
        with self._guard:
            self._links.remove(link)
        link.client.close()
        link.server.close()

    def close(self) -> None:
        """Cuts everything and leaves nothing behind."""
        self._closing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class TcpProxy(Proxy):
    """Stands before a server at a port of this machine."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        super().__init__(Path())

    @property
    def port(self) -> int:
        """Where clients connect to."""
        return int(self._listener.getsockname()[1])

    def url(self, direct: str) -> str:
        """The address that leads to the same server through the proxy."""
        parts = urlsplit(direct)
        user, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{user}{at}127.0.0.1:{self.port}"))

    def _bind(self) -> socket.socket:
        return socket.create_server(("127.0.0.1", 0))

    def _dial(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._server_port), CONNECT_SECONDS)
