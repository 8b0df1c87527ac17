"""By which names this process may be called: other people's sites must not reach it through their own name.

A browser lets any site talk to whatever the site's name leads to. Who controls a name can let it lead to
127.0.0.1 (DNS rebinding): the browser then takes this process for that site, and only the Host header still
tells what it was called. Used in front of the service and of `oncegate page`; an application that mounts
the page has rules of its own. Must never let a name pass that is not configured.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from typing import Any, Final

from oncegate.errors import ConfigError
from oncegate.integrations.problems import Problem, ProblemKind

ANY: Final = "*"
NAME_MAX: Final = 253
MET_MAX: Final = 64
_ODD: Final = frozenset("/@\\?#[]%*, \t")
_LABEL: Final = r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
# Whatever ends in a number is taken for an address by resolvers: 0 is every network, 127.1 this machine.
_NAME: Final = re.compile(rf"(?!(.*\.)?([0-9]+|0x[0-9a-f]*)\.?\Z)({_LABEL}\.)*{_LABEL}\.?", re.ASCII)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by whatever name of its own."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(authority: str) -> str | None:
    """The host of a Host header without its port, in lower case; None for what cannot be one."""
    host, _, port = authority.strip().lower().rpartition(":")
    if not host or authority.rstrip().endswith("]"):
        host, port = authority.strip().lower(), ""
    if port and not (port.isascii() and port.isdigit()):
        return None
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        return host if ":" in host else None
    host = host.removesuffix(".")
    is_name = 0 < len(host) <= NAME_MAX and host.isascii() and not _ODD & set(host) and ":" not in host
    return host if is_name else None


class Hosts:
    """The names that are right: this machine's own, the address that is listened on, and those given."""

    def __init__(self, listens_on: str, given: Iterable[str] = ()) -> None:
        names, listens_on = [read_name(name) for name in given], read_listening(listens_on)
        # Whoever opens the process to a network puts something in front of it, unless they name names.
        self.is_any = ANY in names or (not names and not is_loopback(listens_on))
        self._names = frozenset((*names, listens_on))
        # Headers that were found right, so that webhooks' need not be read twice.
        self.met: set[bytes | None] = set()

    def has(self, authority: str) -> bool:
        """Whether a Host header names this process."""
        host = host_of(authority)
        return self.is_any or (host is not None and (host in self._names or is_loopback(host)))

    def are_named(self, header: bytes | None) -> bool:
        """The same for the bytes of a header, remembering those that are right; None is no name at all."""
        if header is None or header in self.met:
            return header is not None
        is_right = self.has(header.decode("latin-1"))
        if is_right and len(self.met) < MET_MAX:
            self.met.add(header)
        return is_right


def read_name(text: str) -> str:
    """Reads a configured name; raises ConfigError for an address, a port or a pattern."""
    name = text.strip()
    if name == ANY:
        return name
    host = host_of(name)
    if host is None or host != name.lower().removesuffix("."):
        raise ConfigError(
            f"{name[:60]!r} is not a host's name: write it without scheme, port and path, or '*'"
        )
    return host


def read_listening(text: str) -> str:
    """Reads where to listen; raises ConfigError for what is no address and no host's name.

    To a socket, an empty host means every network: write 0.0.0.0 for that.
    """
    host = text.lower()
    try:
        ip_address(host)
    except ValueError:
        if len(host) > NAME_MAX or _NAME.fullmatch(host) is None:
            raise ConfigError(
                f"{text[:60]!r} is neither a host's name nor an address: "
                "127.0.0.1 is this machine only, 0.0.0.0 every network"
            ) from None
    return host.removesuffix(".")


class HostGuard:
    """Lets requests through to an application that are addressed to it, and answers 421 to others.

    A request without a Host header passes: no browser sends one, and old health checks do.
    """

    def __init__(
        self, application: Any, hosts: Hosts, option: str, refused: Callable[[], None] = lambda: None
    ) -> None:
        self._application, self._hosts, self._refused = application, hosts, refused
        detail = f"this service is not called so; a name that it may be called by is given in {option}"
        self._problem = Problem(ProblemKind.MISDIRECTED, detail)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serves one request, or the server's own beginning and end."""
        if scope["type"] != "http" or self._hosts.is_any or all(map(self._hosts.has, _named(scope))):
            await self._application(scope, receive, send)
            return
        self._refused()
        headers = [(name.encode(), value.encode()) for name, value in self._problem.headers]
        headers.append((b"connection", b"close"))  # the body, if there is one, was not read
        await send({"type": "http.response.start", "status": self._problem.status, "headers": headers})
        await send({"type": "http.response.body", "body": self._problem.body})


def _named(scope: Any) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name.lower() == b"host"]
