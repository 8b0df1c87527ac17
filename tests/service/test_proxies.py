"""A client's address comes from its connection, or from a proxy that the settings name, and nobody else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from oncegate.dashboard.attempts import WRONG_MAX
from oncegate.dashboard.operators import OperatorBook, Role
from oncegate.errors import ConfigError
from oncegate.service.proxies import TrustedProxies
from oncegate.store import LogKind
from tests.dashboard.conftest import Client
from tests.service.site import Site, settings

PROXIES = ["127.0.0.1", "10.0.0.0/28", "2001:db8::7"]


def seen(
    peer: str | None, *lines: str, proto: tuple[str, ...] = (), proxies: list[str] | None = None
) -> Any:
    """The scope that an application gets for a request from a peer with these lines of the header."""
    scopes: list[Any] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        scopes.append(scope)

    headers = [(b"x-forwarded-for", line.encode("latin-1")) for line in lines]
    headers += [(b"x-forwarded-proto", line.encode()) for line in proto]
    client = None if peer is None else (peer, 999)
    scope = {"type": "http", "client": client, "scheme": "http", "headers": headers}
    asyncio.run(TrustedProxies(application, PROXIES if proxies is None else proxies)(scope, None, None))
    return scopes[0]


@pytest.mark.parametrize(
    ("peer", "lines", "origin"),
    [
        ("127.0.0.1", ["203.0.113.9"], "203.0.113.9"),
        ("127.0.0.1", ["198.51.100.1, 203.0.113.9"], "203.0.113.9"),
        ("127.0.0.1", ["198.51.100.1", "203.0.113.9"], "203.0.113.9"),
        ("127.0.0.1", ["203.0.113.9, 10.0.0.3"], "203.0.113.9"),
        ("127.0.0.1", ["10.0.0.4, 10.0.0.3"], "10.0.0.4"),
        ("127.0.0.1", ["203.0.113.9:4711"], "203.0.113.9"),
        ("127.0.0.1", ["[2001:db8::9]:4711"], "2001:db8::9"),
        ("127.0.0.1", ["2001:DB8:0::9"], "2001:db8::9"),
        ("127.0.0.1", ["::ffff:203.0.113.9"], "203.0.113.9"),
        ("::ffff:127.0.0.1", ["203.0.113.9"], "203.0.113.9"),
        ("2001:db8::7", ["203.0.113.9"], "203.0.113.9"),
        ("127.0.0.1", ["198.51.100.1, unknown"], "127.0.0.1"),
        ("127.0.0.1", ["198.51.100.1, <script>, 10.0.0.3"], "10.0.0.3"),
        ("127.0.0.1", [""], "127.0.0.1"),
        ("127.0.0.1", [], "127.0.0.1"),
        ("127.0.0.2", ["203.0.113.9"], "127.0.0.2"),
        ("203.0.113.5", ["198.51.100.1"], "203.0.113.5"),
        ("/tmp/socket", ["198.51.100.1"], "/tmp/socket"),
    ],
)
def test_the_nearest_address_that_is_no_trusted_proxy_counts(
    peer: str, lines: list[str], origin: str
) -> None:
    assert seen(peer, *lines)["client"][0] == origin


def test_nobody_is_trusted_by_default_not_even_this_machine() -> None:
    scope = seen("127.0.0.1", "203.0.113.9", proto=("https",), proxies=[])
    assert (scope["client"], scope["scheme"]) == (("127.0.0.1", 999), "http")
    assert seen(None, "203.0.113.9")["client"] is None


def test_the_scheme_comes_from_trusted_proxies_only() -> None:
    assert seen("127.0.0.1", proto=("https",))["scheme"] == "https"
    assert seen("127.0.0.2", proto=("https",))["scheme"] == "http"
    assert seen("127.0.0.1", proto=("javascript",))["scheme"] == "http"
    assert seen("127.0.0.1", proto=("https", "http"))["scheme"] == "http"


@pytest.mark.parametrize("bad", ["proxy.example", "10.0.0.1/16", "*", ""])
def test_what_is_no_address_is_no_proxy(bad: str) -> None:
    with pytest.raises(ConfigError, match="is not a proxy's address"):
        TrustedProxies(None, [bad])


def notes(site: Site) -> list[str]:
    with site.gate.engine.store.look() as session:
        found = session.log_before(None, 1_000, by_people=True)
    return [one.note or "" for one in found if one.kind is LogKind.SIGNED_IN]


@pytest.mark.parametrize(("proxies", "place"), [((), "127.0.0.1"), (("127.0.0.1",), "203.0.113.9")])
def test_the_journal_of_sign_ins_names_the_address_that_can_be_trusted(
    tmp_path: Path, proxies: tuple[str, ...], place: str
) -> None:
    """A peer on this machine writes what it likes, unless it was named as a proxy."""
    site = Site(tmp_path, settings(server={"trusted_proxies": proxies}))
    token = OperatorBook(site.gate.engine.commits, site.gate.engine.clock).add(
        "ada", Role.VIEWER, None, "setup"
    )
    with site.serving():
        client = Client(f"http://127.0.0.1:{site.port}/ui")
        client.post("/login", {"token": token}, x_forwarded_for="203.0.113.9")
        assert notes(site) == [f"as viewer, from {place}"]


def test_wrong_tokens_are_limited_for_each_client_behind_a_proxy(tmp_path: Path) -> None:
    """One client's wrong tokens keep no other client out; a header of its own making does not help it."""
    site = Site(tmp_path, settings(server={"trusted_proxies": ("127.0.0.1",)}))
    token = OperatorBook(site.gate.engine.commits, site.gate.engine.clock).add(
        "ada", Role.VIEWER, None, "setup"
    )
    with site.serving():
        client = Client(f"http://127.0.0.1:{site.port}/ui")

        def try_one(said: str, forwarded: str) -> Any:
            return client.post("/login", {"token": said}, x_forwarded_for=forwarded)

        for number in range(WRONG_MAX):
            assert try_one("ogp_wrong", f"198.51.100.{number}, 203.0.113.9").status == 403
        limited = try_one(token, "198.51.100.200, 203.0.113.9")
        assert limited.status == 429
        assert 1 <= int(limited.headers["retry-after"]) <= 60
        assert "set-cookie" not in limited.headers
        assert try_one(token, "203.0.113.10").status == 303


def test_wrong_tokens_of_a_peer_that_is_no_proxy_count_for_the_peer(tmp_path: Path) -> None:
    site = Site(tmp_path, settings())
    with site.serving():
        client = Client(f"http://127.0.0.1:{site.port}/ui")
        told = [
            client.post("/login", {"token": "x"}, x_forwarded_for=f"203.0.113.{number}").status
            for number in range(WRONG_MAX + 1)
        ]
    assert told == [403] * WRONG_MAX + [429]
