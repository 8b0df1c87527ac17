"""TLS of the guarded client: certificates and names are checked, and nothing is sent before."""

from __future__ import annotations

import asyncio
import ssl
from datetime import timedelta

import pytest
import trustme

from oncegate.sender.addresses import AddressPolicy
from oncegate.sender.exchange import FailureKind, NoResponse, Phase, Response
from oncegate.sender.http import HttpClient
from oncegate.sender.request_builder import Request
from oncegate.sender.urls import parse_endpoint_url
from oncegate.testing.waiting import DEADLINE_SECONDS
from tests.sender.scripted import OK, Peer, answering, serving
from tests.support.loops import leap

POLICY = AddressPolicy(allow_loopback=True)
REQUEST = Request((), b"{}")


async def loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server_side(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


async def call(port: int, host: str, tls: ssl.SSLContext | None, times: int = 1):
    http = HttpClient(POLICY, tls=tls, resolve=loopback)
    try:
        url = parse_endpoint_url(f"https://{host}:{port}/", POLICY)
        found = [
            await http.post(url, REQUEST, deadline=timedelta(seconds=DEADLINE_SECONDS))
            for _ in range(times)
        ]
    finally:
        await http.close()
    return found[-1]


async def test_a_trusted_name_is_called_by_its_name(authority: trustme.CA) -> None:
    names: list[str | None] = []
    context = server_side(authority, "hooks.example")
    context.sni_callback = lambda _sock, name, _context: names.append(name)
    async with serving(answering(OK), context) as site:
        found = await call(site.port, "hooks.example", trusting(authority), times=2)
    assert isinstance(found, Response)
    assert names == ["hooks.example"]
    assert b"host: hooks.example:%d" % site.port in site.requests[0]
    assert (site.connections, len(site.requests)) == (1, 2)


async def test_an_address_is_checked_against_the_certificate_too(authority: trustme.CA) -> None:
    async with serving(answering(OK), server_side(authority, "127.0.0.1")) as site:
        assert isinstance(await call(site.port, "127.0.0.1", trusting(authority)), Response)


async def test_a_certificate_for_another_name_or_from_a_stranger_is_refused(authority: trustme.CA) -> None:
    async with serving(answering(OK), server_side(authority, "other.example")) as site:
        for tls in (trusting(authority), None):
            found = await call(site.port, "hooks.example", tls)
            assert isinstance(found, NoResponse)
            assert (found.kind, found.phase, found.was_sent) == (FailureKind.TLS, Phase.TLS, False)
    assert site.requests == []


async def test_a_server_without_tls_is_a_tls_failure(authority: trustme.CA) -> None:
    async def play(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await peer.reader.read()

    async with serving(play) as site:
        found = await call(site.port, "hooks.example", trusting(authority))
    assert isinstance(found, NoResponse)
    assert (found.kind, found.phase) == (FailureKind.TLS, Phase.TLS)


async def test_a_handshake_that_hangs_is_a_timeout(authority: trustme.CA) -> None:
    deadline = timedelta(seconds=DEADLINE_SECONDS)

    async def play(peer: Peer) -> None:
        await peer.reader.readexactly(1)  # the client's hello has begun to come
        leap(deadline)
        await asyncio.Event().wait()

    http = HttpClient(POLICY, tls=trusting(authority), resolve=loopback)
    async with serving(play) as site:
        url = parse_endpoint_url(f"https://hooks.example:{site.port}/", POLICY)
        found = await http.post(url, REQUEST, deadline=deadline)
        await http.close()
    assert isinstance(found, NoResponse)
    assert (found.kind, found.phase, found.was_sent) == (FailureKind.TIMEOUT, Phase.TLS, False)


async def test_the_body_of_a_response_without_length_must_end_properly_or_be_cut(
    authority: trustme.CA,
) -> None:
    async def play(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\n\r\nuntil the end")
        await peer.close()

    async with serving(play, server_side(authority, "hooks.example")) as site:
        found = await call(site.port, "hooks.example", trusting(authority))
    assert isinstance(found, Response)
    assert found.body == b"until the end"
