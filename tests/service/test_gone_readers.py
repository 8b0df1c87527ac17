"""Readers that wait for an event and go away give their place back at once (I18)."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

from oncegate.testing.waiting import DEADLINE_SECONDS, wait_until
from tests.service.site import Site, read_all, settings

NARROW = {"tenant_concurrency_max": 1, "concurrency_max": 2}  # four readers of a tenant, eight altogether
SOON_SECONDS = 15.0  # half of what they would have waited


def waiting(site: Site, count: int, more: bytes = b"", token: str | None = None) -> list[socket.socket]:
    """Readers that wait as long as they may, once the service has let them in."""
    own = f"host: localhost\r\nauthorization: Bearer {token or site.token}\r\nconnection: close\r\n"
    before, lines = site.service.polls.total, []
    for _ in range(count):
        line = socket.create_connection(("127.0.0.1", site.port), timeout=DEADLINE_SECONDS)
        line.sendall(f"GET /wes/v1/dispatch/pending?wait=30 HTTP/1.1\r\n{own}".encode() + more + b"\r\n")
        lines.append(line)
    wait_until(lambda: len(site.service.feed._waking._waiting) > 0, what="somebody to wait")
    wait_until(lambda: site.service.polls.total == before + count, what="all to be let in")
    return lines


def test_readers_that_have_gone_leave_room_for_others(tmp_path: Path) -> None:
    with Site(tmp_path, settings(server=NARROW)).serving() as site:
        lines = waiting(site, 4)
        assert site.partner("GET", "/wes/v1/dispatch/pending").status == 429
        for line in lines:
            line.close()
        wait_until(lambda: site.service.polls.total == 0, what="their places", seconds=SOON_SECONDS)
        assert site.partner("GET", "/wes/v1/dispatch/pending").status == 200
        assert not site.service.feed._waking._waiting


def test_readers_that_stay_get_their_event(tmp_path: Path) -> None:
    """Also with a body that nobody asked for, and while others go away."""
    body = b"content-length: 3\r\n"
    with Site(tmp_path, settings(server=NARROW)).serving() as site, contextlib.ExitStack() as stack:
        gone, plain, odd = (*waiting(site, 2), *waiting(site, 1, body))
        for line in (plain, odd):
            stack.enter_context(line)
        odd.sendall(b"abc")
        gone.close()
        wait_until(lambda: site.service.polls.total == 2, what="one place", seconds=SOON_SECONDS)
        assert site.partner("POST", "/v1/events", {"id": "e-1", "key": "k", "data": 1}).status == 200
        assert all(b'"id":"e-1"' in read_all(line) for line in (plain, odd))
