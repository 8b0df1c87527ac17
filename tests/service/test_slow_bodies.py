"""Bodies that arrive slowly take nobody's room: nothing shows yet whose they are (I18)."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from oncegate.service.protocol import BoundedHttp
from oncegate.service.slow_body_limiter import ArrivingBodies
from oncegate.testing.waiting import DEADLINE_SECONDS, wait_until
from tests.service.site import SECRET, Site, read_all, settings

HEAD = b"POST /in/hooks HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
FORGED = HEAD + b"authorization: Bearer nobodys-and-long-enough\r\ncontent-length: 5000\r\n\r\n{"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n"


@contextlib.contextmanager
def slow(site: Site, count: int, start: bytes = FORGED) -> Iterator[list[socket.socket]]:
    """Connections that have begun a body, which are known to the service."""
    with contextlib.ExitStack() as stack:
        lines = []
        for number in range(count):
            line = stack.enter_context(
                socket.create_connection(("127.0.0.1", site.port), timeout=DEADLINE_SECONDS)
            )
            line.sendall(start)
            lines.append(line)
            wait_until(partial(_has_seen, site, number + 1), what="a body to arrive")
        yield lines


def _has_seen(site: Site, count: int) -> bool:
    return site.service.arriving.total + site.service.arriving.cut >= count


@pytest.mark.parametrize("start", [FORGED, CHUNKED], ids=["of a known length", "chunked"])
def test_slow_bodies_without_a_signature_do_not_shut_a_tenant_out(tmp_path: Path, start: bytes) -> None:
    """More of them than the tenant has room for, and than everybody has."""
    small = {"tenant_concurrency_max": 2, "concurrency_max": 4}
    with Site(tmp_path, settings(server=small)).serving() as site, slow(site, 12, start):
        assert site.hook({"id": "n-1"}).status == 200
        assert site.partner("POST", "/v1/events", {"id": "e-1", "key": "k", "data": 1}).status == 200


def test_slow_bodies_of_one_partner_take_nobodys_room(tmp_path: Path) -> None:
    """Not even its tenant's: what is still arriving is no work yet."""
    small = {"tenant_concurrency_max": 2, "concurrency_max": 4}
    with Site(tmp_path, settings(server=small)).serving() as site:
        own = f"authorization: Bearer {site.token}\r\ncontent-type: application/json\r\n".encode()
        start = b"POST /v1/events HTTP/1.1\r\nhost: localhost\r\n" + own + b"content-length: 5000\r\n\r\n{"
        with slow(site, 6, start):
            assert site.partner("POST", "/v1/events", {"id": "e-1", "key": "k", "data": 1}).status == 200


def test_a_body_in_two_parts_is_taken_while_others_hold_their_room(tmp_path: Path) -> None:
    """The newest comes in; what makes room for it is the oldest of whoever has most."""
    body = b'{"id": "two parts"}'
    head = HEAD + f"authorization: Bearer {SECRET}\r\ncontent-length: {len(body)}\r\n".encode()
    with Site(tmp_path, settings(server={"concurrency_max": 8})).serving() as site, slow(site, 4) as lines:
        with socket.create_connection(("127.0.0.1", site.port), timeout=DEADLINE_SECONDS) as line:
            line.sendall(head + b"connection: close\r\n\r\n" + body[:5])
            wait_until(lambda: site.service.arriving.cut >= 3, what="room to be made")
            line.sendall(body[5:])
            assert read_all(line).startswith(b"HTTP/1.1 200")
        told = [read_all(line) for line in lines[:3]]
        assert b"\noncegate_http_bodies_cut_total 3\n" in site.call("GET", "/metrics").body
        assert site.service.arriving.total == 1

    assert all(one.startswith(b"HTTP/1.1 503") and b"retry-after: 1" in one for one in told), told


def test_a_body_that_comes_by_drops_is_cut_off_long_before_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoundedHttp, "look_seconds", 0.2)
    with (
        Site(tmp_path, settings(server={"body_within": "1h"})).serving() as site,
        slow(site, 2, FORGED) as lines,
    ):
        assert all(read_all(line).startswith(b"HTTP/1.1 408") for line in lines)
        assert site.service.arriving.total == 0
        assert site.hook({"id": "n-1"}).status == 200


def test_a_body_that_comes_steadily_may_take_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked at several times while it comes, and never cut off for it."""
    looks: list[int] = []
    looked = BoundedHttp._look

    def look(self: BoundedHttp) -> None:
        looks.append(self._body_bytes)
        self._body_bytes += 500  # a slow machine must not make a slow sender
        looked(self)

    monkeypatch.setattr(BoundedHttp, "look_seconds", 0.05)
    monkeypatch.setattr(BoundedHttp, "_look", look)
    body = b'{"id": "steady"}'
    head = HEAD + f"authorization: Bearer {SECRET}\r\ncontent-length: {len(body)}\r\n".encode()
    with (
        Site(tmp_path, settings(server={"body_within": "1h"})).serving() as site,
        slow(site, 1, head + b"connection: close\r\n\r\n" + body[:1]) as (line,),
    ):
        wait_until(lambda: len(looks) >= 3, what="the body to be looked at")
        line.sendall(body[1:])
        assert read_all(line).startswith(b"HTTP/1.1 200")


class Line:
    """A connection that only notes whether it was cut off."""

    def __init__(self) -> None:
        self.is_cut = False

    def cut_off(self) -> None:
        self.is_cut = True


def test_whoever_has_most_makes_room() -> None:
    room = ArrivingBodies(total_max=4, peer_max=3)
    of_one, of_two, of_three = [Line() for _ in range(3)], [Line()], [Line()]
    for peer, lines in (("one", of_one), ("two", of_two), ("three", of_three)):
        for line in lines:
            room.enter(peer, line)

    assert [line.is_cut for line in (*of_one, *of_two, *of_three)] == [True, False, False, False, False]
    assert (room.total, room.cut) == (4, 1)


def test_one_peer_pushes_out_its_own() -> None:
    room = ArrivingBodies(total_max=100, peer_max=2)
    quiet, noisy = Line(), [Line() for _ in range(5)]
    room.enter("quiet", quiet)
    for line in noisy:
        room.enter("noisy", line)

    assert not quiet.is_cut
    assert [line.is_cut for line in noisy] == [True, True, True, False, False]


def test_leaving_twice_counts_once() -> None:
    room, line = ArrivingBodies(), Line()
    room.enter("one", line)
    for _ in range(2):
        room.leave("one", line)

    assert room.total == 0
