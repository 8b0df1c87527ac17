"""Requests that ask for another protocol are read as if they did not: nobody's body becomes a request."""

from __future__ import annotations

import socket

import pytest

from oncegate.testing.waiting import DEADLINE_SECONDS
from tests.service.site import Site
from tests.service.test_fast_path import SIGNED, answers, request
from tests.service.test_hostile import entries

H2C = "connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n"
LAST = SIGNED + "connection: close\r\n"


def sent(site: Site, *parts: bytes) -> list[tuple[int, bool | None]]:
    """Statuses and replays of all that is answered to these parts."""
    with socket.create_connection(("127.0.0.1", site.port), timeout=DEADLINE_SECONDS) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in parts:
            line.sendall(part)
        return [(one.status, one.document.get("replay")) for one in answers(line)]


def test_a_webhook_that_offers_http2_is_taken(shared: Site) -> None:
    """As curl --http2 sends it, at once and byte by byte."""
    once = request(b'{"id": "h2"}', SIGNED + H2C) + request(b'{"id": "h2"}', LAST)

    assert sent(shared, once) == [(200, False), (200, True)]
    assert sent(shared, *(bytes([byte]) for byte in once)) == [(200, True), (200, True)]


@pytest.mark.parametrize(
    ("connection", "protocol"),
    [
        ("Upgrade", "websocket"),
        ("keep-alive, upgrade", "TLS/1.0, h2c"),
        ("upgrade\r\nConnection: upgrade", "a\r\nUpgrade: b"),
        ("upgrade", ""),
    ],
)
def test_whatever_protocol_is_asked_for_the_request_is_the_same(
    shared: Site, connection: str, protocol: str
) -> None:
    asks = f"{SIGNED}Connection: {connection}\r\nUpgrade: {protocol}\r\n"
    several = [
        request(b'{"id": "up-1"}', asks),
        b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
        request(b'{"id": "up-1"}'),
        request(b'{"id": "up-1"}', asks).replace(b"content-length: 14", b"transfer-encoding: chunked")[:-14]
        + b'e\r\n{"id": "up-1"}\r\n0\r\n\r\n',
        request(b'{"id": "up-1"}', asks),
        request(b'{"id": "up-1"}', LAST),
    ]
    found = sent(shared, b"".join(several))

    assert [status for status, _ in found] == [200] * len(several)
    assert [replay for _, replay in found][1:] == [None, True, True, True, True]


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_connection_that_is_to_end_ends_with_the_request(shared: Site, version: str) -> None:
    """Also if it was to be another protocol's: nothing behind it is read."""
    asks = SIGNED + "connection: close, upgrade\r\nupgrade: h2c\r\n"
    data = request(b'{"id": "last"}', asks, version=version)

    assert [status for status, _ in sent(shared, data + request(b'{"id": "behind"}', LAST))] == [200]


def test_a_body_behind_such_a_head_is_never_a_request(site: Site) -> None:
    """It comes once the server has asked for it, so that it is certainly not read with the head."""
    inner = request(b'{"id": "smuggled"}')
    outer = request(inner, SIGNED + "connection: upgrade\r\nupgrade: h2c\r\nexpect: 100-continue\r\n")
    with socket.create_connection(("127.0.0.1", site.port), timeout=DEADLINE_SECONDS) as line:
        line.sendall(outer.removesuffix(inner))
        assert line.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        line.sendall(inner + request(b"{", LAST))
        found = [one.problem for one in answers(line)]

    assert found == ["malformed", "malformed"]
    assert entries(site) == 0


def test_a_tunnel_is_refused_and_nothing_in_it_is_read(site: Site) -> None:
    for target in (b"127.0.0.1:80", b"/livez", b"http://localhost/livez"):
        head = b"CONNECT " + target + b" HTTP/1.1\r\nhost: localhost\r\n\r\n"
        found = site.raw(head + request(b'{"id": "in a tunnel"}', LAST))
        assert found.startswith(b"HTTP/1.1 400")
        assert found.count(b"HTTP/1.1") == 1
    assert entries(site) == 0


def test_limits_hold_for_such_requests_too(shared: Site) -> None:
    asks = SIGNED + H2C
    assert [one for one, _ in sent(shared, request(b"{}", asks + f"x: {'a' * 40_000}\r\n"))] == [431]
    assert [one for one, _ in sent(shared, request(b"{}", asks + "x: 1\r\n" * 101))] == [431]


def test_many_of_them_at_once_are_answered_in_order(shared: Site) -> None:
    several = [request(b'{"id": "m-%d"}' % (number % 7), SIGNED + H2C) for number in range(300)]

    found = sent(shared, b"".join(several) + request(b'{"id": "m-0"}', LAST))

    assert [replay for _, replay in found] == [False] * 7 + [True] * 294
