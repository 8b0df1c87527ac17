"""Consuming over HTTP: everything once and in order, through restarts; refusals are told as they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from oncegate.errors import ConfigError, CursorExpired, CursorRefused, NotAuthentic, StoreUnavailable
from oncegate.feed import Event, HttpSource, consume
from oncegate.store.feed import PAGE_BYTES_MAX
from tests.service.site import Site, settings
from tests.support.serving import running_server


def _publish(site: Site, count: int) -> None:
    for number in range(count):
        event = {"id": f"e-{number}", "key": "k", "data": number}
        assert site.partner("POST", "/v1/events", event).status == 200


def _until(seen: list[int], count: int) -> Callable[[], bool]:
    return lambda: len(seen) < count


def test_events_are_consumed_and_acknowledged(tmp_path: Path) -> None:
    """Given a consumer that fails once; when it is started again; then it goes on with that event."""
    seen: list[int] = []
    is_broken = True

    async def apply(event: Event) -> None:
        if event.data == 3 and is_broken:
            raise ValueError("not now")
        seen.append(event.data)

    with Site(tmp_path, settings()).serving() as site:
        _publish(site, 7)
        source = HttpSource(f"http://127.0.0.1:{site.port}", site.token)
        with pytest.raises(ValueError, match="not now"):
            asyncio.run(consume(source, apply, limit=2, wait_seconds=0))
        is_broken = False
        done = asyncio.run(consume(source, apply, limit=2, wait_seconds=0, go_on=_until(seen, 7)))

    assert seen == list(range(7))
    assert done.events == 4


@pytest.mark.slow
def test_large_events_are_consumed_in_several_pages(tmp_path: Path) -> None:
    """However many are asked for, an answer stays small; the next one goes on where it ended (I18)."""
    seen: list[tuple[str, int]] = []

    async def apply(event: Event) -> None:
        seen.append((event.id, len(event.data)))

    with Site(tmp_path, settings()).serving() as site:
        for number in range(9):
            event = {"id": f"e-{number}", "key": "k", "data": "x" * 1_000_000}
            assert site.partner("POST", "/v1/events", event).status == 200
        first = site.partner("GET", "/wes/v1/dispatch/pending?limit=1000")
        source = HttpSource(f"http://127.0.0.1:{site.port}", site.token)
        asyncio.run(consume(source, apply, limit=1_000, wait_seconds=0, go_on=lambda: len(seen) < 9))

    assert len(first.body) < PAGE_BYTES_MAX + 10_000
    assert (len(first.document["events"]), first.document["has_more"]) == (4, True)
    assert seen == [(f"e-{number}", 1_000_000) for number in range(9)]


@contextmanager
def _scripted(statuses: list[int]) -> Iterator[str]:
    """A service that answers as it is told, then with an empty page."""

    class Handle(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status = statuses.pop(0) if statuses else 200
            body = (
                b'{"events":[],"next_cursor":"c","has_more":false}' if status == 200 else b'{"detail":"so"}'
            )
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with running_server(ThreadingHTTPServer(("127.0.0.1", 0), Handle)) as port:
        yield f"http://127.0.0.1:{port}"


def test_a_service_that_has_no_time_is_asked_again() -> None:
    statuses = [503, 429]
    with _scripted(statuses) as url:
        page = asyncio.run(HttpSource(url, "ogt_t").read(None, 10, 0))
    assert (page.next_cursor, statuses) == ("c", [])


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, NotAuthentic),
        (403, NotAuthentic),
        (410, CursorExpired),
        (400, CursorRefused),
        (404, ConfigError),
        (302, ConfigError),
    ],
)
def test_a_refusal_is_told_and_not_repeated(status: int, error: type[Exception]) -> None:
    with _scripted([status, 200]) as url, pytest.raises(error):
        asyncio.run(HttpSource(url, "ogt_t").read(None, 10, 0))


def test_patience_ends() -> None:
    with pytest.raises(StoreUnavailable, match="127"):
        asyncio.run(HttpSource("http://127.0.0.1:1", "ogt_t", patience="1ms").read(None, 10, 0))


@pytest.mark.parametrize(
    "url", ["http://wes.example", "ftp://x", "https://", "https://a:b@c", "https://a?b"]
)
def test_an_address_that_would_give_the_token_away_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        HttpSource(url, "ogt_t")
    assert "ogt_t" not in repr(HttpSource("https://wes.example", "ogt_t"))
