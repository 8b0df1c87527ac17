"""Opens guarded connections: a name is resolved once, every answer judged, one of them connected to.

Must never let another layer resolve a name again, and never follow what the environment says about
proxies: the socket is made here, to an address that was judged here, and its peer is checked.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from typing import Final

from oncegate.sender.addresses import Address, AddressPolicy, judge_answers, unmapped
from oncegate.sender.connection import HttpConnection, NoAnswer
from oncegate.sender.exchange import FailureKind, Phase
from oncegate.sender.urls import EndpointUrl

ADDRESSES_MAX: Final = 4  # tried in order until one can be connected to; nothing is sent meanwhile
CONNECT_SECONDS_MAX: Final = 5.0  # for one address, so that a dead first one leaves time for the next
RESOLVER_THREADS_MAX: Final = 16

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class ConnectProgress:
    """How far an attempt has come; read when its time is up."""

    __slots__ = ("phase",)

    def __init__(self) -> None:
        self.phase = Phase.RESOLVE


class SystemResolver:
    """The machine's own resolver, in threads; a name that is being asked for is not asked for again."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(RESOLVER_THREADS_MAX, "oncegate-resolve")
        self._asked: dict[tuple[str, int], asyncio.Future[list[str]]] = {}

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """All addresses of a name; raises OSError."""
        asked = self._asked.get((host, port))
        if asked is None:
            loop = asyncio.get_running_loop()
            asked = loop.run_in_executor(self._threads, look_up, host, port)
            self._asked[host, port] = asked
            asked.add_done_callback(lambda done: self._answered(host, port, done))
        # One caller whose time is up must not take the answer away from the others.
        return await asyncio.shield(asked)

    def _answered(self, host: str, port: int, done: asyncio.Future[list[str]]) -> None:
        del self._asked[host, port]
        if not done.cancelled():
            done.exception()  # looked at, even if everybody's time was up

    def close(self) -> None:
        """Waits for nothing: a lookup that hangs ends by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def look_up(host: str, port: int) -> list[str]:
    """All addresses of a name, from the machine's own resolver; blocks, and raises OSError."""
    # Bytes keep Python from encoding the name in a way of its own.
    found = socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM)
    return [str(sockaddr[0]) for *_, sockaddr in found]


def default_tls() -> ssl.SSLContext:
    """TLS 1.2 or newer, certificates and names checked."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


class Dialer:
    """Opens connections for one policy."""

    def __init__(self, policy: AddressPolicy, tls: ssl.SSLContext | None, resolve: Resolve) -> None:
        self._policy = policy
        self._tls = tls
        self._resolve = resolve

    async def dial(self, url: EndpointUrl, progress: ConnectProgress) -> HttpConnection:
        """A connection to the URL's host, or NoAnswer; nothing has been sent on it."""
        addresses = await self._judged_addresses(url)
        progress.phase = Phase.CONNECT
        sock = await _connect_first(addresses, url.port)
        _check_peer(sock, addresses)
        progress.phase = Phase.TLS if url.scheme == "https" else Phase.CONNECT
        return await self._protocol_on(sock, url)

    async def _judged_addresses(self, url: EndpointUrl) -> tuple[Address, ...]:
        try:
            answers = [str(url.address)] if url.address else await self._resolve(url.host, url.port)
            found = judge_answers(self._policy, answers)
        except (OSError, UnicodeError) as error:
            raise NoAnswer(FailureKind.DNS, f"{url.host}: {error}") from None
        except ValueError:
            raise NoAnswer(FailureKind.REFUSED_ADDRESS, f"{url.host}: an unreadable address") from None
        if isinstance(found, str):
            raise NoAnswer(FailureKind.REFUSED_ADDRESS, f"{url.host}: {found}")
        return found

    async def _protocol_on(self, sock: socket.socket, url: EndpointUrl) -> HttpConnection:
        loop = asyncio.get_running_loop()
        connection = HttpConnection(loop, sock)
        context, name = self._tls_for(url)
        try:
            await loop.create_connection(lambda: connection, sock=sock, ssl=context, server_hostname=name)
        except (ssl.SSLError, ssl.CertificateError) as error:
            raise NoAnswer(FailureKind.TLS, f"{url.host}: {error}") from None
        except OSError as error:
            kind = FailureKind.CONNECT if context is None else FailureKind.TLS
            raise NoAnswer(kind, f"{url.host}: {error}") from None
        return connection

    def _tls_for(self, url: EndpointUrl) -> tuple[ssl.SSLContext | None, str | None]:
        if url.scheme != "https":
            return None, None
        if self._tls is None:
            self._tls = default_tls()
        return self._tls, url.host


async def _connect_first(addresses: Sequence[Address], port: int) -> socket.socket:
    """Connects to the first address that answers."""
    failure = "no address"
    for address in addresses[:ADDRESSES_MAX]:
        try:
            return await _connect(address, port)
        except TimeoutError:
            failure = f"{address}: no answer within {CONNECT_SECONDS_MAX:g} s"
        except OSError as error:
            failure = f"{address}: {error.strerror or error}"
    raise NoAnswer(FailureKind.CONNECT, failure)


async def _connect(address: Address, port: int) -> socket.socket:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        async with asyncio.timeout(CONNECT_SECONDS_MAX):
            await asyncio.get_running_loop().sock_connect(sock, (str(address), port))
    except BaseException:
        sock.close()
        raise
    return sock


def _check_peer(sock: socket.socket, judged: Sequence[Address]) -> None:
    """The connected address must be one of those that were checked."""
    try:
        peer = unmapped(ip_address(sock.getpeername()[0]))
    except (OSError, ValueError) as error:
        sock.close()
        raise NoAnswer(FailureKind.CONNECT, f"the connection has no peer: {error}") from None
    if peer not in judged:
        sock.close()
        raise NoAnswer(FailureKind.REFUSED_ADDRESS, f"connected to {peer}, which was not judged")
