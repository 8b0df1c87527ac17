"""Plain webhooks take a short way through the server, which answers as the long one and checks as much."""

from __future__ import annotations

import contextlib
import gc
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from oncegate.clock import SystemClock
from oncegate.gate.admission import Admission, Verdict
from oncegate.model.states import State
from oncegate.service.fastpath.body_cache import FamiliarBodies
from oncegate.service.settings import RecordSettings, ServerSettings
from oncegate.store import EntryFilter
from oncegate.testing.waiting import DEADLINE_SECONDS, wait_until
from tests.service.site import BEARER, HOOKS, SECRET, Answer, Site, TeamHandler, forwarding, settings

SIGNED = f"authorization: Bearer {SECRET}\r\ncontent-type: application/json\r\n"


def request(body: bytes, head: str = SIGNED, target: str = "/in/hooks", version: str = "1.1") -> bytes:
    """A request that takes the short way, unless `head` says something unusual."""
    length = f"content-length: {len(body)}\r\n"
    return f"POST {target} HTTP/{version}\r\nhost: localhost\r\n{head}{length}\r\n".encode() + body


def chunked(site: Site, body: bytes, headers: dict[str, str]) -> Answer:
    """The same over the long way, which bodies of unknown length take."""
    with socket.create_connection(("127.0.0.1", site.port), timeout=DEADLINE_SECONDS) as connection:
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        connection.sendall(
            f"POST /in/hooks HTTP/1.1\r\nhost: [::1]\r\n{head}transfer-encoding: chunked\r\n\r\n".encode()
            + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        )
        return next(answers(connection))


def answers(connection: socket.socket) -> Iterator[Answer]:
    """Answers as they come, until the connection ends."""
    buffer = b""
    while True:
        while b"\r\n\r\n" not in buffer:
            part = connection.recv(65536)
            if not part:
                return
            buffer += part
        head, _, buffer = buffer.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:])
        while len(buffer) < int(headers["content-length"]):
            buffer += connection.recv(65536)
        body, buffer = buffer[: int(headers["content-length"])], buffer[int(headers["content-length"]) :]
        yield Answer(int(lines[0].split()[1]), headers, body)


WRONG = {**BEARER, "authorization": "Bearer wrong-and-long-enough"}


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b'{"id": "seen"}', BEARER),
        (b'{"id": "seen", "more": 1}', BEARER),
        (b'{"id": "seen"}', WRONG),
        (b'{"id": "seen"}', {"content-type": "application/json"}),
        (b'{"id": "seen"}', {**BEARER, "content-type": "text/plain"}),
        (b'{"id": "seen"}', {**BEARER, "content-encoding": "gzip"}),
        (b'{"no": "key"}', BEARER),
        (b'{"id": "seen", "id": "seen"}', BEARER),
        (b"", BEARER),
        (b"\xff", BEARER),
    ],
    ids=range(10),
)
def test_both_ways_answer_alike(shared: Site, body: bytes, headers: dict[str, str]) -> None:
    assert shared.call("POST", "/in/hooks", b'{"id": "seen"}', BEARER).status == 200
    shared.call("POST", "/in/hooks", body, headers)  # from now on both are repeats, if they are anything

    short, long = shared.call("POST", "/in/hooks", body, headers), chunked(shared, body, headers)

    assert (short.status, short.body) == (long.status, long.body)
    names = [sorted(one.headers.keys() - {"connection"}) for one in (short, long)]
    assert names[0] == names[1]
    assert short.headers["content-type"] == long.headers["content-type"]


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ("content-type: application/json\r\n", 400),
        ("authorization: Bearer another-that-is-long\r\n", 400),
        ("x-forwarded-for: 1\r\nx-forwarded-for: 2\r\n", 200),
    ],
    ids=["content-type", "authorization", "another"],
)
def test_a_header_that_comes_twice_counts_only_where_somebody_reads_it(
    shared: Site, more: str, status: int
) -> None:
    with socket.create_connection(("127.0.0.1", shared.port), timeout=DEADLINE_SECONDS) as connection:
        connection.sendall(request(b'{"id": "seen twice"}', SIGNED + more))
        assert next(answers(connection)).status == status


@pytest.mark.parametrize("second", ["elsewhere.example", "localhost"])
def test_a_second_name_in_a_request_is_looked_at_too(shared: Site, second: str) -> None:
    """Whoever comes under somebody else's name does not pass because of the right one beside it."""
    with socket.create_connection(("127.0.0.1", shared.port), timeout=DEADLINE_SECONDS) as connection:
        hosts = f"host: {second}\r\nhost: localhost\r\n"
        connection.sendall(
            request(b'{"id": "two names"}', SIGNED).replace(b"host: localhost\r\n", hosts.encode())
        )
        assert next(answers(connection)).status == (200 if second == "localhost" else 421)


def test_a_body_that_was_replayed_still_needs_its_signature(site: Site) -> None:
    """What memory knows by its bytes is nobody's without the secret (I8)."""
    event = {"id": "n-1", "private": "outcome"}
    assert [site.hook(event).document["replay"] for _ in range(4)] == [False, True, True, True]

    refused = site.call("POST", "/in/hooks", event, WRONG)

    assert (refused.status, refused.problem) == (401, "not-authentic")
    assert site.call("POST", "/in/hooks", event, {**BEARER, "content-type": "text/plain"}).status == 415
    assert site.hook(event).document["replay"] is True


def test_the_same_bytes_at_another_surface_are_another_event(tmp_path: Path) -> None:
    two = {"hooks": HOOKS, "other": msgspec.structs.replace(HOOKS, tenant="zeta")}
    with Site(tmp_path, settings(surfaces=two)).serving() as site:
        assert [site.hook({"id": "a"}).document["replay"] for _ in range(3)] == [False, True, True]

        other = [site.call("POST", "/in/other", {"id": "a"}, BEARER).document for _ in range(3)]

        assert [one["replay"] for one in other] == [False, True, True]
        assert other[0]["key"] != site.hook({"id": "a"}).document["key"]


def test_other_content_under_a_known_key_is_a_conflict_however_often_it_comes(site: Site) -> None:
    for _ in range(3):
        assert site.hook({"id": "a", "n": 1}).status == 200
        assert site.hook({"id": "a", "n": 2}).status == 422


def test_memory_does_not_take_one_content_for_another(site: Site) -> None:
    """Bytes stand for a key and a content: a key that has another content now is not replayed for them."""
    for _ in range(2):
        key = site.hook({"id": "a"}).document["key"]
    known = site.gate.engine.familiar(Admission(Verdict.REPLAY, key))

    assert known is not None
    assert site.gate.engine.recall("hooks", known) is not None
    assert site.gate.engine.recall("hooks", msgspec.structs.replace(known, fingerprint=b"\0" * 16)) is None
    assert site.gate.engine.familiar(Admission(Verdict.CONFLICT, key)) is None
    assert site.gate.engine.familiar(Admission(Verdict.REPLAY, "0" * 48)) is None


def test_bodies_that_are_known_are_bounded() -> None:
    bodies = FamiliarBodies(2)
    known: Any = object()
    marks = [bodies.find("hooks", str(number).encode())[0] for number in range(3)]
    for mark in marks:
        bodies.learn(mark, known)

    assert [bodies.find("hooks", str(number).encode())[1] for number in range(3)] == [None, known, known]


def test_whoever_records_arrivals_sees_every_one(tmp_path: Path) -> None:
    record = RecordSettings(folder=str(tmp_path / "recorded"))
    with Site(tmp_path, settings(record=record)).serving() as site:
        assert [site.hook({"id": "a"}).document["replay"] for _ in range(4)] == [False, True, True, True]

    lines = b"".join(path.read_bytes() for path in (tmp_path / "recorded").rglob("*") if path.is_file())
    assert lines.count(b'"replay"') == 3, lines


@contextlib.contextmanager
def connected(site: Site) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", site.port), timeout=DEADLINE_SECONDS) as connection:
        yield connection


def test_requests_sent_at_once_are_answered_in_order(shared: Site) -> None:
    """Plain ones, unusual ones and other places, in one write and byte by byte."""
    several = [
        request(b'{"id": "p-1"}'),
        b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n",
        request(b'{"id": "p-1"}'),
        request(b'{"id": "p-1"}', SIGNED + "expect: nothing\r\n"),
        request(b'{"id": "p-1"}', "content-type: application/json\r\n"),
        request(b'{"id": "p-2"}'),
        request(b'{"id": "p-2"}', SIGNED + "connection: close\r\n"),
    ]
    with connected(shared) as connection:
        connection.sendall(b"".join(several))
        found = list(answers(connection))
    assert [one.status for one in found] == [200, 200, 200, 200, 400, 200, 200]
    assert [one.document.get("replay") for one in found] == [False, None, True, True, None, False, True]
    with connected(shared) as connection:
        for byte in b"".join(several):
            connection.send(bytes([byte]))
        assert [one.status for one in answers(connection)] == [200, 200, 200, 200, 400, 200, 200]


def test_an_answer_that_takes_long_keeps_its_place(tmp_path: Path) -> None:
    """What is sent behind it waits, and is not answered in its place."""
    team = TeamHandler()
    team.hold.clear()
    with team.serving() as url, Site(tmp_path, forwarding(url)).serving() as site, connected(site) as line:
        line.sendall(request(b'{"id": "slow"}') + request(b"{", SIGNED + "connection: close\r\n"))
        wait_until(lambda: team.got, what="the handler to be called")
        team.hold.set()
        found = list(answers(line))

    assert [one.status for one in found] == [200, 400]
    assert found[0].document["outcome"]["body"] == {"slot": 7}


@pytest.mark.parametrize("head", [SIGNED, SIGNED + "expect: nothing\r\n"], ids=["short", "long"])
def test_a_request_whose_sender_has_gone_is_finished_before_the_server_ends(
    tmp_path: Path, head: str
) -> None:
    team = TeamHandler()
    team.hold.clear()
    with team.serving() as url:
        patient = ServerSettings(port=0, drain_within=f"{DEADLINE_SECONDS:g}s")
        site = Site(tmp_path, msgspec.structs.replace(forwarding(url), server=patient))
        released = threading.Thread(target=_release_when_closed, args=(site, team))
        with site.serving():
            with connected(site) as line:
                line.sendall(request(b'{"id": "gone"}', head))
                wait_until(lambda: team.got, what="the handler to be called")
            released.start()
        released.join(DEADLINE_SECONDS)

    with site.gate.engine.store.look() as session:
        (entry,) = session.entries(EntryFilter(), None, 10)
    assert entry.state is State.COMMITTED


def _release_when_closed(site: Site, team: TeamHandler) -> None:
    """Lets the handler answer once the server has begun to end: it takes no connections then."""

    def is_closed() -> bool:
        try:
            socket.create_connection(("127.0.0.1", site.port), timeout=DEADLINE_SECONDS).close()
        except OSError:
            return True
        return False

    try:
        wait_until(is_closed, what="the server to stop listening")
        SystemClock().pause(0.5)  # one that does not wait for its requests has ended by then
    finally:
        team.hold.set()


@pytest.mark.parametrize("head", [SIGNED, SIGNED + "expect: nothing\r\n"], ids=["short", "long"])
def test_what_is_not_http_behind_a_request_is_not_its_answer(tmp_path: Path, head: str) -> None:
    """The request gets its own answer; what is behind it is looked at then, and ends the connection."""
    team = TeamHandler()
    team.hold.clear()
    with team.serving() as url, Site(tmp_path, forwarding(url)).serving() as site, connected(site) as line:
        line.sendall(request(b'{"id": "n-1"}', head) + b"\x16\x03 nonsense \r\n\r\n")
        wait_until(lambda: team.got, what="the handler to be called")
        team.hold.set()
        found = list(answers(line))

    assert [one.status for one in found] == [200, 400]
    assert found[1].headers["connection"] == "close"


@pytest.mark.slow
def test_requests_leave_nothing_that_has_to_be_looked_for(shared: Site) -> None:
    """A request whose parts know each other in a circle waits for the collector, and makes others wait."""
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(connected(shared)) for _ in range(8)]
        found = [answers(line) for line in lines]
        _send_and_read(lines, found, "warm")
        gc.collect()
        gc.disable()
        try:
            for number in range(40):
                _send_and_read(lines, found, f"g-{number}")
            left = gc.collect()
        finally:
            gc.enable()

    assert left < 320, f"{left} objects of 320 requests"


def _send_and_read(lines: list[socket.socket], found: list[Iterator[Answer]], name: str) -> None:
    for number, line in enumerate(lines):
        line.sendall(request(f'{{"id": "{name}-{number}"}}'.encode()))
    assert [next(one).status for one in found] == [200] * len(found)


def test_connections_are_kept_or_ended_as_asked(shared: Site) -> None:
    with connected(shared) as line:
        line.sendall(request(b'{"id": "k-1"}', SIGNED + "connection: close\r\n"))
        (one,) = answers(line)
    assert (one.status, one.headers["connection"]) == (200, "close")
    with connected(shared) as line:
        line.sendall(request(b'{"id": "k-1"}', version="1.0"))
        (one,) = answers(line)
    assert one.status == 200


def test_fields_behind_a_body_are_not_headers(shared: Site) -> None:
    """A signature that comes after what it signs was not there when it was asked for."""
    body = b'{"id": "t-1"}'
    data = (
        b"POST /in/hooks HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n%x\r\n%b\r\n0\r\n" % (len(body), body)
    )
    answer = shared.raw(data + f"authorization: Bearer {SECRET}\r\n\r\n".encode())

    assert answer.startswith(b"HTTP/1.1 400")


def test_there_cannot_be_much_more_around_a_body_than_in_it(tmp_path: Path) -> None:
    """Chunks have heads that may say anything, and fields may follow; they are bounded like the body."""
    head = b"POST /in/hooks HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    with Site(tmp_path, settings(server={"body_bytes_max": 1000})).serving() as site:
        for data in (b"1;" + b"x" * 200_000, b"1\r\na\r\n0\r\nx: " + b"x" * 200_000):
            assert _is_cut_off(site, head, data)
        assert site.hook({"id": "n-1"}).status == 200


def _is_cut_off(site: Site, head: bytes, data: bytes) -> bool:
    """Whether the other side has had enough long before all of it, which no buffer in between can hold."""
    with connected(site) as line:
        line.sendall(head)
        try:
            for _ in range(200):
                line.sendall(data)
        except OSError:
            return True
        return False


def test_a_connection_that_has_nothing_to_say_is_ended(tmp_path: Path) -> None:
    with (
        Site(tmp_path, settings(server={"idle_within": "200ms"})).serving() as site,
        connected(site) as line,
    ):
        line.sendall(request(b'{"id": "idle"}') * 2)
        assert [one.status for one in answers(line)] == [200, 200]  # to the end of the connection
