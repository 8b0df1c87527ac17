"""Reads an endpoint's address strictly: one spelling for each host, everything else is refused.

What browsers and resolvers forgive (`127.1`, `0x7f000001`, `2130706433`, full-width digits, `user@host`,
backslashes, a trailing full stop) is how a blocked address is smuggled past a check.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final

from oncegate.errors import BadEndpoint
from oncegate.model.redact import masked_url
from oncegate.sender.addresses import Address, AddressPolicy, unmapped

URL_LENGTH_MAX: Final = 2048
HOST_LENGTH_MAX: Final = 253

_URL: Final = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://"
    r"(?P<authority>[^/?#]*)"
    r"(?P<path>/[^?#]*)?"
    r"(?:\?(?P<query>[^#]*))?"
    r"(?P<fragment>#.*)?"
)
_AUTHORITY: Final = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:\[\]]*)(?::(?P<port>[0-9]*))?")
_PRINTABLE: Final = re.compile(r"[!-~]+", re.ASCII)
_NOT_IN_TARGET: Final = re.compile(r'[\\"<>^`{|}]')
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
# A name whose last part looks like a number is an address in one of its older spellings.
_NUMERIC: Final = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_DEFAULT_PORTS: Final = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True, repr=False)
class EndpointUrl:
    """Where to send: `address` is set if the URL names an address and not a name."""

    scheme: str
    host: str
    port: int
    target: str
    address: Address | None = None

    @property
    def origin(self) -> tuple[str, str, int]:
        """What a connection can be shared by."""
        return self.scheme, self.host, self.port

    @property
    def host_header(self) -> str:
        """The `Host` of requests."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host_header}{self.target}"

    def __repr__(self) -> str:
        return f"EndpointUrl({masked_url(str(self))})"


def parse_endpoint_url(text: str, policy: AddressPolicy) -> EndpointUrl:
    """Reads an endpoint's address, or raises BadEndpoint with the reason."""
    if len(text) > URL_LENGTH_MAX:
        raise BadEndpoint(f"the address is longer than {URL_LENGTH_MAX} characters")
    if _PRINTABLE.fullmatch(text) is None:
        raise BadEndpoint(
            "the address has a space, a control character or a character outside ASCII; write the host as "
            "xn--… and the rest with %-escapes"
        )
    parts = _URL.fullmatch(text)
    if parts is None:
        raise BadEndpoint("the address is not a URL such as https://example.com/hooks")
    scheme = _scheme(parts["scheme"].lower(), policy)
    host, port = _authority(parts["authority"], scheme)
    target = _target(parts["path"] or "/", parts["query"], parts["fragment"])
    return _judged(EndpointUrl(scheme, host, port, target, _literal(host)), policy)


def _scheme(scheme: str, policy: AddressPolicy) -> str:
    if scheme == "https" or (scheme == "http" and policy.allow_http):
        return scheme
    allowed = "ONCEGATE_ALLOW_HTTP=1, in oncegate.toml [network] allow_http = true"
    hint = f"; http is allowed only with {allowed}" if scheme == "http" else ""
    raise BadEndpoint(f"the address begins with {scheme[:20]}://, not https://{hint}")


def _authority(text: str, scheme: str) -> tuple[str, int]:
    if "@" in text:
        raise BadEndpoint("the address has a user name or password; send credentials as a header")
    parts = _AUTHORITY.fullmatch(text)
    if parts is None:
        raise BadEndpoint("the address has no readable host and port")
    port = parts["port"]
    if port is None:
        return _host(parts["host"].lower()), _DEFAULT_PORTS[scheme]
    if _PORT.fullmatch(port) is None or int(port) > 65_535:
        raise BadEndpoint("the port is not a number from 1 to 65535")
    return _host(parts["host"].lower()), int(port)


def _host(host: str) -> str:
    """One spelling for each host: an IPv6 address without brackets, an IPv4 address, or a name."""
    if host.startswith("["):
        return _v6(host[1:-1])
    labels = host.split(".")
    if _NUMERIC.fullmatch(labels[-1]):
        return _v4(host)
    if len(host) > HOST_LENGTH_MAX or not all(map(_LABEL.fullmatch, labels)):
        raise BadEndpoint("the host is not a name such as example.com, without a full stop at its end")
    return host


def _v4(host: str) -> str:
    try:
        return str(IPv4Address(host))
    except AddressValueError:
        raise BadEndpoint("the host is an address in an unusual spelling; write it as a.b.c.d") from None


def _v6(host: str) -> str:
    try:
        address = IPv6Address(host)
    except AddressValueError:
        raise BadEndpoint("the host in brackets is not an IPv6 address") from None
    if address.scope_id is not None:
        raise BadEndpoint("the IPv6 address is tied to one network interface")
    return str(unmapped(address))


def _literal(host: str) -> Address | None:
    if ":" in host:
        return IPv6Address(host)
    return IPv4Address(host) if _NUMERIC.fullmatch(host.rpartition(".")[2]) else None


def _target(path: str, query: str | None, fragment: str | None) -> str:
    target = path if query is None else f"{path}?{query}"
    if fragment is not None:
        raise BadEndpoint("the address has a #fragment, which is never sent")
    if _NOT_IN_TARGET.search(target):
        raise BadEndpoint("the address has a character that must be written with a %-escape")
    return target


def _judged(url: EndpointUrl, policy: AddressPolicy) -> EndpointUrl:
    refusal = policy.refusal(url.address) if url.address is not None else _name_refusal(url.host, policy)
    if refusal is not None:
        raise BadEndpoint(refusal)
    return url


def _name_refusal(host: str, policy: AddressPolicy) -> str | None:
    is_local = host == "localhost" or host.endswith(".localhost")
    return f"{host} is this machine" if is_local and not policy.allow_loopback else None
