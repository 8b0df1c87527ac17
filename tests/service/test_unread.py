"""Who asks and does not read the answer keeps neither the connection nor the memory (I18)."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from oncegate.service.unread import UnreadAnswer, bytes_left
from oncegate.testing.waiting import DEADLINE_SECONDS
from tests.service.site import Site, settings

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
