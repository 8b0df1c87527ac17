"""No web site reaches the service through a name of its own that leads to this machine (DNS rebinding)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from oncegate.errors import ConfigError
from oncegate.service.host_allow_list import HostGuard, Hosts, host_of
from tests.service.site import Site, settings

OURS = ["127.0.0.1", "127.0.0.1:8700", "localhost", "LOCALHOST:1", "localhost.", "[::1]:8700", "127.9.9.9"]
FOREIGN = [
    "evil.example",
    "evil.example:8700",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "evil.example@localhost",
    "localhost@evil.example",
    "localhost:80@evil.example",
    "192.0.2.7",
    "[::2]:8700",
    "[evil.example]",
    "localhost/evil",
    "localhost evil",
    "localhost:evil",
    "localhost,evil.example",
    "2130706433",
    "127.1",
    "",
    ":8700",
    "ⓛocalhost",
]


@pytest.mark.parametrize("name", OURS)
def test_this_machines_own_names_are_right(name):
    assert Hosts("127.0.0.1").has(name)


@pytest.mark.parametrize("name", FOREIGN)
def test_other_names_are_not(name):
    assert not Hosts("127.0.0.1").has(name)
    assert not Hosts("localhost", ["gate.example.com"]).has(name)


def test_given_names_are_right_beside_this_machines():
    hosts = Hosts("127.0.0.1", ["Gate.Example.com"])
    assert hosts.has("gate.example.COM:443")
    assert hosts.has("localhost")
    assert not hosts.has("www.gate.example.com")
    assert Hosts("10.0.0.7", ["gate.example.com"]).has("10.0.0.7:8700"), "health checks go by address"


def test_who_listens_to_a_network_takes_every_name_unless_names_are_given():
    assert Hosts("0.0.0.0").has("anything.example")
    assert not Hosts("0.0.0.0", ["gate.example.com"]).has("anything.example")
    assert Hosts("127.0.0.1", ["*"]).has("anything.example")


@pytest.mark.parametrize(
    "name", ["https://a.example", "a.example:80", "a.example/x", "*.a.example", "", "[::1]", "a b", "a,b"]
)
def test_what_is_no_name_is_refused_as_a_setting(name):
    with pytest.raises(ConfigError, match="not a host's name"):
        Hosts("127.0.0.1", [name])


NOWHERE = ["", " ", "not a host", "127.0.0.1:8700", "http://a.example", "*", "a..b", ".", "-a", "a\n",
           "ä.example", "0", "127.1", "2130706433", "0x7f.1", "256.0.0.1", "[::1]",
           "::g", "a" * 254]  # fmt: skip


@pytest.mark.parametrize("host", NOWHERE)
def test_where_nobody_can_listen_on_purpose_is_refused(host):
    """To a socket an empty host is every network, and 127.1 this machine: neither would be guarded."""
    with pytest.raises(ConfigError, match="neither a host's name nor an address"):
        Hosts(host)


@pytest.mark.parametrize("host", ["LOCALHOST", "localhost.", "127.0.0.1", "::1", "127.8.8.8"])
def test_this_machine_is_guarded_however_it_is_spelled(host):
    assert not Hosts(host).has("evil.example")


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "10.0.0.7", "fe80::1%eth0", "gate.example.com", "my_host-1"]
)
def test_addresses_and_names_can_be_listened_on(host):
    assert Hosts(host).is_any


def test_every_place_of_the_service_refuses_a_foreign_name(tmp_path: Path):
    with Site(tmp_path, settings()).serving() as site:
        for method, path in (
            ("GET", "/livez"),
            ("GET", "/ui/login"),
            ("GET", "/ui"),
            ("POST", "/in/hooks"),
            ("POST", "/v1/events"),
            ("GET", "/openapi.json"),
        ):
            answer = site.call(method, path, headers={"host": "evil.example:8700"})
            assert (answer.status, answer.problem) == (421, "misdirected"), path
            assert "evil" not in answer.body.decode()
        assert site.call("GET", "/livez").status == 200
        assert site.call("GET", "/ui/login", headers={"host": f"localhost:{site.port}"}).status == 200


def test_a_webhook_with_everything_right_but_the_name_is_refused_and_runs_nothing(tmp_path: Path):
    """The short way of plain webhooks is no way around this."""
    with Site(tmp_path, settings()).serving() as site:
        assert site.hook({"id": 1}, host="evil.example").status == 421
        with site.gate.engine.store.look() as session:
            assert session.counts() == {}
        assert site.hook({"id": 1}).status == 200


def test_a_given_name_reaches_the_service(tmp_path: Path):
    named = settings(server={"hosts": ("gate.example.com",)})
    with Site(tmp_path, named).serving() as site:
        assert site.call("GET", "/livez", headers={"host": "gate.example.com"}).status == 200
        assert site.call("GET", "/livez", headers={"host": "evil.example"}).status == 421


def _asked(hosts: Hosts, *headers: tuple[bytes, bytes]) -> int:
    """The status that a request with these headers gets, 200 if it reaches the application."""
    told: list[int] = []

    async def send(message: Any) -> None:
        told.append(message.get("status", 0))

    async def application(scope: Any, receive: Any, send: Any) -> None:
        told.append(200)

    guard = HostGuard(application, hosts, "--allow-host")
    asyncio.run(guard({"type": "http", "headers": list(headers)}, None, send))
    return told[0]


def test_a_request_without_a_name_passes_and_one_with_two_does_not():
    hosts = Hosts("127.0.0.1")
    assert _asked(hosts) == 200
    assert _asked(hosts, (b"host", b"localhost")) == 200
    assert _asked(hosts, (b"host", b"localhost"), (b"Host", b"evil.example")) == 421
    assert _asked(hosts, (b"host", b"\xff\xfe")) == 421


def test_a_name_is_read_without_its_port():
    assert host_of("a.example:80") == "a.example"
    assert host_of("[::1]:80") == "::1"
    assert host_of("::1") is None
