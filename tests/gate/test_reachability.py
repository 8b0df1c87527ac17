"""What an error of the usual clients says: was anything sent, and is the other side well?"""

from __future__ import annotations

import asyncio
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests

from oncegate import NotApplied
from oncegate.gate.runtime.reachability import Reach, asked_wait, reach_of, status_of, was_turned_away
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
        import threading

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
