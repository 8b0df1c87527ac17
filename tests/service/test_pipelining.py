"""Pipelined requests wait as bytes, within a bound, and are answered one after the other (I18, I11)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from oncegate.service.fastpath.protocol import FastExchange
from oncegate.service.pipelining import PIPELINED_BYTES_MAX, TURN_MAX, PipelinedHttp, Pipelines
from oncegate.testing.waiting import DEADLINE_SECONDS, wait_until
from tests.service.process import Process, served
from tests.service.site import SECRET, Site, TeamHandler, forwarding, read_all
from tests.service.test_fast_path import answers, connected, request

SMALL = b"GET /x HTTP/1.1\r\n\r\n"
READ_BYTES = 256 * 1024
MIB = 1024 * 1024


@contextlib.contextmanager
def flooding(site: Process, count: int) -> Iterator[None]:
    """Connections that send as many small requests at once as one read takes, and read nothing."""
    data = SMALL * (READ_BYTES // len(SMALL))
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            line = stack.enter_context(
                socket.create_connection(("127.0.0.1", site.port), timeout=DEADLINE_SECONDS)
            )
            line.sendall(data)
        yield


@pytest.mark.slow
def test_a_flood_of_pipelined_requests_takes_little_memory_and_nobody_elses_turn(tmp_path: Path) -> None:
    """Without credentials; as objects they would take 22 MiB for each connection."""
    with served(tmp_path) as site:
        assert site.hook({"id": "warm"}).status == 200
        before = site.memory_bytes()
        with flooding(site, 8):
            grown = []
            for number in range(20):
                assert site.hook({"id": f"n-{number}"}).status == 200
                grown.append(site.memory_bytes() - before)
        wait_until(lambda: b"http_connections 1\n" in site.call("GET", "/metrics").body, what="their end")
        after = site.memory_bytes() - before

    assert max(grown) < 48 * MIB, grown
    assert after < 24 * MIB, after


def test_what_is_pipelined_behind_a_request_becomes_no_objects(tmp_path: Path) -> None:
    team = TeamHandler()
    team.hold.clear()
    with team.serving() as url, Site(tmp_path, forwarding(url)).serving() as site, connected(site) as line:
        line.sendall(request(b'{"id": "first"}') + SMALL * 200)
        wait_until(lambda: team.got, what="the handler to be called")
        assert site.call("GET", "/livez").status == 200
        wait_until(lambda: len(_without_an_answer()) == 1, what="nothing but the first to be objects")
        team.hold.set()
        found = answers(line)
        statuses = [next(found).status for _ in range(201)]

    assert statuses == [200] + [404] * 200


def _without_an_answer() -> list[object]:
    kinds = (RequestResponseCycle, FastExchange)
    return [one for one in gc.get_objects() if isinstance(one, kinds) and not one.response_complete]


def test_who_pipelines_more_than_may_wait_gets_the_answer_under_way_and_no_other(tmp_path: Path) -> None:
    team = TeamHandler()
    team.hold.clear()
    with team.serving() as url, Site(tmp_path, forwarding(url)).serving() as site, connected(site) as line:
        line.sendall(request(b'{"id": "first"}', f"authorization: Bearer {SECRET}\r\n"
                             "content-type: application/json\r\n"))  # fmt: skip
        wait_until(lambda: team.got, what="the handler to be called")
        line.setblocking(False)
        sent = _send_what_is_taken(line, SMALL * (8 * MIB // len(SMALL)))
        line.settimeout(DEADLINE_SECONDS)
        assert site.call("GET", "/livez").status == 200
        team.hold.set()
        first = next(answers(line))

    assert first.status == 200
    assert sent < 8 * MIB + PIPELINED_BYTES_MAX


def _send_what_is_taken(line: socket.socket, data: bytes) -> int:
    sent = 0
    with contextlib.suppress(BlockingIOError):
        while sent < len(data):
            sent += line.send(data[sent : sent + 65536])
    return sent


def _mixed() -> tuple[bytes, list[int]]:
    """Requests of all kinds, one behind the other, and their statuses."""
    signed = f"authorization: Bearer {SECRET}\r\ncontent-type: application/json\r\n"
    chunks = f"POST /in/hooks HTTP/1.1\r\nhost: localhost\r\n{signed}transfer-encoding: chunked\r\n\r\n"
    kinds: list[tuple[bytes, int]] = [
        (request(b'{"id": "plain"}'), 200),
        (SMALL, 404),
        (chunks.encode() + b'c\r\n{"id": "ab"}\r\n4\r\n\r\n\r\n\r\n0\r\n\r\n', 200),
        (chunks.encode() + b'f\r\n{"id": "chunks"\r\n1\r\n}\r\n0\r\nx-trailer: 1\r\n\r\n', 200),
        (request(b'{"id": "long"}', signed + "expect: nothing\r\n"), 200),
        (request(b'{"id": "text", "of": "a\r\n\r\nb"}'), 400),
        (request(b""), 400),
        (b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n", 200),
        (request(b'{"id": "up"}', signed + "connection: upgrade\r\nupgrade: h2c\r\n"), 200),
        (request(b'{"id": "nobody"}', signed.replace(SECRET, "nobodys-and-long-enough")), 401),
        (b"\r\n\r\n" + SMALL, 404),
    ]
    chosen = random.Random(7).choices(kinds, k=40) + kinds
    return b"".join(data for data, _ in chosen), [status for _, status in chosen]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 333, 1_000_000])
def test_answers_are_the_same_however_the_bytes_come(shared: Site, size: int) -> None:
    """In their order, whichever requests are in one read and wherever a read ends."""
    data, statuses = _mixed()
    with connected(shared) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(data), size):
            line.sendall(data[at : at + size])
        found = answers(line)
        assert [next(found).status for _ in statuses] == statuses


def test_the_last_request_ends_the_connection_behind_others(shared: Site) -> None:
    with connected(shared) as line:
        line.sendall(SMALL * 3 + b"GET /x HTTP/1.1\r\nconnection: close\r\n\r\n" + SMALL)
        told = read_all(line)

    assert told.count(b"HTTP/1.1 404") == 4


def test_a_few_pipelined_requests_are_looked_at_in_a_turn_of_the_loop() -> None:
    """All connections have their turns, one after the other; one that fails stops no other."""

    class Line:
        def __init__(self, name: int) -> None:
            self.name, self.left, self.loop = name, 3, asyncio.get_running_loop()

        def read_on(self) -> None:
            looked.append((turn, self.name))
            self.left -= 1
            if self.left:
                pipelines.add(cast(PipelinedHttp, self))
            if self.name == 5:
                raise OSError("one of them fails")

    looked: list[tuple[int, int]] = []
    turn, pipelines = 0, Pipelines()

    async def scene() -> None:
        nonlocal turn
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        for name in range(20):
            pipelines.add(cast(PipelinedHttp, Line(name)))
        for _ in range(30):
            turn += 1
            await asyncio.sleep(0)

    asyncio.run(scene())

    assert max(Counter(at for at, _ in looked).values()) == TURN_MAX
    assert Counter(name for _, name in looked) == Counter(dict.fromkeys(range(20), 3))
    assert [name for _, name in looked[:20]] == list(range(20))
