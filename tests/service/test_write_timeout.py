"""Who asks and does not read the answer keeps neither the connection nor the memory (I18)."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from oncegate.feed.values import Page
from oncegate.service.application import POLLS_FACTOR
from oncegate.service.partners import PartnerBook, PartnerRole
from oncegate.service.write_timeout import UnreadAnswer, bytes_left
from oncegate.testing.waiting import DEADLINE_SECONDS, wait_until
from oncegate.wiring import Gate
from tests.service.process import served
from tests.service.site import Site, read_all, settings

PAGE = "/wes/v1/dispatch/pending?limit=1000"
LARGE = b"x" * 64_000_000  # more than any buffer of the system


def silent(site: Site, more: str = "") -> socket.socket:
    """A caller that asks for pages, and has little room for them."""
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.connect(("127.0.0.1", site.port))
    ask = f"GET {PAGE} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {site.token}\r\n"
    line.sendall(f"{ask}\r\n".encode() * 4 + f"{ask}{more}\r\n".encode())
    return line


def is_ended(line: socket.socket) -> bool:
    """Whether the other side ends the connection, although nothing is read."""
    watch = select.poll()
    watch.register(line, 0)  # errors and the end only
    return bool(watch.poll(DEADLINE_SECONDS * 1000))


@pytest.mark.parametrize("more", ["", "connection: close\r\n"], ids=["kept", "last"])
def test_who_does_not_read_an_answer_is_cut_off(tmp_path: Path, more: str) -> None:
    with Site(tmp_path, settings(server={"unread_within": "200ms"})).serving() as site:
        for number in range(4):
            event = {"id": f"e-{number}", "key": "k", "data": "x" * 1_000_000}
            assert site.partner("POST", "/v1/events", event).status == 200
        with silent(site, more) as line:
            assert is_ended(line)
        assert len(site.partner("GET", "/wes/v1/dispatch/pending").document["events"]) == 4


def _publish_a_page(site: Site, token: str | None = None) -> None:
    for number in range(4):
        event = {"id": f"e-{number}", "key": "k", "data": "x" * 1_000_000}
        assert site.partner("POST", "/v1/events", event, token).status == 200


def _asks(site: Site, token: str | None = None) -> socket.socket:
    """A caller that asks for one page and does not read it."""
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.settimeout(DEADLINE_SECONDS)
    line.connect(("127.0.0.1", site.port))
    own = f"authorization: Bearer {token or site.token}\r\n"
    line.sendall(f"GET {PAGE} HTTP/1.1\r\nhost: localhost\r\n{own}connection: close\r\n\r\n".encode())
    return line


def _count(site: Site, name: str) -> int:
    text = site.call("GET", "/metrics").body.decode()
    return int(text.partition(f"\noncegate_http_{name} ")[2].partition("\n")[0])


@pytest.mark.slow
def test_a_reader_keeps_its_place_until_it_has_taken_its_page(tmp_path: Path) -> None:
    """A tenant's readers who do not read shut out its own, until they read; nobody else's."""
    small = {"tenant_concurrency_max": 1, "unread_bytes_max": 1024**3}
    with Site(tmp_path, settings(server=small)).serving() as site, contextlib.ExitStack() as stack:
        _publish_a_page(site)
        lines = [stack.enter_context(_asks(site)) for _ in range(POLLS_FACTOR)]
        wait_until(lambda: site.service.unread.total >= 4 * 4_000_000, what="all pages to be sent")

        assert site.partner("GET", PAGE).problem == "too-many"
        assert site.partner("GET", PAGE, token=site.other).status == 200
        assert site.hook({"id": "n-1"}).status == 200
        assert read_all(lines[0]).startswith(b"HTTP/1.1 200")
        wait_until(lambda: site.partner("GET", PAGE).status == 200, what="the place")


@pytest.mark.slow
def test_bytes_that_are_not_read_are_bounded_for_a_tenant_and_altogether(tmp_path: Path) -> None:
    """One page alone always has room; the next has none, and has it again when the reader is gone."""
    with Site(tmp_path, settings(server={"unread_bytes_max": 6_000_000})).serving() as site:
        _publish_a_page(site)
        _publish_a_page(site, site.other)
        with _asks(site):
            wait_until(lambda: site.service.unread.total, what="a page to be sent")
            assert _count(site, "unread_bytes") > 4_000_000
            assert site.partner("GET", PAGE, token=site.other).problem == "overloaded"
            assert site.partner("GET", "/wes/v1/dispatch/pending?limit=1").problem == "too-many"
            assert site.hook({"id": "n-1"}).status == 200
        wait_until(lambda: not site.service.unread.total, what="the room")
        assert site.partner("GET", PAGE, token=site.other).status == 200
        assert _count(site, "unread_refused_total") == 2


@pytest.mark.slow
def test_page_that_has_no_room_is_not_read_from_the_ledger_again(tmp_path: Path) -> None:
    """I25: a reader that asks on and on without reading costs the other callers next to nothing."""
    with Site(tmp_path, settings(server={"unread_bytes_max": 20_000_000})).serving() as site:
        _publish_a_page(site)
        reads, read = list[str](), site.service.feed.read

        async def counted(reader: str, **wanted: Any) -> Page:
            reads.append(reader)
            return await read(reader, **wanted)

        site.service.feed.read = counted  # type: ignore[method-assign]
        with _asks(site):
            wait_until(lambda: site.service.unread.total, what="a page to be sent")
            assert {site.partner("GET", PAGE).problem for _ in range(20)} == {"too-many"}
            assert len(reads) == 2  # the one that is not taken, and the one that found no room
        wait_until(lambda: not site.service.unread.total, what="the room")
        assert site.partner("GET", PAGE).status == 200


@pytest.mark.slow
def test_pages_that_are_not_read_take_little_memory(tmp_path: Path) -> None:
    with Gate(f"sqlite:///{tmp_path}/ledger.db") as gate:
        token = PartnerBook(gate.engine.commits, gate.engine.clock).add("exec-1", "acme", list(PartnerRole))
    with served(tmp_path) as site, contextlib.ExitStack() as stack:
        site.token = token
        _publish_a_page(site)
        assert site.partner("GET", PAGE).status == 200
        before = site.memory_bytes()
        for _ in range(40):
            stack.enter_context(_asks(site))
        wait_until(lambda: _count(site, "unread_refused_total") >= 30, what="the bound")
        grown = site.memory_bytes() - before

    assert grown < 80 * 1024 * 1024, grown  # 40 pages are 160 MiB, and as much again while they are made


async def _connected() -> tuple[asyncio.Transport, socket.socket]:
    """A transport that has much to write, and the other end of it."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = socket.create_connection(listener.getsockname(), timeout=DEADLINE_SECONDS)
        taken, _ = listener.accept()
    transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, taken)
    transport.write(LARGE)
    await asyncio.sleep(0)
    return transport, peer


async def _scene() -> list[bool]:
    loop = asyncio.get_running_loop()
    transport, peer = await _connected()
    unread = UnreadAnswer(transport, loop, seconds=3600)
    found = []
    with peer:
        unread.watch()
        for _ in range(3):
            left = bytes_left(transport)
            while bytes_left(transport) == left:
                peer.recv(65536)
                await asyncio.sleep(0)
            unread.look()
            found.append(transport.is_closing())
        for _ in range(1_000):  # what was on its way arrives; then nothing is taken between two looks
            unread.look()
            await asyncio.sleep(0)
        found.append(transport.is_closing())
        unread.rest()
    return found


@pytest.mark.parametrize(
    "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
def test_who_is_only_slow_is_not(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """As long as something is taken between two looks, however much there is."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(_scene()) == [False, False, False, True]
