"""Connections are bounded, and idle ones make room, the oldest first (I18)."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncegate.service.connections import Connections
from oncegate.testing.waiting import DEADLINE_SECONDS, wait_until
from tests.service.process import served
from tests.service.site import Site, TeamHandler, forwarding, read_all, settings
from tests.service.test_fast_path import answers, connected, request


@contextlib.contextmanager
def idle(site: Site, count: int) -> Iterator[list[socket.socket]]:
    """Connections that say nothing, in the order in which the service knows them."""
    with contextlib.ExitStack() as stack:
        lines = []
        for _ in range(count):
            seen = site.service.connections.total + site.service.connections.closed
            lines.append(stack.enter_context(connected(site)))
            wait_until(
                lambda: site.service.connections.total + site.service.connections.closed > seen,  # noqa: B023  asked at once
                what="the connection",
            )
        yield lines


def is_closed(line: socket.socket) -> bool:
    """Whether the service has closed a connection, without a word."""
    return bool(select.select([line], [], [], 0)[0]) and line.recv(1) == b""


def test_the_oldest_idle_connection_makes_room_for_a_new_one(tmp_path: Path) -> None:
    with (
        Site(tmp_path, settings(server={"connections_max": 8, "idle_within": "1h"})).serving() as site,
        idle(site, 2) as lines,  # as many as one address may have idle
    ):
        lines[0].sendall(request(b'{"id": "used"}'))
        found = answers(lines[0])
        assert next(found).status == 200  # the first is the younger one now
        assert site.hook({"id": "n-1"}).status == 200
        wait_until(lambda: is_closed(lines[1]), what="the oldest to be closed")
        assert not is_closed(lines[0])
        lines[0].sendall(request(b'{"id": "again"}'))
        assert next(found).status == 200


def test_without_an_idle_connection_a_new_one_is_refused_and_none_under_way_is_closed(
    tmp_path: Path,
) -> None:
    team = TeamHandler()
    team.hold.clear()
    with team.serving() as url, contextlib.ExitStack() as stack:
        given = forwarding(url)
        given = settings(
            surfaces=given.surfaces, downstreams=given.downstreams, server={"connections_max": 3}
        )
        site = stack.enter_context(Site(tmp_path, given).serving())
        lines: list[socket.socket] = []
        for number in range(3):
            lines.append(stack.enter_context(connected(site)))
            lines[-1].sendall(request(b'{"id": "n-%d"}' % number))
            wait_until(lambda: len(team.got) == len(lines), what="the handler to be called")
        with connected(site) as more:
            told = read_all(more)
        team.hold.set()
        statuses = [next(answers(line)).status for line in lines]

    assert told.startswith(b"HTTP/1.1 503")
    assert b"retry-after: 1" in told
    assert b"urn:oncegate:problem:overloaded" in told
    assert statuses == [200, 200, 200]


def test_a_head_that_comes_slowly_is_no_way_to_keep_a_place(tmp_path: Path) -> None:
    with Site(tmp_path, settings(server={"connections_max": 2})).serving() as site, idle(site, 1) as lines:
        lines[0].sendall(b"POST /in/hooks HTTP/1.1\r\nhost: ")
        for number in range(4):
            assert site.hook({"id": f"n-{number}"}).status == 200
        assert read_all(lines[0]).startswith(b"HTTP/1.1 503")


@pytest.mark.slow
def test_a_flood_of_silent_connections_shuts_nobody_out(tmp_path: Path) -> None:
    """In a process of its own, with more of them than it takes."""
    with served(tmp_path, "connections_max = 64") as site, contextlib.ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(
                socket.create_connection(("127.0.0.1", site.port), timeout=DEADLINE_SECONDS)
            )
        for number in range(5):
            assert site.hook({"id": f"n-{number}"}).status == 200
        lines = site.call("GET", "/metrics").body.decode().split("\n")
    counts = {
        line.split()[0]: int(line.split()[1]) for line in lines if line.startswith("oncegate_http_con")
    }

    assert counts["oncegate_http_connections"] <= 64
    assert counts["oncegate_http_connections_closed_total"] >= 136
    assert counts["oncegate_http_connections_refused_total"] == 0


class Line:
    """A connection that notes whether it had to go."""

    def __init__(self, since: float | None) -> None:
        self.since, self.is_gone = since, False

    def idle_since(self) -> float | None:
        return self.since

    def make_room(self) -> None:
        self.is_gone = True


@pytest.mark.parametrize("sinces", [(3.0, 1.0, 2.0), (None, 1.0, 2.0)])
def test_one_address_pushes_out_its_own_idle_ones(sinces: tuple[float | None, ...]) -> None:
    room, quiet = Connections(total_max=100, peer_max=3), Line(0.0)
    noisy = [Line(since) for since in sinces]
    assert room.enter("quiet", quiet)
    assert all(room.enter("noisy", line) for line in (*noisy, Line(4.0)))

    assert [line.is_gone for line in (quiet, *noisy)] == [False, False, True, False]
    assert (room.total, room.closed) == (4, 1)


def test_one_address_may_have_any_number_that_are_in_use() -> None:
    room = Connections(total_max=10, peer_max=2)

    assert [room.enter("proxy", Line(None)) for _ in range(11)] == [True] * 10 + [False]
    assert (room.total, room.refused) == (10, 1)


def test_the_address_with_most_connections_makes_room_then_any() -> None:
    room = Connections(total_max=4, peer_max=4)
    most, other = [Line(5.0), Line(6.0), Line(None)], Line(1.0)
    for line in most:
        room.enter("most", line)
    room.enter("other", other)
    for expected in ([True, False, False, False], [True, True, False, False], [True, True, False, True]):
        assert room.enter("new", Line(None))
        assert [line.is_gone for line in (*most, other)] == expected
    assert not room.enter("new", Line(None))


def test_leaving_twice_counts_once() -> None:
    room, line = Connections(), Line(None)
    room.enter("one", line)
    for _ in range(2):
        room.leave("one", line)

    assert room.total == 0
