"""The simulated terminal, tested as what it is: another process behind a socket."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from oncegate.demo.terminal_client import (
    KeyMode,
    Slot,
    TerminalAnswerLost,
    TerminalClient,
    TerminalError,
    TerminalNotReady,
    TerminalProcess,
    TerminalUnreachable,
    read_record,
)
from oncegate.testing.waiting import DEADLINE_SECONDS

WINDOW = "2026-06-01T07:00Z/PT1H"
CLAIM = json.dumps({"equipment": "MSKU1234565", "window": WINDOW}).encode()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TerminalProcess]:
    """One terminal for the tests that need no fresh one; each uses keys of its own."""
    with TerminalProcess(tmp_path_factory.mktemp("terminal") / "record.jsonl") as terminal:
        yield terminal


@pytest.fixture
def client(shared: TerminalProcess) -> Iterator[TerminalClient]:
    connected = TerminalClient(shared.url)
    yield connected
    connected.close()


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "record.jsonl"


def send(
    url: str, method: str, target: str, body: bytes | None = None, key: str | None = None
) -> tuple[int, dict[str, object]]:
    """One request on a connection of its own, beside the client under test."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=DEADLINE_SECONDS)
    with contextlib.closing(connection):
        connection.request(method, target, body, {} if key is None else {"Idempotency-Key": key})
        response = connection.getresponse()
        return response.status, json.loads(response.read() or b"{}")


def send_raw(url: str, request: bytes) -> bytes:
    """Bytes as they are, and the status line that comes back."""
    parts = urllib.parse.urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=DEADLINE_SECONDS) as connection:
        connection.sendall(request)
        with connection.makefile("rb") as answer:
            return answer.readline()


def test_same_key_gets_the_same_slot(shared: TerminalProcess) -> None:
    """The second call with a key answers 200 with the slot that the first one bought."""
    first = send(shared.url, "POST", "/slots", CLAIM, "same-key")
    second = send(shared.url, "POST", "/slots", CLAIM, "same-key")

    assert first[0] == 201
    assert first[1]["replayed"] is False
    assert second == (200, {**first[1], "replayed": True})


def test_without_a_key_every_call_buys_a_slot(client: TerminalClient) -> None:
    """The fault of the story: nothing tells the terminal that the second call is the first one."""
    first = client.claim("NOKEY", WINDOW, None)
    second = client.claim("NOKEY", WINDOW, None)

    assert first.slot_id != second.slot_id
    assert first.key is None


def test_same_key_with_another_body_is_refused(client: TerminalClient) -> None:
    """A key names one claim; with other content it is 422 and buys nothing."""
    bought = client.claim("OTHER", WINDOW, "other-body")

    with pytest.raises(TerminalError) as refusal:
        client.claim("OTHER", "another window", "other-body")

    assert refusal.value.status == 422
    assert client.owned_by("other-body") == [bought]


def test_lookup_by_key_lists_what_the_key_owns(client: TerminalClient) -> None:
    """Also a key with characters that a query must escape is found; an unknown one owns nothing."""
    key = "a&b=c+d%20?#/"
    bought = client.claim("LOOKUP", WINDOW, key)

    assert client.owned_by(key) == [bought]
    assert bought == Slot(bought.slot_id, "LOOKUP", WINDOW, key, cancelled=False)
    assert client.owned_by("never-seen") == []
    assert bought in client.all_slots()


def test_cancelling_twice_cancels_once(shared: TerminalProcess, client: TerminalClient) -> None:
    """A cancelled slot stays its key's slot, and the record holds one cancellation."""
    bought = client.claim("CANCEL", WINDOW, "cancelled")

    assert client.cancel(bought.slot_id) == client.cancel(bought.slot_id)
    assert client.claim("CANCEL", WINDOW, "cancelled").cancelled
    assert [slot.cancelled for slot in client.owned_by("cancelled")] == [True]
    events = [e["event"] for e in read_record(shared.record) if e["slot"] == bought.slot_id]
    assert events == ["sold", "cancelled"]


def test_cancelling_an_unknown_slot_is_404(client: TerminalClient) -> None:
    """Neither an unsold slot nor a name that is no slot can be cancelled."""
    for slot_id in ("SLOT-999999", "../livez", ""):
        with pytest.raises(TerminalError) as refusal:
            client.cancel(slot_id)
        assert refusal.value.status in (404, 405)


def test_an_answered_sale_is_on_the_record(shared: TerminalProcess, client: TerminalClient) -> None:
    """When the answer is there, the record already has the sale."""
    bought = client.claim("RECORD", WINDOW, "recorded")

    sale = read_record(shared.record)[-1]
    assert (sale["event"], sale["slot"], sale["key"]) == ("sold", bought.slot_id, "recorded")


def test_twenty_threads_with_one_key_buy_one_slot(shared: TerminalProcess, client: TerminalClient) -> None:
    """A race on one key sells once, whoever wins."""
    barrier = threading.Barrier(20)

    def claim(_: int) -> Slot:
        barrier.wait(DEADLINE_SECONDS)
        return client.claim("RACE", WINDOW, "raced")

    with ThreadPoolExecutor(20) as pool:
        answers = set(pool.map(claim, range(20)))

    assert len(answers) == 1
    assert [sale.get("key") for sale in read_record(shared.record)].count("raced") == 1


@pytest.mark.slow
def test_concurrent_sales_are_all_recorded_once(record: Path) -> None:
    """Sales that share an fsync still get one line and one number each."""
    with TerminalProcess(record) as terminal, ThreadPoolExecutor(16) as pool:
        client = TerminalClient(terminal.url)
        keys = [f"key-{number}" for number in range(160)]
        bought = list(pool.map(lambda key: client.claim(key, WINDOW, key), keys))
        recorded = read_record(record)

    assert sorted(slot.slot_id for slot in bought) == [sale["slot"] for sale in recorded]
    assert sorted(sale["key"] for sale in recorded) == sorted(keys)


@pytest.mark.slow
def test_a_killed_terminal_remembers(record: Path) -> None:
    """After SIGKILL and a restart on the same port: same slots, same keys, the next number."""
    with TerminalProcess(record) as terminal:
        client, url = TerminalClient(terminal.url), terminal.url
        first, second = client.claim("A", WINDOW, "a"), client.claim("B", WINDOW, None)
        cancelled = client.cancel(second.slot_id)
        terminal.kill()
        terminal.restart()

        assert terminal.url == url
        assert client.all_slots() == [first, cancelled]
        assert client.claim("A", WINDOW, "a") == first
        assert client.claim("C", WINDOW, None).slot_id == "SLOT-000003"


@pytest.mark.slow
def test_answers_given_before_a_kill_are_kept(record: Path) -> None:
    """Killed amid concurrent claims, it has every slot it had answered for."""
    with TerminalProcess(record) as terminal, ThreadPoolExecutor(8) as pool:
        client, answered = TerminalClient(terminal.url), threading.Semaphore(0)

        def claim_until_killed(worker: int) -> list[Slot]:
            bought: list[Slot] = []
            with contextlib.suppress(ConnectionError):
                while True:
                    bought.append(client.claim("K", WINDOW, f"{worker}-{len(bought)}"))
                    answered.release()
            return bought

        buyers = [pool.submit(claim_until_killed, worker) for worker in range(8)]
        for _ in range(100):
            assert answered.acquire(timeout=DEADLINE_SECONDS)
        terminal.kill()
        bought = {slot for buyer in buyers for slot in buyer.result(DEADLINE_SECONDS)}
        terminal.restart(new_port=True)

        assert bought <= set(TerminalClient(terminal.url).all_slots())
        assert len(bought) >= 100


@pytest.mark.slow
@pytest.mark.parametrize("torn", [b'{"event": "sold", "slot": "SLOT-0000', b"\x00\xff\n"])
def test_a_torn_last_line_is_cut_off(record: Path, torn: bytes) -> None:
    """What was being written when it died was never answered, so it is dropped."""
    with TerminalProcess(record) as terminal:
        bought = TerminalClient(terminal.url).claim("T", WINDOW, "t")
        terminal.kill()
        with record.open("ab") as file:
            file.write(torn)
        assert len(read_record(record)) == 1
        terminal.restart()
        client = TerminalClient(terminal.url)

        assert client.all_slots() == [bought]
        assert client.claim("T", WINDOW, None).slot_id == "SLOT-000002"
        assert len(read_record(record)) == 2


@pytest.mark.slow
def test_a_record_that_cannot_be_trusted_stops_the_start(
    record: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Damage before the last line, and a stranger's file, are refused in one line, unchanged."""
    for content in (b'garbage\n{"event": "sold"}\n', b'{"name": "stranger"}\n'):
        record.write_bytes(content)
        with pytest.raises(TerminalNotReady):
            TerminalProcess(record).start()
        assert record.read_bytes() == content
        assert capfd.readouterr().err.count("\n") == 1


def test_two_terminals_cannot_share_a_record(
    shared: TerminalProcess, capfd: pytest.CaptureFixture[str]
) -> None:
    """The second would sell the numbers that the first one sells."""
    with pytest.raises(TerminalNotReady):
        TerminalProcess(shared.record).start()

    assert "another terminal is using it" in capfd.readouterr().err


@pytest.mark.slow
def test_a_sale_that_cannot_be_recorded_is_not_answered(record: Path) -> None:
    """When the disk takes no more, nothing is confirmed, and a restart has what was."""
    with TerminalProcess(record) as terminal:
        client = TerminalClient(terminal.url)
        bought = client.claim("D", WINDOW, "kept")
        room = record.stat().st_size + 20
        resource.prlimit(terminal.pid, resource.RLIMIT_FSIZE, (room, room))

        for unanswerable in (lambda: client.claim("D", WINDOW, "lost"), client.all_slots):
            with pytest.raises(TerminalError) as refusal:
                unanswerable()
            assert refusal.value.status == 503
        terminal.restart()

        assert client.all_slots() == [bought]


def test_it_ends_when_its_stdin_closes(record: Path) -> None:
    """Also with a connection open it ends by itself, in order."""
    terminal = TerminalProcess(record)
    terminal.start()
    client = TerminalClient(terminal.url)
    client.claim("S", WINDOW, None)

    assert terminal.close_stdin() == 0
    with pytest.raises(TerminalUnreachable):
        client.claim("S", WINDOW, None)


def test_it_does_not_outlive_a_killed_parent(record: Path) -> None:
    """Both hold the stderr pipe; its end means that neither is left."""
    program = (
        "import sys, signal; from pathlib import Path\n"
        "from oncegate.demo.terminal_client import TerminalProcess\n"
        "terminal = TerminalProcess(Path(sys.argv[1])); terminal.start()\n"
        "sys.stdout.write('started\\n'); sys.stdout.flush(); signal.pause()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(record)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        assert select.select([parent.stdout], [], [], DEADLINE_SECONDS)[0]
        assert parent.stdout.readline() == b"started\n"
        parent.kill()

        assert parent.communicate(timeout=DEADLINE_SECONDS)[1] == b""


def test_it_ends_on_sigterm(record: Path) -> None:
    """SIGTERM is an orderly end, and stopping what has ended is allowed."""
    with TerminalProcess(record) as terminal:
        os.kill(terminal.pid, signal.SIGTERM)
        assert terminal.close_stdin() == 0
        terminal.stop()


@pytest.mark.slow
def test_it_ends_when_two_signals_come_at_once_while_it_is_busy(record: Path) -> None:
    """Ctrl-C reaches it from the keyboard and its parent adds a SIGTERM; once both could get lost."""

    def buy_until_it_is_gone(url: str) -> None:
        client = TerminalClient(url)
        with contextlib.suppress(ConnectionError):
            while True:
                client.claim("E", WINDOW, None)

    for _ in range(8):
        with TerminalProcess(record) as terminal, ThreadPoolExecutor(4) as pool:
            for _ in range(4):
                pool.submit(buy_until_it_is_gone, terminal.url)
            TerminalClient(terminal.url).claim("E", WINDOW, None)
            pidfd = os.pidfd_open(terminal.pid)
            os.kill(terminal.pid, signal.SIGINT)
            os.kill(terminal.pid, signal.SIGTERM)
            ended, _, _ = select.select([pidfd], [], [], DEADLINE_SECONDS)
            os.close(pidfd)
            terminal.kill()
        assert ended


def test_key_mode_ignore_sells_again_and_cannot_be_asked(record: Path) -> None:
    """A downstream of class "neither": the key changes nothing, and no lookup may say "nothing"."""
    with TerminalProcess(record, key_mode=KeyMode.IGNORE) as terminal:
        client = TerminalClient(terminal.url)
        bought = {client.claim("I", WINDOW, "ignored").slot_id for _ in range(2)}
        with pytest.raises(TerminalError) as refusal:
            client.owned_by("ignored")

    assert len(bought) == 2
    assert refusal.value.status == 400
    assert [sale["key"] for sale in read_record(record)] == ["ignored", "ignored"]


@pytest.mark.slow
def test_key_mode_lookup_only_sells_again_and_tells(record: Path) -> None:
    """A downstream of class "probe": each call sells, and the key finds all of it after a crash."""
    with TerminalProcess(record, key_mode=KeyMode.LOOKUP_ONLY) as terminal:
        client = TerminalClient(terminal.url)
        bought = [client.claim("P", WINDOW, "probed") for _ in range(2)]
        terminal.kill()
        terminal.restart()

        assert client.owned_by("probed") == bought
        assert bought[0].slot_id != bought[1].slot_id


def body(**changes: object) -> bytes:
    return json.dumps({"equipment": "E", "window": "W", **changes}).encode()


HOSTILE = {
    "not JSON": ("POST", "/slots", b"{", 400),
    "not UTF-8": ("POST", "/slots", b'{"equipment": "\xff"}', 400),
    "deeply nested": ("POST", "/slots", b"[" * 60_000, 400),
    "not an object": ("POST", "/slots", b"[]", 400),
    "empty body": ("POST", "/slots", b"", 400),
    "missing field": ("POST", "/slots", b'{"equipment": "E"}', 400),
    "unknown field": ("POST", "/slots", body(price=1), 400),
    "wrong type": ("POST", "/slots", body(window=7), 400),
    "empty field": ("POST", "/slots", body(window=""), 400),
    "long field": ("POST", "/slots", body(window="w" * 201), 400),
    "oversize body": ("POST", "/slots", b" " * (64 * 1024 + 1), 413),
    "bad method": ("PUT", "/slots", CLAIM, 405),
    "invented method": ("BUY", "/slots", CLAIM, 405),
    "bad method on a slot": ("POST", "/slots/SLOT-000001", CLAIM, 405),
    "unknown path": ("GET", "/elsewhere", None, 404),
    "unknown path, posted": ("POST", "/", CLAIM, 404),
    "unknown parameter": ("GET", "/slots?kye=K", None, 400),
    "two keys": ("GET", "/slots?key=a&key=b", None, 400),
    "bad escape": ("GET", "/slots?key=%ff", None, 400),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_request_is_refused(shared: TerminalProcess, name: str) -> None:
    """Each gets its 4xx and a reason, and buys nothing."""
    method, target, content, expected = HOSTILE[name]
    before = shared.record.stat().st_size

    status, answer = send(shared.url, method, target, content)

    assert status == expected
    assert isinstance(answer["error"], str)
    assert shared.record.stat().st_size == before


@pytest.mark.parametrize("key", ["", "with space", "k" * 256, "caf\xe9"])
def test_a_malformed_key_is_refused(shared: TerminalProcess, key: str) -> None:
    """A key that cannot be kept exactly is never taken for another, or for none."""
    assert send(shared.url, "POST", "/slots", CLAIM, key)[0] == 400


RAW = {
    "not HTTP": (b"\x16\x03\x01\x00\xa5\r\n\r\n", b"400"),
    "other version": (b"GET /slots HTTP/2.0\r\n\r\n", b"400"),
    "bad target": (b"GET http://[/slots HTTP/1.1\r\n\r\n", b"400"),
    "no length": (b"POST /slots HTTP/1.1\r\n\r\n", b"411"),
    "chunked": (b"POST /slots HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"411"),
    "negative length": (b"POST /slots HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"400"),
    "two lengths": (
        b"POST /slots HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"400",
    ),
    "many headers": (b"GET /slots HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", b"431"),
    "long header": (b"GET /slots HTTP/1.1\r\nA: " + b"b" * 70_000 + b"\r\n\r\n", b"431"),
    "long target": (b"GET /" + b"s" * 70_000 + b" HTTP/1.1\r\n\r\n", b"414"),
    "HEAD": (b"HEAD /slots HTTP/1.1\r\n\r\n", b"405"),
}


@pytest.mark.parametrize("name", RAW)
def test_a_malformed_message_is_refused(shared: TerminalProcess, name: str) -> None:
    """Also what is hardly HTTP gets a status line, and a 4xx."""
    request, expected = RAW[name]

    assert send_raw(shared.url, request).split(b" ")[1] == expected


def test_a_refusal_leaves_the_connection_usable(client: TerminalClient) -> None:
    """After a 4xx the next call goes over the same connection and is not misread."""
    with pytest.raises(TerminalError):
        client.claim("", WINDOW, None)

    assert client.claim("AFTER", WINDOW, None).equipment == "AFTER"


def test_livez_answers(shared: TerminalProcess) -> None:
    """The terminal says that it serves."""
    assert send(shared.url, "GET", "/livez") == (200, {"status": "ok"})


@contextlib.contextmanager
def peer(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """Serve one connection as told, at the address yielded, and see that no second one comes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(DEADLINE_SECONDS)

        def accept() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(DEADLINE_SECONDS)
                serve(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(DEADLINE_SECONDS)
        # Any further connection would wait in the queue of the listener.
        assert not select.select([listener], [], [], 0)[0]


def read_claim(connection: socket.socket) -> bytes:
    received = b""
    while not received.endswith(b"}"):
        received += connection.recv(65536)
    return received


def test_a_claim_whose_answer_is_lost_is_not_sent_again() -> None:
    """On a reused connection that closes under the claim, the client raises and sends no more."""
    answer = json.dumps(Slot("SLOT-000001", "E", WINDOW, "k").to_json()).encode()
    claims: list[bytes] = []

    def answer_first_only(connection: socket.socket) -> None:
        claims.append(read_claim(connection))
        head = b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n" % len(answer)
        connection.sendall(head + answer)
        claims.append(read_claim(connection))

    with peer(answer_first_only) as url:
        client = TerminalClient(url)
        assert client.claim("E", WINDOW, "k").slot_id == "SLOT-000001"
        with pytest.raises(TerminalAnswerLost):
            client.claim("E", WINDOW, "k")

    assert len(claims) == 2


def test_a_torn_answer_is_a_lost_answer() -> None:
    """Half an answer says nothing about the sale."""

    def answer_half(connection: socket.socket) -> None:
        read_claim(connection)
        connection.sendall(b'HTTP/1.1 201 Created\r\nContent-Length: 99\r\n\r\n{"slot"')

    with peer(answer_half) as url, pytest.raises(TerminalAnswerLost):
        TerminalClient(url).claim("E", WINDOW, "k")


def test_a_silent_terminal_is_a_lost_answer() -> None:
    """The time limit ends the wait, not the doubt."""
    done = threading.Event()

    def stay_silent(_: socket.socket) -> None:
        done.wait(DEADLINE_SECONDS)

    with peer(stay_silent) as url:
        with pytest.raises(TerminalAnswerLost):
            TerminalClient(url, timeout_seconds=0.05).claim("E", WINDOW, "k")
        done.set()


@pytest.mark.slow
def test_a_forked_process_does_not_use_its_parents_connection(client: TerminalClient) -> None:
    """Two processes on one connection would read each other's answers."""
    client.claim("FORK", WINDOW, "parent")
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(BaseException):
            status = 0 if client.claim("FORK", WINDOW, "child").key == "child" else 2
        os._exit(status)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert client.claim("FORK", WINDOW, "parent").key == "parent"
