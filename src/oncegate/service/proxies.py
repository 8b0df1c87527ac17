"""Whose address a request has: the peer's own, unless the peer is a proxy that the settings name.

Clients can write `X-Forwarded-For`. Its last address was written by the peer itself; those before it only
count while each one behind them is a trusted proxy. Must never take an address or a scheme from any other
peer, this machine's own included.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address, ip_network
from typing import Any, Final

from oncegate.errors import ConfigError
from oncegate.sender.addresses import Network, unmapped

HOPS_MAX: Final = 32
_SCHEMES: Final = frozenset((b"http", b"https"))


def read_proxy(text: str) -> Network:
    """Reads a trusted proxy, an address or a network; raises ConfigError."""
    try:
        return ip_network(text.strip())
    except ValueError:
        raise ConfigError(
            f"{text[:60]!r} is not a proxy's address: write 10.0.0.7 or a network such as 10.0.0.0/28"
        ) from None


class TrustedProxies:
    """Gives an application the address and scheme that trusted proxies report."""

    def __init__(self, application: Any, given: Iterable[str] = ()) -> None:
        self._application = application
        self._networks = tuple(read_proxy(text) for text in given)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serves one request, or the server's own beginning and end."""
        if self._networks and scope["type"] == "http":
            scope = self._seen_through(scope)
        await self._application(scope, receive, send)

    def _seen_through(self, scope: Any) -> Any:
        client = scope.get("client")
        if client is None or not self._is_trusted(client[0]):
            return scope
        seen = {**scope, "client": (self._origin(scope, client[0]), 0)}
        schemes = _values(scope, b"x-forwarded-proto")
        if len(schemes) == 1 and schemes[0] in _SCHEMES:
            seen["scheme"] = schemes[0].decode()
        return seen

    def _origin(self, scope: Any, peer: str) -> str:
        """The nearest address that is no trusted proxy; the last one known where none is readable."""
        nearest = peer
        for text in reversed(_values(scope, b"x-forwarded-for")[-HOPS_MAX:]):
            address = _address(text.decode("latin-1"))
            if address is None:
                return nearest
            nearest = address
            if not self._is_trusted(address):
                return nearest
        return nearest

    def _is_trusted(self, text: str) -> bool:
        try:
            address = unmapped(ip_address(text))
        except ValueError:
            return False
        return any(address in network for network in self._networks)


def _values(scope: Any, wanted: bytes) -> list[bytes]:
    """All values of a header, in their order, over all lines it was sent in."""
    lines = [value for name, value in scope["headers"] if name == wanted]
    return [part.strip() for line in lines for part in line.split(b",")]


def _address(text: str) -> str | None:
    """An address with or without a port, in its one spelling; None for anything else."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return str(unmapped(ip_address(text)))
    except ValueError:
        return None
