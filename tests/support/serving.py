"""Servers of the standard library, served in a thread while a test goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from http.server import HTTPServer

from tests.support.gates import running


@contextlib.contextmanager
def running_server(server: HTTPServer) -> Iterator[int]:
    """Serves until the block ends, and closes the server; its port."""
    with server, running(lambda: server.serve_forever(poll_interval=0.01)):
        try:
            yield server.server_port
        finally:
            server.shutdown()
