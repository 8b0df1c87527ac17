"""Rows of the table of hostile input that are about signatures and handlers, over HTTP; the rest is beside.

Limits, deadlines, JSON and places: test_hostile.py. Other tenants and roles: test_partners.py. That the raw
bytes come before everything: test_inbound.py.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import pytest

from oncegate.errors import BadEndpoint
from oncegate.service.settings import NetworkSettings, SignatureScheme
from oncegate.service.surfaces import MistakeAt
from tests.service.site import BEARER, HOOKS, Site, forwarding, settings
from tests.support.serving import running_server

KEY = b"k" * 32
BODY = b'{"id": "signed-1"}'


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A service whose surface takes Standard Webhooks."""
    surface = msgspec.structs.replace(HOOKS, signature=SignatureScheme.STANDARD_WEBHOOKS)
    site = Site(tmp_path_factory.mktemp("signed"), settings(surfaces={"hooks": surface}))
    site.service._environment = {"HOOKS": "whsec_" + base64.b64encode(KEY).decode()}
    with site.serving() as running:
        yield running


def _entry(site: Site, message_id: str = "m-1", body: bytes = BODY, late: int = 0) -> dict[str, str]:
    at = str(site.gate.engine.clock.wall_ms() // 1000 + late)
    code = hmac.new(KEY, f"{message_id}.{at}.".encode() + body, sha256).digest()
    entry = "v1," + base64.b64encode(code).decode()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": at,
        "webhook-signature": entry,
        "content-type": "application/json",
    }


@pytest.mark.parametrize(
    "entry",
    [
        "v1",
        "v1,",
        "v1,not base64!",
        "v1,AAAA",
        "v2,AAAA",
        ",",
        "v1," + "A" * 5000,
        "v1a,AAAA",
        " ".join(["v1,AAAA"] * 200),
        "v1,\u00e9",
    ],
)
def test_a_malformed_signature_is_401_and_never_a_fault(signed: Site, entry: str) -> None:
    answer = signed.call("POST", "/in/hooks", BODY, {**_entry(signed), "webhook-signature": entry})
    assert (answer.status, answer.problem) == (401, "not-authentic")


def test_at_most_eight_entries_are_looked_at_and_bad_ones_are_passed_over(signed: Site) -> None:
    good = _entry(signed)
    for bad, status in ((["v1", "v1,??"], 200), (["v1,AAAA"] * 8, 401)):
        entries = " ".join([*bad, good["webhook-signature"]])
        answer = signed.call("POST", "/in/hooks", BODY, {**good, "webhook-signature": entries})
        assert answer.status == status


@pytest.mark.parametrize("at", ["", "1e9", "-1", "+5", "1.5", "9" * 13, "\u0661\u0662", "0x10", "now"])
def test_a_timestamp_that_is_not_plain_digits_is_400(signed: Site, at: str) -> None:
    headers = {**_entry(signed), "webhook-timestamp": at}
    raw = b"".join(f"{name}: {value}\r\n".encode() for name, value in headers.items())
    answer = signed.raw(
        b"POST /in/hooks HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        + raw + b"content-length: %d\r\n\r\n" % len(BODY) + BODY
    )  # fmt: skip
    assert answer.startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("late", [-301, 302, -(10**9)])
def test_a_timestamp_that_is_not_about_now_is_401(signed: Site, late: int) -> None:
    assert signed.call("POST", "/in/hooks", BODY, _entry(signed, late=late)).status == 401


@pytest.mark.parametrize("message_id", ["a.b", "x" * 256, "\u00e9", "a\x01b", "a\x7fb"])
def test_an_id_that_cannot_be_signed_is_400(signed: Site, message_id: str) -> None:
    """Also where whoever sent it signed it."""
    headers = {**_entry(signed, "m"), "webhook-id": message_id}
    raw = b"".join(f"{name}: {value}\r\n".encode("latin-1") for name, value in headers.items())
    answer = signed.raw(
        b"POST /in/hooks HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        + raw + b"content-length: %d\r\n\r\n" % len(BODY) + BODY
    )  # fmt: skip
    assert answer.startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("value", [b"a\x00b", b"a\rb", b"a\n b"])
def test_a_header_with_a_control_character_is_400(shared: Site, value: bytes) -> None:
    answer = shared.raw(
        b"GET /livez HTTP/1.1\r\nhost: localhost\r\nx-any: " + value + b"\r\nconnection: close\r\n\r\n"
    )
    assert answer.startswith(b"HTTP/1.1 400")


@contextmanager
def _answering(status: int, headers: dict[str, str], body: bytes) -> Iterator[tuple[str, list[str]]]:
    """A handler that answers one thing; the paths that were called."""
    paths: list[str] = []

    class Handle(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            paths.append(self.path)
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(status)
            for name, value in {"content-length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            paths.append(self.path)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            pass  # the caller has read enough

    with running_server(Server(("127.0.0.1", 0), Handle)) as port:
        yield f"http://127.0.0.1:{port}/first", paths


def test_a_redirect_of_the_handler_is_a_failure_and_not_followed(tmp_path: Path) -> None:
    with (
        _answering(307, {"location": "/second"}, b"") as (url, paths),
        Site(tmp_path, forwarding(url, honours_key="7d")).serving() as site,
    ):
        assert site.hook({"id": "n-1"}).status == 503
    assert paths == ["/first"]


def test_a_huge_answer_of_the_handler_is_not_read_to_its_end(tmp_path: Path) -> None:
    """The event is done; of the answer only the status is kept."""
    with (
        _answering(200, {}, b'"' + b"x" * 5_000_000 + b'"') as (url, _),
        Site(tmp_path, forwarding(url)).serving() as site,
    ):
        answer = site.hook({"id": "n-1"})
    assert (answer.status, answer.document["outcome"]) == (200, {"status": 200, "body": None})


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example/",
        "https://127.0.0.1/",
        "https://2130706433/",
        "https://[::ffff:10.0.0.1]/",
        "https://user:secret@hooks.example/",
        "https://localhost/",
        "https://169.254.169.254/latest",
    ],
)
def test_a_handlers_address_that_may_not_be_called_is_refused_at_the_start(
    tmp_path: Path, url: str
) -> None:
    """By the same rules as endpoints; and the message holds no password."""
    wanted = msgspec.structs.replace(forwarding(url), network=NetworkSettings())
    site = Site(tmp_path, wanted)
    try:
        with pytest.raises((MistakeAt, BadEndpoint)) as refused:
            _open(site)
    finally:
        site.gate.close()
    assert "secret" not in str(refused.value)


def _open(site: Site) -> None:
    import asyncio

    async def opened() -> None:
        site.service.open()

    asyncio.run(opened())


def test_no_token_no_state_change_also_from_a_browser(shared: Site) -> None:
    """Nothing here goes by cookies: another site has no token to send, and a GET changes nothing."""
    browser = {
        "cookie": f"token={shared.token}",
        "origin": "https://evil.example",
        "sec-fetch-site": "cross-site",
    }
    answer = shared.call("POST", "/v1/events", {"id": "c-1", "key": "k", "data": 1}, {**BEARER, **browser})
    assert answer.status == 401
    assert "access-control-allow-origin" not in answer.headers
    assert shared.call("OPTIONS", "/v1/events", headers=browser).status == 405
    assert shared.partner("GET", "/v1/events/c-1").status == 404


@contextmanager
def _dripping() -> Iterator[str]:
    """A handler whose answer never ends: a byte now and then, until the caller goes away."""
    over = Event()

    class Handle(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                while not over.wait(0.05):
                    self.wfile.write(b"x")

        def log_message(self, *_: Any) -> None:
            pass

    with running_server(ThreadingHTTPServer(("127.0.0.1", 0), Handle)) as port:
        try:
            yield f"http://127.0.0.1:{port}/"
        finally:
            over.set()


def test_an_answer_of_the_handler_that_never_ends_is_given_up(tmp_path: Path) -> None:
    """Within its time limit, however it drips; what came of it is open, so it is not told as done."""
    with (
        _dripping() as url,
        Site(tmp_path, forwarding(url, honours_key="7d", timeout="1s")).serving() as site,
    ):
        assert site.hook({"id": "n-1"}).status == 503
