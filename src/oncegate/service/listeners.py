"""Where the service listens: for callers, and at an address of its own for operators if one is given.

Both are sockets of one server with the same limits. A connection belongs to the listener whose port it came
to. With an address for operators, `/metrics`, `/openapi.json` and `/ui` are there and nowhere else, and
nothing but those and the health checks is there.
"""

from __future__ import annotations

import socket
from typing import Any, Final

from oncegate.errors import ConfigError
from oncegate.service.host_allow_list import read_listening
from oncegate.service.settings import ListenersSettings, ServerSettings

BACKLOG: Final = 2048
PORT_MAX: Final = 65_535


def read_address(text: str) -> tuple[str, int]:
    """Reads `HOST:PORT`, an IPv6 address in brackets; raises ConfigError."""
    host, _, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= PORT_MAX
    if not host or not is_port or (":" in host and not is_bracketed):
        raise ConfigError(f"{text[:60]!r} is not an address such as 127.0.0.1:9090 or [::1]:9090")
    return read_listening(host[1:-1] if is_bracketed else host), int(port)


def check_admin(listeners: ListenersSettings, server: ServerSettings) -> None:
    """Raises ConfigError unless operators have a port of their own."""
    if listeners.admin is None:
        return
    _, port = read_address(listeners.admin)
    if port and port == server.port:
        raise ConfigError(f"{port} is the port of [server]; give operators another one")


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG)


def address_of(listener: socket.socket) -> str:
    """A listener's address as a URL."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class Listeners:
    """Tells which listener a connection came to. `admin_port` is known once it listens."""

    def __init__(self, settings: ListenersSettings) -> None:
        self.settings = settings
        self.admin_port: int | None = None

    @property
    def has_admin(self) -> bool:
        """Whether operators have an address of their own."""
        return self.settings.admin is not None

    def is_admin(self, server: tuple[str, int | None] | None) -> bool:
        """Whether a connection to this address of ours came to the operators' listener."""
        return self.admin_port is not None and server is not None and server[1] == self.admin_port

    def open_admin(self) -> socket.socket | None:
        """Listens for operators, if they have an address."""
        if self.settings.admin is None:
            return None
        listener = listen(*read_address(self.settings.admin))
        self.admin_port = listener.getsockname()[1]
        return listener


class ByListener:
    """Gives a request to the application of the listener that it came to."""

    def __init__(self, listeners: Listeners, service: Any, admin: Any) -> None:
        self._listeners, self._service, self._admin = listeners, service, admin

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serves one request, or the server's own beginning and end."""
        is_admin = scope["type"] == "http" and self._listeners.is_admin(scope.get("server"))
        await (self._admin if is_admin else self._service)(scope, receive, send)
