"""Which addresses may be called: every one is judged, however it is spelled, before anything is sent.

Called when an endpoint is registered, and again for each address a name turns out to have at the moment of
connecting. Pure: resolves nothing. `ipaddress.is_global` is no guard: it lets through addresses that
tunnels and translators carry to private networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final

from oncegate.errors import ConfigError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# The IANA special-purpose registries, and what is known beside them. Addresses that the registries call
# globally reachable are blocked as well where no receiver of events can have one: sinks for stray DNS,
# relays and identifiers of protocols. https://www.iana.org/assignments/iana-ipv4-special-registry,
# https://www.iana.org/assignments/iana-ipv6-special-registry
_BLOCKED_V4: Final = {
    "0.0.0.0/8": "this host",
    "10.0.0.0/8": "private",
    "100.64.0.0/10": "carrier-grade NAT",
    "127.0.0.0/8": "loopback",
    "168.63.129.16/32": "the platform of Azure, which answers inside its machines only",
    "169.254.0.0/16": "link-local, where clouds keep credentials",
    "172.16.0.0/12": "private",
    "192.0.0.0/24": "protocol assignments",
    "192.0.2.0/24": "documentation",
    "192.31.196.0/24": "AS112, a sink for misdirected DNS",
    "192.52.193.0/24": "AMT relays",
    "192.88.99.0/24": "6to4 relays",
    "192.168.0.0/16": "private",
    "192.175.48.0/24": "AS112, a sink for misdirected DNS",
    "198.18.0.0/15": "benchmarks",
    "198.51.100.0/24": "documentation",
    "203.0.113.0/24": "documentation",
    "224.0.0.0/4": "multicast",
    "240.0.0.0/4": "reserved or broadcast",
}
_BLOCKED_V6: Final = {
    "::/128": "unspecified",
    "::1/128": "loopback",
    "::/96": "an IPv4 address in disguise",
    "64:ff9b::/96": "translated to IPv4",
    "64:ff9b:1::/48": "translated to IPv4",
    "100::/64": "discard",
    "100:0:0:1::/64": "a dummy prefix",
    "2001::/32": "Teredo tunnel",
    "2001:2::/48": "benchmarks",
    "2001:10::/28": "ORCHID, identifiers that are not routed",
    "2001:20::/28": "ORCHIDv2, identifiers that are not routed",
    "2001:30::/28": "identifiers of drones",
    "2001::/23": "protocol assignments",
    "2001:db8::/32": "documentation",
    "2002::/16": "6to4 tunnel",
    "2620:4f:8000::/48": "AS112, a sink for misdirected DNS",
    "3fff::/20": "documentation",
    "5f00::/16": "segment routing",
    "fc00::/7": "private",
    "fe80::/10": "link-local",
    "fec0::/10": "site-local",
    "ff00::/8": "multicast",
    # What is outside 2000::/3 is nobody's public address, such as ::ffff:0:a.b.c.d, which translators take.
    "::/3": "not public",
    "4000::/2": "not public",
    "8000::/1": "not public",
}

# Where clouds hand out credentials. A network that is allowed as a whole does not open them: only an entry
# of `allow_networks` for the one address does.
_METADATA: Final = frozenset(
    ip_address(text)
    for text in (
        "100.100.100.200",  # Alibaba
        "168.63.129.16",  # Azure
        "169.254.42.42",  # Scaleway
        "169.254.169.254",  # AWS, Azure, Google, Oracle and others
        "169.254.170.2",  # AWS, tasks
        "169.254.170.23",  # AWS, pods
        "192.0.0.192",  # Oracle
        "fd00:42::42",  # Scaleway
        "fd00:ec2::23",  # AWS, pods
        "fd00:ec2::254",  # AWS
        "fd20:ce::254",  # Google
    )
)


def _table(ranges: dict[str, str]) -> tuple[tuple[int, int, str, str], ...]:
    """First and last address of each range as numbers: comparing them is quicker than `in`."""
    networks = ((ip_network(text), text, why) for text, why in ranges.items())
    return tuple((int(net[0]), int(net[-1]), text, why) for net, text, why in networks)


_TABLES: Final = {4: _table(_BLOCKED_V4), 6: _table(_BLOCKED_V6)}
_LOOPBACK: Final[tuple[Network, ...]] = (ip_network("127.0.0.0/8"), ip_network("::1/128"))


def unmapped(address: Address) -> Address:
    """The IPv4 address inside an IPv4-mapped one (`::ffff:a.b.c.d`); any other as it is."""
    inner = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if inner is None else inner


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """Who may be called. The defaults are for production: https, and public addresses only.

    `allow_loopback` is for development and tests. `allow_networks` names private networks with endpoints
    of one's own, as narrowly as possible; addresses that hand out a cloud's credentials stay closed unless
    an entry names the one address.
    """

    allow_http: bool = False
    allow_loopback: bool = False
    allow_networks: tuple[Network, ...] = ()

    @classmethod
    def of(
        cls, *, allow_http: bool = False, allow_loopback: bool = False, allow_networks: Sequence[str] = ()
    ) -> AddressPolicy:
        """A policy from settings; networks as `10.20.0.0/16`."""
        try:
            networks = tuple(ip_network(text) for text in allow_networks)
        except ValueError as error:
            raise ConfigError(f"allow_networks: {error}") from None
        return cls(allow_http, allow_loopback, networks)

    def refusal(self, address: Address) -> str | None:
        """Why an address must not be called; None if it may."""
        if isinstance(address, IPv6Address) and address.scope_id is not None:
            return f"{address} is tied to one network interface"
        judged = unmapped(address)
        found = _blocked_as(judged)
        if found is None or self._is_allowed(judged):
            return None
        if judged in _METADATA:
            return (
                f"{address} hands out a cloud's credentials ({found}); only an entry of allow_networks for"
                " this one address opens it"
            )
        return f"{address} is not a public address: {found}"

    def _is_allowed(self, address: Address) -> bool:
        allowed = self.allow_networks + (_LOOPBACK if self.allow_loopback else ())
        holding = [network for network in allowed if address in network]
        if address in _METADATA:
            return any(network.num_addresses == 1 for network in holding)
        return bool(holding)


def _blocked_as(address: Address) -> str | None:
    number = int(address)
    for first, last, text, why in _TABLES[address.version]:
        if first <= number <= last:
            return f"{text}, {why}"
    return None


def judge_answers(policy: AddressPolicy, answers: Sequence[str]) -> tuple[Address, ...] | str:
    """Judges all addresses of a name: usable ones in order, or the reason why none may be called.

    One blocked answer refuses the name: a name with mixed answers is an attack or a mistake.
    """
    addresses = tuple(dict.fromkeys(unmapped(ip_address(text)) for text in answers))
    if not addresses:
        return "the name has no address"
    refusals = (policy.refusal(address) for address in addresses)
    return next((refusal for refusal in refusals if refusal is not None), addresses)
