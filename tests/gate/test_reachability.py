"""What an error of the usual clients says: was anything sent, and is the other side well?"""

from __future__ import annotations

import asyncio
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
import requests
import urllib3

from oncegate import NotApplied
from oncegate.gate.runtime.reachability import (
    Reach,
    asked_wait,
    observed,
    reach_of,
    status_of,
    was_turned_away,
)
from oncegate.service.upstream_call import ForwardFailed, HandlerDown


def _made(module: str, name: str, *parents: type[BaseException]) -> type[BaseException]:
    """A class like that of a client that is not installed here."""
    return type(name, parents or (Exception,), {"__module__": module})


@pytest.fixture
def dead_port() -> Iterator[int]:
    """A port that refuses connections while the test runs."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def _caught(call: Callable[[], Any]) -> BaseException:
    with pytest.raises(Exception) as caught:  # noqa: PT011  which one is the question
        call()
    return caught.value


def test_refused_connections_of_real_clients_were_not_sent(dead_port: int) -> None:
    """requests, urllib and sockets, as they are installed here."""
    url = f"http://127.0.0.1:{dead_port}/"
    calls: list[Callable[[], Any]] = [
        lambda: requests.post(url, json={}, timeout=5),
        lambda: urllib.request.urlopen(url, timeout=5),
        lambda: socket.create_connection(("127.0.0.1", dead_port), timeout=5),
        lambda: asyncio.run(asyncio.open_connection("127.0.0.1", dead_port)),
        lambda: asyncio.run(asyncio.open_connection("localhost", dead_port)),
    ]
    assert [reach_of(_caught(call)) for call in calls] == [Reach.NOT_REACHED] * len(calls)


def test_answer_that_is_lost_was_perhaps_sent() -> None:
    """A server that reads the request and hangs up: real sockets, a real client."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            connection, _ = server.accept()
            connection.recv(65536)
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        error = _caught(lambda: requests.post(url, json={}, timeout=5))
        thread.join()
    assert reach_of(error) is Reach.UNWELL


@pytest.mark.parametrize(
    ("module", "name", "reach"),
    [
        ("httpx", "ConnectError", Reach.NOT_REACHED),
        ("httpx", "ConnectTimeout", Reach.NOT_REACHED),
        ("httpx", "PoolTimeout", Reach.NOT_REACHED),
        ("requests.exceptions", "ConnectTimeout", Reach.NOT_REACHED),
        ("urllib3.exceptions", "NameResolutionError", Reach.NOT_REACHED),
        ("aiohttp.client_exceptions", "ClientConnectorError", Reach.NOT_REACHED),
        ("botocore.exceptions", "EndpointConnectionError", Reach.NOT_REACHED),
        ("urllib3.exceptions", "ReadTimeoutError", Reach.UNWELL),
        ("aiohttp.client_exceptions", "ClientOSError", Reach.UNWELL),
        ("botocore.exceptions", "ReadTimeoutError", Reach.UNWELL),
        ("shop", "ConnectError", Reach.UNTOLD),
    ],
)
def test_clients_are_known_by_their_names(module: str, name: str, reach: Reach) -> None:
    """None of them is imported; a class of the same name elsewhere says nothing."""
    assert reach_of(_made(module, name)("no luck")) is reach
    child = _made("shop", "Wrapped", _made(module, name))
    assert reach_of(child("no luck")) is reach


def test_read_timeout_of_httpx_is_not_taken_for_one_of_connecting() -> None:
    """Both are timeouts: the more exact name counts."""
    transport = _made("httpx", "TransportError")
    assert reach_of(_made("httpx", "ReadTimeout", transport)("late")) is Reach.UNWELL
    assert reach_of(_made("httpx", "ConnectTimeout", transport)("late")) is Reach.NOT_REACHED


def test_cause_speaks_for_the_error_that_was_raised_from_it() -> None:
    """A handler that wraps what its client raised is understood all the same."""

    def wrapped() -> None:
        try:
            raise ConnectionRefusedError(111, "refused")
        except ConnectionRefusedError as error:
            raise RuntimeError("the bank is away") from error

    assert reach_of(_caught(wrapped)) is Reach.NOT_REACHED


def test_refused_first_way_says_nothing_about_the_second() -> None:
    """I9: what falls back to another way, and fails there, may have acted there."""

    def fell_back() -> None:
        try:
            raise ConnectionRefusedError(111, "refused")
        except ConnectionRefusedError:
            raise RuntimeError("the second bank failed after it had charged")  # noqa: B904  that is the case

    assert reach_of(_caught(fell_back)) is Reach.UNTOLD


def test_refused_second_try_after_a_lost_answer_is_not_certain() -> None:
    """I9: the first request of a client that tries twice may have been carried out."""

    def tried_twice() -> None:
        try:
            raise ConnectionResetError(104, "reset")
        except ConnectionResetError:
            raise ConnectionRefusedError(111, "refused")  # noqa: B904  that is the case

    assert reach_of(_caught(tried_twice)) is Reach.UNWELL


def test_chain_that_bites_its_tail_is_read_once() -> None:
    """Errors can be chained in a ring by hand."""
    first, second = RuntimeError("a"), RuntimeError("b")
    first.__cause__, second.__cause__ = second, first
    assert reach_of(first) is Reach.UNTOLD


def test_statuses_are_found_where_clients_keep_them() -> None:
    """429 says that nothing was done; 502 to 504 that the other side is unwell; 500 nothing."""

    class Answered(Exception):
        def __init__(self, status: int) -> None:
            super().__init__(status)
            self.response = type("R", (), {"status_code": status, "headers": {"Retry-After": "7"}})()

    class Boto(Exception):
        response = {"ResponseMetadata": {"HTTPStatusCode": 429}}  # noqa: RUF012

    http = urllib.error.HTTPError("http://x", 503, "no", None, None)  # type: ignore[arg-type]
    assert [status_of(error) for error in (Answered(429), Boto(), http)] == [429, 429, 503]
    assert (was_turned_away(Answered(429)), was_turned_away(Answered(503))) == (True, False)
    assert [reach_of(Answered(s)) for s in (429, 500, 503)] == [Reach.UNWELL, Reach.UNTOLD, Reach.UNWELL]
    assert asked_wait(Answered(429)) == 7
    assert asked_wait(ValueError()) == 0


class Redirects(BaseHTTPRequestHandler):
    """A POST is carried out and answered with a redirect; what is read then is turned away."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(303)
        self.send_header("Location", self.path[1:] or "/")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self.send_response(429)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@pytest.fixture
def redirects() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Redirects) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def _raised_of_urllib3(url: str) -> None:
    class Refused(Exception):
        def __init__(self, response: Any) -> None:
            super().__init__("refused")
            self.response = response

    with urllib3.PoolManager() as pool:
        raise Refused(pool.request("POST", url, body=b"{}", timeout=5))


CLIENTS: dict[str, Callable[[str], Any]] = {
    "requests": lambda url: requests.post(url, json={}, timeout=5).raise_for_status(),
    "urllib": lambda url: urllib.request.urlopen(url, b"{}", timeout=5),
    "urllib3": _raised_of_urllib3,
}


@pytest.mark.parametrize("client", CLIENTS)
def test_request_that_follows_a_redirect_is_not_the_only_one(
    client: str, redirects: str, dead_port: int
) -> None:
    """I9: the POST was carried out, whatever became of the GET after it."""
    turned_away = _caught(lambda: CLIENTS[client](redirects))
    gone = _caught(lambda: CLIENTS[client](f"{redirects}http://127.0.0.1:{dead_port}/"))
    assert (status_of(turned_away), was_turned_away(turned_away)) == (429, False)
    getattr(turned_away, "close", lambda: None)()
    assert reach_of(gone) is Reach.UNWELL
    only = _caught(lambda: CLIENTS[client](f"http://127.0.0.1:{dead_port}/"))
    assert reach_of(only) is Reach.NOT_REACHED, "without a redirect it is certain"


def test_refused_reading_is_certain_only_where_the_client_shows_its_calls(dead_port: int) -> None:
    """I9: a GET may follow a redirect; an error from another process has lost where it came through."""
    error = _caught(lambda: requests.get(f"http://127.0.0.1:{dead_port}/", timeout=5))
    assert reach_of(error) is Reach.NOT_REACHED
    assert reach_of(error.with_traceback(None)) is Reach.UNWELL
    posted = _caught(lambda: requests.post(f"http://127.0.0.1:{dead_port}/", timeout=5))
    assert reach_of(posted.with_traceback(None)) is Reach.NOT_REACHED


def _with(error: BaseException, **more: Any) -> BaseException:
    vars(error).update(more)
    return error


def _ran(package: str, code: str, error: BaseException) -> BaseException:
    """An error that came through a call of a client that is not installed here."""
    return _caught(lambda: exec(code, {"__name__": package, "error": error}))


FIRST, NONE = [object()], list[object]()
REFUSED = SimpleNamespace(error=ConnectionRefusedError(111, "refused"))
LATE = SimpleNamespace(error=TimeoutError())
_answer = lambda history: SimpleNamespace(status_code=429, history=history)  # noqa: E731
_httpx = lambda: _made("httpx", "ConnectError")("refused")  # noqa: E731
_aiohttp = lambda kind: _made("aiohttp.client_exceptions", kind)("refused")  # noqa: E731
_called = "def send(history):\n    raise error\nsend({})"
_tenacity = "def iter(retry_state):\n    raise error\niter(type('State', (), {{'attempt_number': {}}}))"
_backoff = "def retry(tries):\n    raise error\nretry({})"
_retrying = "def call(attempt_number):\n    raise error\ncall({})"
_boto = "def _send_request(attempts):\n    raise error\n_send_request({})"


@pytest.mark.parametrize(
    ("error", "is_denied"),
    [
        (lambda: _with(_made("httpx", "HTTPStatusError")(), response=_answer(FIRST)), False),
        (lambda: _with(_made("httpx", "HTTPStatusError")(), response=_answer(NONE)), True),
        (lambda: _with(_aiohttp("ClientResponseError"), status=429, history=(1,)), False),
        (lambda: _with(_aiohttp("ClientResponseError"), status=429, history=()), True),
        (lambda: _with(_aiohttp("TooManyRedirects"), status=429, history=(1,)), False),
        (lambda: _ran("httpx._client", _called.format("[1]"), _httpx()), False),
        (lambda: _ran("httpx._client", _called.format("[]"), _httpx()), True),
        (lambda: _ran("aiohttp.client", _called.format("[1]"), _aiohttp("ClientConnectorError")), False),
        (lambda: _ran("aiohttp.client", _called.format("[]"), _aiohttp("ClientConnectorError")), True),
        (lambda: _ran("botocore.endpoint", _boto.format(2), ConnectionRefusedError()), False),
        (lambda: _ran("botocore.endpoint", _boto.format(1), ConnectionRefusedError()), True),
        (lambda: _made("tenacity", "RetryError")(ConnectionRefusedError()), False),
        (lambda: _ran("tenacity.asyncio", _tenacity.format(2), ConnectionRefusedError()), False),
        (lambda: _ran("tenacity", _tenacity.format(1), ConnectionRefusedError()), True),
        (lambda: _ran("backoff._sync", _backoff.format(2), ConnectionRefusedError()), False),
        (lambda: _ran("backoff._sync", _backoff.format(1), ConnectionRefusedError()), True),
        (lambda: _ran("retrying", _retrying.format(3), _with(ValueError(), status=429)), False),
        (
            lambda: _made("google.api_core.exceptions", "RetryError")("late", ConnectionRefusedError()),
            False,
        ),
        (lambda: _with(_made("tenacity", "RetryError")(), status=429), False),
        (lambda: _with(ConnectionRefusedError(), retries=SimpleNamespace(history=(LATE, REFUSED))), False),
        (lambda: _with(ConnectionRefusedError(), retries=SimpleNamespace(history=(REFUSED,))), True),
    ],
)
def test_what_a_client_sent_before_is_no_denial(
    error: Callable[[], BaseException], is_denied: bool
) -> None:
    """I9: a redirect or a retry makes the error one of a second request."""
    found = error()
    assert (reach_of(found) is Reach.NOT_REACHED or was_turned_away(found)) is is_denied


def test_connect_timeout_after_a_retried_answer_is_not_certain() -> None:
    """I9: requests keeps urllib3's error, with what it sent before, within its own."""
    retries = urllib3.Retry(3, history=(urllib3.util.retry.RequestHistory("POST", "/", None, 503, None),))
    late = urllib3.exceptions.ConnectTimeoutError("late")
    spent = _caught(lambda: retries.new(total=0).increment("POST", "/", error=late))
    assert reach_of(requests.ConnectTimeout(spent)) is Reach.UNWELL


def test_grpc_codes_are_asked_for_by_name() -> None:
    """UNAVAILABLE may come after the request was sent: the server is unwell, nothing more is certain."""
    code = type("Code", (), {"name": "UNAVAILABLE"})()
    kind = type("AioRpcError", (Exception,), {"__module__": "grpc.aio", "code": lambda self: code})
    assert reach_of(kind("gone")) is Reach.UNWELL


def test_service_says_by_itself_what_its_client_found_out() -> None:
    """The forwarder's own errors carry it."""
    assert reach_of(HandlerDown("not reached: refused")) is Reach.NOT_REACHED
    assert reach_of(ForwardFailed("no answer: timeout")) is Reach.UNWELL
    assert reach_of(ForwardFailed("answered 500", 500)) is Reach.UNTOLD
    assert reach_of(NotApplied("full")) is Reach.UNTOLD


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (ConnectionRefusedError(111, "refused"), "no connection"),
        (socket.gaierror(-2, "no such name"), "no connection"),
        (TimeoutError(), "no answer"),
        (ConnectionResetError(), "no answer"),
        (urllib.error.HTTPError("http://x", 503, "Unavailable", Message(), None), "HTTP 503"),
        (urllib.error.HTTPError("http://x", 429, "Too many", Message(), None), "HTTP 429"),
        (HandlerDown("the handler was not reached: no connection"), "no connection"),
        (ForwardFailed("no answer: timeout"), "no answer"),
        (ForwardFailed("the handler answered 500", 500), "HTTP 500"),
        (ValueError("a bug"), ""),
    ],
    ids=repr,
)
def test_circuit_tells_what_was_seen_and_nothing_else(error: Exception, seen: str) -> None:
    """E5: a 503 is an answer, not a missing connection."""
    assert observed(error) == seen
