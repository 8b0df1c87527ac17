"""Hostile input over real sockets: every row of the table that concerns what comes in."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import select
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from oncegate.service.messages import ServiceRequest
from oncegate.testing.waiting import DEADLINE_SECONDS, wait_until
from tests.service.site import BEARER, SECRET, Answer, Site, TeamHandler, forwarding, read_all, settings

TRIES_MAX = 10
HEAD = (
    b"POST /in/hooks HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"authorization: Bearer " + SECRET.encode()
)


def entries(site: Site) -> int:
    with site.gate.engine.store.look() as session:
        return sum(session.counts().values())


@pytest.mark.parametrize(
    "headers",
    [{}, {"authorization": "Bearer wrong-and-long-enough"}, {"authorization": f"Basic {SECRET}"}],
)
def test_without_the_secret_nobody_can_claim_a_key(site: Site, headers: dict[str, str]) -> None:
    answer = site.call("POST", "/in/hooks", {"id": "n-1"}, {**headers, "content-type": "application/json"})

    assert answer.status in (400, 401)
    assert SECRET not in str(answer)
    assert site.hook({"id": "n-1"}).document["replay"] is False


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nonsense",
        b'{"id": NaN}',
        b'{"id": Infinity}',
        b'{"id": 1e999}',
        b'{"id": "a", "amount": 12345678901234567.1}',
        b'{"id": "\\u0061", "amount": 12345678901234567.9}',
        b'{"id": "a", "amount": 1e-400}',
        b'{"id": "a", "id": "b"}',
        b'{"x": {"id": 1, "id": 2}}',
        b'{"id": ' + b"9" * 500 + b"}",
        b'{"id": "\xff"}',
        b'\xef\xbb\xbf{"id": "a"}',
        b'{"id": "a"} {"id": "b"}',
        b"[" * 65 + b"]" * 65,
        b"[" * 100_000,
        b'{"a":' * 65 + b"1" + b"}" * 65,
    ],
    ids=range(18),
)
def test_what_is_not_strictly_json_is_400(shared: Site, body: bytes) -> None:
    answer = shared.call("POST", "/in/hooks", body, BEARER)

    assert (answer.status, answer.problem) == (400, "malformed")
    assert shared.hook({"id": "still here"}).status == 200


def test_brackets_in_strings_are_not_depth(shared: Site) -> None:
    assert shared.hook({"id": "n-1", "text": '["{' * 100}).status == 200
    assert shared.hook({"id": "n-2", "text": json.loads("[" * 60 + "]" * 60)}).status == 200


def test_a_body_over_the_limit_is_413_and_never_cut(tmp_path: Path) -> None:
    """Announced or chunked; the connection ends, because the rest is not read."""
    with Site(tmp_path, settings(server={"body_bytes_max": 100})).serving() as site:
        announced = site.call("POST", "/in/hooks", b"x" * 101, BEARER)
        chunk = b"40\r\n" + b"x" * 64 + b"\r\n"
        chunked = site.raw(HEAD + b"\r\ntransfer-encoding: chunked\r\n\r\n" + chunk * 2 + b"0\r\n\r\n")
        exact = site.hook(b'{"id": "%s"}' % (b"x" * (100 - 10)))

    assert (announced.status, announced.problem) == (413, "body-too-large")
    assert chunked.startswith(b"HTTP/1.1 413")
    assert exact.status == 200


def test_an_endless_chunked_body_is_cut_off_at_the_limit(tmp_path: Path) -> None:
    """Also if the sender never stops to listen."""
    with Site(tmp_path, settings(server={"body_bytes_max": 1000})).serving() as site:
        with socket.create_connection(("127.0.0.1", site.port), timeout=DEADLINE_SECONDS) as connection:
            connection.sendall(HEAD + b"\r\ntransfer-encoding: chunked\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                for _ in range(100_000):
                    connection.sendall(b"400\r\n" + b"x" * 1024 + b"\r\n")
                raise AssertionError("nobody stopped the sender")
        assert site.hook({"id": "n-1"}).status == 200


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "gzip, identity"])
def test_a_compressed_body_is_415(shared: Site, encoding: str) -> None:
    answer = shared.call(
        "POST", "/in/hooks", gzip.compress(b'{"id": "n-1"}'), {**BEARER, "content-encoding": encoding}
    )

    assert (answer.status, answer.problem) == (415, "encoding-unsupported")


def test_another_media_type_is_415(shared: Site) -> None:
    answer = shared.call("POST", "/in/hooks", b"id=1", {**BEARER, "content-type": "text/plain"})

    assert (answer.status, answer.problem) == (415, "media-type-unsupported")


def test_a_header_that_comes_twice_is_not_guessed(shared: Site) -> None:
    answer = shared.raw(
        HEAD + b"\r\nauthorization: Bearer other\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"
    )

    assert answer.startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(
    "head",
    [
        b"POST /in/hooks HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 40_000 + b"\r\n\r\n",
        b"POST /in/hooks HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 40_000,
        b"POST /" + b"a" * 40_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: localhost\r\n" + b"x: 1\r\n" * 200 + b"\r\n",
    ],
    ids=["one large", "one without end", "target", "many"],
)
def test_too_many_header_bytes_are_431(shared: Site, head: bytes) -> None:
    head_of, _, body = shared.raw(head).partition(b"\r\n\r\n")
    assert head_of.startswith(b"HTTP/1.1 431")
    assert b"content-type: application/problem+json" in head_of
    assert json.loads(body)["type"] == "urn:oncegate:problem:headers-too-large"
    assert shared.call("GET", "/livez").status == 200


LARGE = b"GET /livez HTTP/1.1\r\nhost: localhost\r\nx: %b\r\n\r\n"


@pytest.mark.parametrize("count", [33_000, 40_000, 60_000])
def test_header_bytes_are_counted_behind_another_request_too(shared: Site, count: int) -> None:
    """In the same read, where they end in it; while the first is carried out its answer is the last."""
    first = HEAD + b'\r\ncontent-length: 11\r\n\r\n{"id": "a"}'
    found = shared.raw(first + LARGE % (b"a" * count))

    assert found.count(b"HTTP/1.1 200") == 1
    assert found.count(b"HTTP/1.1 431") <= 1
    assert b"alive" not in found


def test_a_head_in_two_reads_behind_another_request_is_counted_whole(shared: Site) -> None:
    """The first answer shows that the first part was read."""
    first = HEAD + b'\r\ncontent-length: 11\r\n\r\n{"id": "a"}'
    with socket.create_connection(("127.0.0.1", shared.port), timeout=DEADLINE_SECONDS) as connection:
        connection.sendall(first + (LARGE % (b"a" * 40_000))[:-4])
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        connection.sendall(b"\r\n\r\n")
        assert b"alive" not in read_all(connection)


def test_a_body_is_not_counted_as_headers_of_the_request_behind_it(shared: Site) -> None:
    body = b'{"id": "large", "x": "%b"}' % (b"x" * 50_000)
    first = HEAD + b"\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    with socket.create_connection(("127.0.0.1", shared.port), timeout=DEADLINE_SECONDS) as connection:
        connection.sendall(first + (LARGE % b"")[:-2])
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        connection.sendall(b"connection: close\r\n\r\n")
        assert b"alive" in read_all(connection)


def test_headers_without_end_are_counted_after_a_large_request_too(shared: Site) -> None:
    first = HEAD.replace(b"/in/hooks", b"/v1/events") + b"\r\ncontent-length: 60000\r\n\r\n" + b" " * 60_000
    with socket.create_connection(("127.0.0.1", shared.port), timeout=DEADLINE_SECONDS) as connection:
        connection.sendall(first.replace(SECRET.encode(), shared.token.encode()))
        assert connection.recv(65536).startswith(b"HTTP/1.1 400")
        connection.sendall(b"GET /livez HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 40_000)
        assert b"HTTP/1.1 431" in read_all(connection)


def test_nothing_behind_a_refused_request_is_carried_out(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even if it came in the same read."""
    event = json.dumps({"id": "behind", "key": "k", "data": 1}).encode()
    own = f"authorization: Bearer {site.token}\r\ncontent-type: application/json\r\n".encode()
    behind = b"POST /v1/events HTTP/1.1\r\nhost: localhost\r\n" + own
    started: list[str] = []
    find = site.service._find

    def found_by(incoming: ServiceRequest) -> Any:
        started.append(incoming.path)
        return find(incoming)

    monkeypatch.setattr(site.service, "_find", found_by)
    found = site.raw(
        b"GET /livez HTTP/1.1\r\nhost: localhost\r\n"
        + b"x: 1\r\n" * 200
        + b"\r\n"
        + behind
        + b"content-length: %d\r\n\r\n" % len(event)
        + event
    )

    assert found.startswith(b"HTTP/1.1 431")
    assert found.count(b"HTTP/1.1") == 1
    assert site.call("GET", "/livez").status == 200
    assert started == ["/livez"]


def test_slow_headers_and_bodies_are_cut_off(tmp_path: Path) -> None:
    """By absolute times: a byte now and then does not help (trap 12)."""
    slow = {"headers_within": "300ms", "body_within": "600ms"}
    with Site(tmp_path, settings(server=slow)).serving() as site:
        starts = [
            b"",
            b"POST /in/hooks HTTP/1.1\r\nhost: localhost\r\n",
            HEAD + b"\r\ncontent-length: 50\r\n\r\n{",
        ]
        answers = [_drip(site.port, start) for start in starts]
        assert entries(site) == 0
        tried(lambda: site.hook({"id": "n-1"}), 200)
        assert entries(site) == 1

    assert all(answer.startswith(b"HTTP/1.1 408") for answer in answers), answers
    assert all(b"urn:oncegate:problem:timed-out" in answer for answer in answers), answers


def tried(call: Callable[[], Answer], status: int) -> Answer:
    """Calls until the answer is this one: on a slow machine a caller may itself be cut off now and then."""
    for _ in range(TRIES_MAX):
        with contextlib.suppress(OSError, http.client.HTTPException):
            answer = call()
            if answer.status == status:
                return answer
    raise AssertionError(f"not once in {TRIES_MAX} times {status}")


def _drip(port: int, start: bytes) -> bytes:
    """Sends a byte every 50 ms until the other side has had enough."""
    stop = threading.Event()
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_SECONDS) as connection:
        connection.sendall(start)

        def drip() -> None:
            with contextlib.suppress(OSError):
                while start and not stop.wait(0.05):
                    connection.send(b"a")

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            return read_all(connection)
        finally:
            stop.set()
            dripping.join(DEADLINE_SECONDS)


def test_a_kept_connection_is_watched_too(tmp_path: Path) -> None:
    """The second request on a connection has its own time."""
    slow = {"headers_within": "300ms", "body_within": "300ms"}
    with (
        Site(tmp_path, settings(server=slow)).serving() as site,
        _answered_once(site.port) as connection,
    ):
        connection.sendall(b"POST /in/ho")
        assert b"HTTP/1.1 408" in read_all(connection)


@contextlib.contextmanager
def _answered_once(port: int) -> Iterator[socket.socket]:
    """A connection whose first request was in time."""
    for _ in range(TRIES_MAX):
        with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_SECONDS) as connection:
            connection.sendall(HEAD + b'\r\ncontent-length: 11\r\n\r\n{"id": "a"}')
            if connection.recv(65536).startswith(b"HTTP/1.1 200"):
                yield connection
                return
    raise AssertionError(f"too late {TRIES_MAX} times")


def test_a_slow_handler_is_not_cut_off_by_the_senders_times(tmp_path: Path) -> None:
    """The times are for receiving, not for working."""
    team = TeamHandler()
    team.hold.clear()
    with team.serving() as url:
        wanted = forwarding(url)
        quick = settings(
            server={"headers_within": "200ms", "body_within": "200ms"},
            surfaces=wanted.surfaces,
            downstreams=wanted.downstreams,
        )
        with Site(tmp_path, quick).serving() as site, ThreadPoolExecutor(1) as threads:
            asked = threads.submit(tried, lambda: site.hook({"id": "n-1"}), 200)
            wait_until(lambda: team.got, what="the handler to be called")
            with pytest.raises(TimeoutError):
                asked.result(timeout=0.5)
            team.hold.set()
            assert asked.result(DEADLINE_SECONDS).document["replay"] is False
        assert len(team.got) == 1


def test_one_tenant_cannot_take_everybodys_room(tmp_path: Path) -> None:
    """429 at the tenant's limit, 503 at the service's, both with Retry-After; nothing is run."""
    team = TeamHandler()
    team.hold.clear()
    with team.serving() as url:
        wanted = forwarding(url)
        narrow = settings(
            server={"tenant_concurrency_max": 2, "concurrency_max": 3},
            surfaces=wanted.surfaces,
            downstreams=wanted.downstreams,
        )
        with Site(tmp_path, narrow).serving() as site:
            threads = [threading.Thread(target=site.hook, args=({"id": f"n-{n}"},)) for n in range(2)]
            for thread in threads:
                thread.start()
            wait_until(lambda: len(team.got) == 2, what="both to be with the handler")
            refused = site.hook({"id": "n-3"})
            other = site.partner("GET", "/wes/v1/dispatch/pending", token=site.other)
            team.hold.set()
            for thread in threads:
                thread.join(DEADLINE_SECONDS)
            assert site.hook({"id": "n-3"}).document["replay"] is False

    assert (refused.status, refused.problem) == (429, "too-many")
    assert int(refused.headers["retry-after"]) >= 1
    assert other.status == 200


def test_readers_that_wait_take_nobodys_room_and_are_let_go_at_the_end(tmp_path: Path) -> None:
    """Long polls are counted by themselves; when the service ends they get what there is, at once."""
    narrow = settings(server={"tenant_concurrency_max": 1, "concurrency_max": 1})
    answers: list[Answer] = []
    site = Site(tmp_path, narrow)

    def poll() -> None:
        answers.append(site.partner("GET", "/wes/v1/dispatch/pending?wait=30"))

    threads = [threading.Thread(target=poll) for _ in range(3)]
    with site.serving():
        for thread in threads:
            thread.start()
        wait_until(lambda: site.service.polls.total == 3, what="three readers to wait")
        assert site.hook({"id": "n-1"}).status == 200
    for thread in threads:
        thread.join(DEADLINE_SECONDS)

    assert [(one.status, one.document["events"]) for one in answers] == [(200, [])] * 3


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/in/hooks", 405),
        ("GET", "/v1/events", 405),
        ("POST", "/in/unknown", 404),
        ("POST", "/in/../livez", 404),
        ("GET", "/", 404),
        ("DELETE", "/wes/v1/dispatch/ack", 405),
    ],
)
def test_other_places_and_methods(shared: Site, method: str, path: str, status: int) -> None:
    answer = shared.call(method, path, b"{}", BEARER)

    assert answer.status == status
    assert answer.headers["content-type"] == "application/problem+json"


def test_not_http_at_all(shared: Site) -> None:
    for data in (b"\x16\x03\x01\x02\x00", b"nonsense\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"):
        head, _, body = shared.raw(data).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400")
        assert b"content-type: application/problem+json" in head
        assert json.loads(body)["type"] == "urn:oncegate:problem:malformed"
    assert shared.call("GET", "/livez").status == 200


def test_smuggling_by_two_lengths_is_refused(shared: Site) -> None:
    answer = shared.raw(
        HEAD
        + b"\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /livez HTTP/1.1\r\n\r\n"
    )

    assert answer.startswith(b"HTTP/1.1 400")
    assert b"alive" not in answer


def test_secrets_and_payloads_are_not_in_logs(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """Keys are; a whole run with a canary in every place finds none."""
    caplog.set_level("DEBUG")
    canary = "canary-4711"
    answer = site.hook({"id": canary, "payload": canary}, **{"x-other": canary})
    site.call("POST", "/in/hooks", canary.encode(), BEARER)
    site.call("POST", "/in/hooks", {}, {**BEARER, "authorization": f"Bearer {canary}-and-longer"})
    site.partner("POST", "/v1/events", {"id": canary, "key": canary, "data": canary})
    site.partner("GET", f"/wes/v1/dispatch/pending?since={canary}")

    told: list[Any] = [
        (record.getMessage(), getattr(record, "oncegate", None)) for record in caplog.records
    ]
    assert canary not in str(told)
    assert SECRET not in str(told)
    assert site.token not in str(told)
    assert answer.document["key"] in str(told)


def test_a_body_has_its_own_time(tmp_path: Path) -> None:
    """Longer than that of the headers: a body that takes a while is taken."""
    times = {"headers_within": "200ms", "body_within": "60s"}
    with Site(tmp_path, settings(server=times)).serving() as site:
        assert any(_is_taken_late(site.port) for _ in range(TRIES_MAX))


def _is_taken_late(port: int) -> bool:
    """Whether a body is taken that comes after the time for headers; they themselves may be late here."""
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_SECONDS) as connection:
        connection.sendall(HEAD + b"\r\nconnection: close\r\ncontent-length: 11\r\n\r\n")
        if select.select([connection], [], [], 0.5)[0]:
            return False
        connection.sendall(b'{"id": "a"}')
        return read_all(connection).startswith(b"HTTP/1.1 200")


def test_a_body_that_says_it_is_too_large_is_not_waited_for(shared: Site) -> None:
    """The answer comes before any of it."""
    answer = shared.raw(HEAD + b"\r\ncontent-length: 99999999999\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("GET", "/in/hooks", "POST"), ("PUT", "/v1/events", "POST"), ("POST", "/livez", "GET")],
)
def test_a_wrong_method_is_told_the_right_one(shared: Site, method: str, path: str, allowed: str) -> None:
    answer = shared.call(method, path, b"{}" if method != "GET" else None, BEARER)

    assert (answer.status, answer.headers["allow"]) == (405, allowed)


def test_whoever_is_not_known_is_told_what_to_show(shared: Site) -> None:
    wrong = {**BEARER, "authorization": "Bearer nobody-has-this-token"}

    assert shared.call("POST", "/in/hooks", {"id": "a"}, wrong).headers["www-authenticate"] == "Bearer"
    pending = shared.call("GET", "/wes/v1/dispatch/pending", None, wrong)
    assert (pending.status, pending.headers["www-authenticate"]) == (401, "Bearer")
