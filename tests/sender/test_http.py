"""The guarded client against a server that misbehaves on purpose, over real sockets."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from ipaddress import IPv4Address

import pytest

from oncegate.errors import BadHeader, UsageError
from oncegate.sender.addresses import AddressPolicy
from oncegate.sender.connection import NoAnswer
from oncegate.sender.connector import _check_peer
from oncegate.sender.exchange import FailureKind, NoResponse, Phase, Response
from oncegate.sender.http import HttpClient, Limits
from oncegate.sender.request_builder import Request
from oncegate.sender.urls import EndpointUrl, parse_endpoint_url
from oncegate.testing.waiting import DEADLINE_SECONDS
from tests.sender.scripted import OK, Peer, Site, answering, serving
from tests.support.loops import leap

DEVELOPMENT = AddressPolicy(allow_http=True, allow_loopback=True)
REQUEST = Request((("x-key", "k"), ("content-type", "application/json")), b'{"a":1}')
LONG = timedelta(seconds=DEADLINE_SECONDS)


def url_of(site: Site, host: str = "127.0.0.1") -> EndpointUrl:
    return parse_endpoint_url(f"http://{host}:{site.port}/hook?a=1", DEVELOPMENT)


@asynccontextmanager
async def client(policy: AddressPolicy = DEVELOPMENT, **options):
    made = HttpClient(policy, **options)
    try:
        yield made
    finally:
        await made.close()


async def post(http: HttpClient, url: EndpointUrl, deadline: timedelta = LONG) -> Response:
    found = await http.post(url, REQUEST, deadline=deadline)
    assert isinstance(found, Response), found
    return found


async def fail(http: HttpClient, url: EndpointUrl, deadline: timedelta = LONG) -> NoResponse:
    found = await http.post(url, REQUEST, deadline=deadline)
    assert isinstance(found, NoResponse), found
    return found


async def one(answer: bytes, deadline: timedelta = LONG):
    """What comes of one request to a server that answers so and then closes."""

    async def play(peer: Peer) -> None:
        await peer.request()
        await peer.send(answer)
        await peer.close()

    async with serving(play) as site, client() as http:
        return await http.post(url_of(site), REQUEST, deadline=deadline)


async def test_a_post_is_one_request_with_nothing_added_by_others() -> None:
    async with serving(answering(OK)) as site, client() as http:
        found = await post(http, url_of(site))

    assert (found.status, found.body, found.is_cut) == (200, b"ok", False)
    assert timedelta(0) < found.elapsed < LONG
    assert site.requests == [
        b"POST /hook?a=1 HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-length: 7\r\nx-key: k\r\n"
        b'content-type: application/json\r\n\r\n{"a":1}' % site.port
    ]


async def test_a_connection_is_kept_and_used_again() -> None:
    async with serving(answering(OK)) as site, client() as http:
        for _ in range(3):
            await post(http, url_of(site))
    assert (site.connections, len(site.requests)) == (1, 3)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
    ],
)
async def test_a_connection_that_the_server_ends_is_not_kept(answer: bytes) -> None:
    async with serving(answering(answer)) as site, client() as http:
        await post(http, url_of(site))
        await post(http, url_of(site))
    assert site.connections == 2


async def test_an_old_or_idle_connection_is_not_used_again() -> None:
    for limits in (Limits(idle_max=timedelta(0)), Limits(age_max=timedelta(0))):
        async with serving(answering(OK)) as site, client(limits=limits) as http:
            await post(http, url_of(site))
            await post(http, url_of(site))
        assert site.connections == 2


async def test_idle_connections_are_closed_after_a_while() -> None:
    closed = asyncio.Event()

    async def play(peer: Peer) -> None:
        await answering(OK)(peer)
        closed.set()

    limits = Limits(idle_max=LONG)
    async with serving(play) as site, client(limits=limits) as http:
        await post(http, url_of(site))
        assert not closed.is_set()
        leap(LONG)
        async with asyncio.timeout(DEADLINE_SECONDS):
            await closed.wait()


async def test_a_kept_connection_that_was_closed_meanwhile_is_replaced_before_anything_is_written() -> None:
    """Given a server that closes after its answer without saying so; then every request comes once."""
    closed = asyncio.Event()

    async def play(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK)
        await peer.close()
        closed.set()

    async with serving(play) as site, client() as http:
        await post(http, url_of(site))
        await closed.wait()
        await post(http, url_of(site))
    assert (site.connections, len(site.requests)) == (2, 2)


async def test_a_kept_connection_closed_on_the_next_request_is_a_failed_attempt_and_sent_once() -> None:
    """Given a server that reads the second request and closes; then it has seen two requests, not three."""

    async def play(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK)
        await peer.request()

    async with serving(play) as site, client() as http:
        await post(http, url_of(site))
        found = await fail(http, url_of(site))
    assert (found.kind, found.phase, found.was_sent) == (FailureKind.CLOSED, Phase.ANSWER, True)
    assert (site.connections, len(site.requests)) == (1, 2)


async def test_bytes_that_nobody_asked_for_are_not_the_next_answer() -> None:
    smuggled = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil"

    async def play(peer: Peer) -> None:
        if peer.site.connections == 1:
            await peer.request()
            await peer.send(OK + smuggled)
            await peer.request()
        else:
            await answering(b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n")(peer)

    async with serving(play) as site, client() as http:
        assert (await post(http, url_of(site))).body == b"ok"
        assert (await post(http, url_of(site))).status == 500


async def test_bytes_that_come_while_nobody_waits_close_the_connection() -> None:
    answered, closed = asyncio.Event(), asyncio.Event()

    async def play(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK)
        if peer.site.connections == 1:
            await answered.wait()
            await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil")
            assert await peer.request() is None
            closed.set()
        await peer.request()

    async with serving(play) as site, client() as http:
        await post(http, url_of(site))
        answered.set()
        async with asyncio.timeout(DEADLINE_SECONDS):
            await closed.wait()
        assert (await post(http, url_of(site))).body == b"ok"
    assert site.connections == 2


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    async with serving(answering(OK)) as elsewhere:
        head = f"HTTP/1.1 {status} Moved\r\nlocation: http://127.0.0.1:{elsewhere.port}/\r\n"
        found = await one(f"{head}content-length: 0\r\n\r\n".encode())
    assert found.status == status
    assert elsewhere.connections == 0


async def test_proxies_of_the_environment_are_ignored(monkeypatch) -> None:
    async with serving(answering(OK)) as proxy, serving(answering(OK)) as site, client() as http:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        await post(http, url_of(site))
    assert (proxy.connections, site.connections) == (0, 1)


async def test_a_large_body_is_cut_and_its_status_counts() -> None:
    found = await one(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n" + b"x" * 1_000_000)
    assert (found.status, len(found.body), found.is_cut) == (200, 16 * 1024, True)


async def test_a_body_over_the_limit_is_not_waited_for() -> None:
    async def play(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n" + b"x" * 20_000)
        await peer.reader.read()

    async with serving(play) as site, client() as http:
        assert (await post(http, url_of(site))).is_cut


async def test_a_body_of_exactly_the_limit_is_not_cut() -> None:
    found = await one(b"HTTP/1.1 200 OK\r\ncontent-length: 16384\r\n\r\n" + b"x" * 16384)
    assert (len(found.body), found.is_cut) == (16384, False)


async def test_an_endless_body_ends_the_connection_not_the_client() -> None:
    ended = asyncio.Event()

    async def play(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while not peer.writer.is_closing():
            await peer.send(b"1\r\nx\r\n" * 1000)
            await asyncio.sleep(0)
        ended.set()

    async with serving(play) as site, client() as http:
        assert (await post(http, url_of(site))).is_cut
        async with asyncio.timeout(DEADLINE_SECONDS):
            await ended.wait()


async def test_endless_headers_are_a_failure() -> None:
    async def play(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\n")
        while not peer.writer.is_closing():
            await peer.send(b"x-a: " + b"a" * 500 + b"\r\n")
            await asyncio.sleep(0)

    async with serving(play) as site, client() as http:
        assert (await fail(http, url_of(site))).kind is FailureKind.TOO_LARGE


async def test_endless_trailers_are_cut() -> None:
    async def play(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n")
        while not peer.writer.is_closing():
            await peer.send(b"x-a: a\r\n" * 1000)
            await asyncio.sleep(0)

    async with serving(play) as site, client() as http:
        assert (await post(http, url_of(site))).is_cut


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 x\r\n\r\n" + OK, 200, b"ok"),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", 200, b"until the end"),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", 200, b"until the end"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 200, b"ok"),
        (b"HTTP/1.1 503 Later\r\ncontent-length: 0\r\n\r\n", 503, b""),
    ],
)
async def test_usual_responses_are_read(answer: bytes, status: int, body: bytes) -> None:
    found = await one(answer)
    assert isinstance(found, Response)
    assert (found.status, found.body) == (status, body)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"", FailureKind.CLOSED),
        (b"HTTP/1.1 200", FailureKind.CLOSED),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc", FailureKind.CLOSED),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab", FailureKind.CLOSED),
        (b"SSH-2.0-OpenSSH_9.6\r\n", FailureKind.PROTOCOL),
        (b"HTTP/1.1 abc\r\n\r\n", FailureKind.PROTOCOL),
        (b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", FailureKind.PROTOCOL),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab", FailureKind.PROTOCOL),
        (b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", FailureKind.PROTOCOL),
        (b"HTTP/1.1 101 Switching\r\n\r\n" + OK, FailureKind.PROTOCOL),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 9 + OK, FailureKind.PROTOCOL),
    ],
)
async def test_a_response_that_is_none_is_a_failed_attempt(answer: bytes, kind: FailureKind) -> None:
    found = await one(answer)
    assert isinstance(found, NoResponse), found
    assert (found.kind, found.was_sent) == (kind, True)


async def test_retry_after_is_read() -> None:
    found = await one(b"HTTP/1.1 429 Slow\r\nRetry-After: 7\r\ncontent-length: 0\r\n\r\n")
    assert found.retry_after == timedelta(seconds=7)


async def silent(peer: Peer) -> None:
    await peer.request()
    await peer.reader.read()


async def silent_for_long(peer: Peer) -> None:
    await peer.request()
    leap(LONG)
    await peer.reader.read()


async def test_no_answer_is_a_timeout_and_the_connection_is_dropped() -> None:
    async with serving(silent_for_long) as site, client() as http:
        found = await fail(http, url_of(site))
        assert (found.kind, found.phase, found.was_sent) == (FailureKind.TIMEOUT, Phase.ANSWER, True)
        await fail(http, url_of(site))
    assert site.connections == 2


async def test_an_answer_that_drips_is_a_timeout() -> None:
    async def play(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
        while not peer.writer.is_closing():
            await peer.send(b"x")
            leap(LONG / 20)
            await asyncio.sleep(0)

    async with serving(play) as site, client() as http:
        found = await fail(http, url_of(site))
    assert (found.kind, found.phase) == (FailureKind.TIMEOUT, Phase.ANSWER)


async def test_a_resolver_that_hangs_is_a_timeout_and_nothing_was_sent() -> None:
    async def hang(host: str, port: int) -> list[str]:
        leap(LONG)
        await asyncio.Event().wait()
        return []

    async with serving(silent) as site, client(resolve=hang) as http:
        found = await fail(http, url_of(site, "hooks.example"))
    assert (found.kind, found.phase, found.was_sent) == (FailureKind.TIMEOUT, Phase.RESOLVE, False)


def answers(*rounds: list[str]):
    """A resolver with a new answer each time; `asked` counts."""
    left = list(rounds)

    async def resolve(host: str, port: int) -> list[str]:
        return left.pop(0)

    return resolve, left


async def test_a_name_with_any_blocked_answer_is_refused_and_nobody_is_called() -> None:
    resolve, _ = answers(["127.0.0.1", "10.0.0.1"], ["127.0.0.1", "::ffff:10.0.0.1"], ["fe80::1%1"], ["x"])
    async with serving(answering(OK)) as site, client(resolve=resolve) as http:
        for _ in range(4):
            found = await fail(http, url_of(site, "hooks.example"))
            assert (found.kind, found.was_sent) == (FailureKind.REFUSED_ADDRESS, False)
    assert site.connections == 0


async def test_a_name_is_resolved_once_and_that_address_is_called() -> None:
    """Given a name that would turn to a private address; then the judged one is called, and asked once."""
    resolve, left = answers(["127.0.0.1"], ["10.0.0.1"])
    limits = Limits(idle_max=timedelta(0))
    async with serving(answering(OK)) as site, client(resolve=resolve, limits=limits) as http:
        await post(http, url_of(site, "hooks.example"))
        assert len(left) == 1
        found = await fail(http, url_of(site, "hooks.example"))
    assert found.kind is FailureKind.REFUSED_ADDRESS
    assert b"host: hooks.example:" in site.requests[0]
    assert site.connections == 1


async def test_an_address_is_judged_again_at_connect_time() -> None:
    """Given a URL that was read under another policy; then the client's own policy decides."""
    async with serving(answering(OK)) as site, client(AddressPolicy(allow_http=True)) as http:
        found = await fail(http, url_of(site))
        named = await fail(http, url_of(site, "localhost"))
    assert found.kind is named.kind is FailureKind.REFUSED_ADDRESS
    assert "127.0.0.0/8" in found.detail
    assert site.connections == 0


async def test_a_peer_that_was_not_judged_is_refused() -> None:
    async with serving(answering(OK)) as site:
        with socket.create_connection(("127.0.0.1", site.port)) as sock:
            _check_peer(sock, (IPv4Address("127.0.0.1"),))
            with pytest.raises(NoAnswer) as refused:
                _check_peer(sock, (IPv4Address("8.8.8.8"),))
    assert refused.value.kind is FailureKind.REFUSED_ADDRESS


async def test_the_next_address_is_tried_when_one_cannot_be_connected_to() -> None:
    resolve, _ = answers(["127.0.0.2", "127.0.0.1"])
    async with serving(answering(OK)) as site, client(resolve=resolve) as http:
        await post(http, url_of(site, "hooks.example"))
    assert len(site.requests) == 1


async def test_nobody_listening_is_no_connection() -> None:
    async with serving(answering(OK)) as site:
        pass
    async with client() as http:
        found = await fail(http, url_of(site))
    assert (found.kind, found.phase, found.was_sent) == (FailureKind.CONNECT, Phase.CONNECT, False)


async def test_a_name_that_does_not_exist_is_a_dns_failure() -> None:
    async def unknown(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async with serving(answering(OK)) as site:
        for resolve in (unknown, answers([])[0]):
            async with client(resolve=resolve) as http:
                found = await fail(http, url_of(site, "nowhere.example"))
            assert found.kind in (FailureKind.DNS, FailureKind.REFUSED_ADDRESS)
            assert found.phase is Phase.RESOLVE


async def test_the_machines_own_resolver_is_asked() -> None:
    async with serving(answering(OK)) as site, client() as http:
        found = await http.post(url_of(site, "localhost"), REQUEST, deadline=LONG)
    assert isinstance(found, Response), found


async def test_no_more_requests_are_under_way_than_the_limits_allow() -> None:
    under_way, most, let_go = 0, 0, asyncio.Event()

    async def play(peer: Peer) -> None:
        nonlocal under_way, most
        while await peer.request() is not None:
            under_way += 1
            most = max(most, under_way)
            if under_way == 2:
                let_go.set()
            await let_go.wait()
            under_way -= 1
            await peer.send(OK)

    async with serving(play) as site, client(limits=Limits(per_origin_max=2)) as http:
        await asyncio.gather(*(post(http, url_of(site)) for _ in range(10)))
    assert (most, len(site.requests)) == (2, 10)


async def test_waiting_for_room_is_not_part_of_the_deadline() -> None:
    async def play(peer: Peer) -> None:
        while await peer.request() is not None:
            leap(LONG / 2)
            await peer.send(OK)

    async with serving(play) as site, client(limits=Limits(per_origin_max=1)) as http:
        found = await asyncio.gather(*(post(http, url_of(site)) for _ in range(10)))
    assert {response.status for response in found} == {200}


async def test_a_stuck_endpoint_does_not_hold_the_room_of_others() -> None:
    """Given room for three in all and two at an endpoint, and many requests to a stuck one."""
    limits = Limits(in_flight_max=3, per_origin_max=2)
    async with serving(silent) as stuck, serving(answering(OK)) as good, client(limits=limits) as http:
        waiting = [asyncio.create_task(http.post(url_of(stuck), REQUEST, deadline=LONG)) for _ in range(20)]
        async with asyncio.timeout(DEADLINE_SECONDS):
            for _ in range(3):
                await post(http, url_of(good))
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_cancelled_post_drops_its_connection_and_gives_its_room_back() -> None:
    asked, dropped = asyncio.Event(), asyncio.Event()

    async def play(peer: Peer) -> None:
        if peer.site.connections == 1:
            await peer.request()
            asked.set()
            with suppress(ConnectionError):
                await peer.reader.read()
            dropped.set()
        else:
            await answering(OK)(peer)

    async with serving(play) as site, client(limits=Limits(per_origin_max=1)) as http:
        task = asyncio.create_task(http.post(url_of(site), REQUEST))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(DEADLINE_SECONDS):
            await dropped.wait()
        await post(http, url_of(site))
    assert site.connections == 2


@pytest.mark.parametrize(
    "header", [("x-a", "a\r\nx-b: c"), ("x-a\r\n", "a"), ("x-a", "\0"), ("x-a", "\u00e9")]
)
async def test_a_header_that_would_start_another_line_is_never_written(header) -> None:
    async with serving(answering(OK)) as site, client() as http:
        with pytest.raises(BadHeader):
            await http.post(url_of(site), Request((header,), b""))
    assert site.connections == 0


async def test_a_closed_client_says_so() -> None:
    http = HttpClient(DEVELOPMENT)
    await http.close()
    with pytest.raises(UsageError, match="closed"):
        await http.post(parse_endpoint_url("http://127.0.0.1:1/", DEVELOPMENT), REQUEST)
