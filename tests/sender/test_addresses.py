"""Every blocked range at both edges and just outside, every disguise, and the settings that allow some."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncegate.errors import ConfigError
from oncegate.sender.addresses import AddressPolicy, judge_answers

POLICY = AddressPolicy()
DEVELOPMENT = AddressPolicy(allow_loopback=True)

# Written out a second time on purpose: a range that is lost from the code is found here.
RANGES = """
0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24
192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4
168.63.129.16/32 192.31.196.0/24 192.52.193.0/24 192.175.48.0/24
::/128 ::1/128 ::/96 64:ff9b::/96 64:ff9b:1::/48 100::/64 100:0:0:1::/64 2001::/32 2001:2::/48 2001:10::/28
2001:20::/28 2001:30::/28 2001::/23 2001:db8::/32 2002::/16 2620:4f:8000::/48 3fff::/20
5f00::/16 fc00::/7 fe80::/10 fec0::/10 ff00::/8 ::/3 4000::/2 8000::/1
"""
NETWORKS = [ip_network(text) for text in RANGES.split()]


def is_listed(address: IPv4Address | IPv6Address) -> bool:
    return any(address in network for network in NETWORKS)


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_both_edges_of_a_blocked_range_are_refused_and_their_neighbours_are_not(network) -> None:
    for edge in (network[0], network[-1]):
        assert POLICY.refusal(edge) is not None
    for number in (int(network[0]) - 1, int(network[-1]) + 1):
        if 0 <= number < 2**network.max_prefixlen:
            neighbour = type(network[0])(number)
            assert (POLICY.refusal(neighbour) is None) is not is_listed(neighbour)


@pytest.mark.parametrize("text", ["1.1.1.1", "8.8.8.8", "172.15.255.255", "172.32.0.0", "223.255.255.255"])
def test_public_addresses_are_allowed(text: str) -> None:
    assert POLICY.refusal(ip_address(text)) is None
    assert POLICY.refusal(IPv6Address(f"::ffff:{text}")) is None


@pytest.mark.parametrize(
    "text", ["2606:4700::1111", "2a00:1450:4001::1", "2003::1", "2001:4860:4860::8888"]
)
def test_public_ipv6_addresses_are_allowed(text: str) -> None:
    assert POLICY.refusal(ip_address(text)) is None


@pytest.mark.parametrize(
    "text",
    [
        "::ffff:127.0.0.1",
        "::ffff:7f00:1",
        "0:0:0:0:0:ffff:a00:1",
        "::ffff:169.254.169.254",
        "::127.0.0.1",
        "64:ff9b::127.0.0.1",
        "64:ff9b::8.8.8.8",
        "64:ff9b:1::7f00:1",
        "2002:7f00:1::",
        "2002:808:808::1",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "fe80::1%eth0",
        "2606:4700::1111%1",
        "255.255.255.255",
    ],
)
def test_an_address_in_disguise_is_refused(text: str) -> None:
    assert POLICY.refusal(ip_address(text)) is not None


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_the_code_agrees_with_the_list_on_any_address(address) -> None:
    inner = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    assert (POLICY.refusal(address) is not None) is is_listed(inner or address)


@given(st.ip_addresses(v=4))
def test_a_mapped_address_is_judged_as_the_one_inside(address) -> None:
    mapped = IPv6Address(f"::ffff:{address}")
    assert (POLICY.refusal(mapped) is None) is (POLICY.refusal(address) is None)


def test_development_allows_loopback_and_nothing_else() -> None:
    for text in ("127.0.0.1", "127.255.255.255", "::1", "::ffff:127.0.0.1"):
        assert DEVELOPMENT.refusal(ip_address(text)) is None
    for text in ("10.0.0.1", "::", "169.254.169.254", "0.0.0.0", "::2", "::127.0.0.1", "2002:7f00:1::"):
        assert DEVELOPMENT.refusal(ip_address(text)) is not None


def test_a_network_of_ones_own_can_be_allowed() -> None:
    policy = AddressPolicy.of(allow_networks=["10.20.0.0/16"])
    assert policy.refusal(ip_address("10.20.1.1")) is None
    assert policy.refusal(ip_address("::ffff:10.20.1.1")) is None
    assert policy.refusal(ip_address("10.21.0.0")) is not None


@pytest.mark.parametrize(
    ("wide", "address"),
    [
        ("100.64.0.0/10", "100.100.100.200"),
        ("168.63.0.0/16", "168.63.129.16"),
        ("169.254.0.0/16", "169.254.169.254"),
        ("169.254.170.0/30", "169.254.170.2"),
        ("192.0.0.0/24", "192.0.0.192"),
        ("fc00::/7", "fd00:ec2::254"),
        ("fd00::/8", "fd20:ce::254"),
    ],
)
def test_credentials_of_a_cloud_are_opened_by_their_own_address_only(wide: str, address: str) -> None:
    """A network that somebody allows for its endpoints does not hand out the machine's credentials."""
    judged = ip_address(address)
    refusal = AddressPolicy.of(allow_networks=[wide]).refusal(judged)
    assert refusal is not None
    assert "credentials" in refusal
    assert AddressPolicy.of(allow_networks=[wide]).refusal(judged + 1) is None
    assert AddressPolicy.of(allow_networks=[address]).refusal(judged) is None


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("168.63.129.16", "Azure"),
        ("2001:2::1", "benchmarks"),
        ("2001:10::1", "ORCHID"),
        ("2001:2f:ffff::1", "ORCHIDv2"),
        ("2001:1::1", "protocol assignments"),
        ("5f00::1", "segment routing"),
        ("192.175.48.6", "AS112"),
    ],
)
def test_a_refusal_says_what_kind_of_address_it_is(address: str, why: str) -> None:
    assert why in str(POLICY.refusal(ip_address(address)))


@pytest.mark.parametrize("bad", ["10.20.0.1/16", "office", "10.0.0.0/33"])
def test_a_network_that_cannot_be_read_is_a_configuration_error(bad: str) -> None:
    with pytest.raises(ConfigError, match="allow_networks"):
        AddressPolicy.of(allow_networks=[bad])


def test_a_name_with_any_blocked_answer_is_refused() -> None:
    found = judge_answers(POLICY, ["8.8.8.8", "::1"])
    assert isinstance(found, str)
    assert "::1" in found
    assert judge_answers(POLICY, ["8.8.8.8", "2606:4700::1111"]) == (
        IPv4Address("8.8.8.8"),
        IPv6Address("2606:4700::1111"),
    )


def test_a_name_without_an_answer_is_refused() -> None:
    assert judge_answers(POLICY, []) == "the name has no address"


def test_a_mapped_answer_is_called_as_the_address_inside() -> None:
    assert judge_answers(POLICY, ["::ffff:8.8.8.8", "8.8.8.8"]) == (IPv4Address("8.8.8.8"),)
