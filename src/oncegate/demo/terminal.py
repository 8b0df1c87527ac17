"""A simulated container terminal that sells slots over HTTP, as a process of its own.

    python -m oncegate.demo.terminal --record FILE [--port 0]
                                      [--key-mode honour|ignore|lookup-only]

Who calls it: `terminal_client.TerminalProcess`, for the demo and the crash tests. It is the outside
world of the story, so its record is the evidence against which the gate is judged.

What it must never do: give an answer that a SIGKILL could make it forget (every answer, refusals
and lookups included, waits until all it rests on is fsynced); outlive its parent (it ends when its
stdin closes); import the gate it is a witness for.

    POST   /slots          {"equipment", "window"}, header Idempotency-Key    201 sold, 200 replayed
    GET    /slots          every slot; ?key=K: the slots that key owns         200
    DELETE /slots/SLOT-…   cancel, any number of times                         200
    GET    /livez                                                              200
"""

from __future__ import annotations

import argparse
import http.server
import json
import os
import re
import signal
import socketserver
import sys
import threading
import urllib.parse
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, NoReturn

from oncegate.demo.slot_book import KeyMode, RecordUnusable, SlotRecord, SlotRefused, Terminal

BODY_BYTES_MAX = 64 * 1024
# An oversize body is thrown away up to here, so that its sender sees the 413 and not a reset.
DISCARD_BYTES_MAX = 1024 * 1024
FIELD_CHARACTERS_MAX = 200
# Keep-alive connections each hold a thread; the next one waits in the listen queue.
CONNECTIONS_MAX = 256
# Between two reads, and so also how long a keep-alive connection may idle.
SOCKET_TIMEOUT_SECONDS = 30.0

_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_SLOT_PATH = re.compile(r"/slots/(SLOT-[0-9]{6,12})")
_LENGTH = re.compile(r"[0-9]{1,18}")
_FIELDS = ("equipment", "window")
_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class TerminalReply:
    """One HTTP answer."""

    status: HTTPStatus
    body: dict[str, Any]


class TerminalServer(socketserver.ThreadingTCPServer):
    """One thread for each connection, at most `CONNECTIONS_MAX` at a time."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = CONNECTIONS_MAX

    def __init__(self, port: int, terminal: Terminal) -> None:
        super().__init__(("127.0.0.1", port), RequestHandler)
        self.terminal = terminal
        self._permits = threading.BoundedSemaphore(CONNECTIONS_MAX)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a connection's thread once there is room for it."""
        self._permits.acquire()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._permits.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay silent about a caller that hung up; report anything else."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class RequestHandler(http.server.BaseHTTPRequestHandler):
    """HTTP on one connection: framing and validation; what a request means is the terminal's."""

    server: TerminalServer
    protocol_version = "HTTP/1.1"
    # Also a request line that cannot be read is answered with a status line.
    default_request_version = "HTTP/1.0"
    timeout = SOCKET_TIMEOUT_SECONDS
    disable_nagle_algorithm = True
    wbufsize = -1

    def serve(self) -> None:
        """Answer one request, whatever its method."""
        try:
            self._write_answer(self._answer())
        except SlotRefused as refusal:
            self._write_refusal(refusal)
        except RecordUnusable as error:
            answer = TerminalReply(HTTPStatus.SERVICE_UNAVAILABLE, {"error": f"record: {error}"})
            self._write_answer(answer)

    def _answer(self) -> TerminalReply:
        body = self._read_body()
        path, key = _parse_target(self.path)
        slot_path = _SLOT_PATH.fullmatch(path)
        terminal = self.server.terminal
        match self.command, path:
            case "POST", "/slots":
                return self._sell(body)
            case "GET", "/slots":
                slots = terminal.all_slots() if key is None else terminal.owned_by(key)
                return TerminalReply(HTTPStatus.OK, {"slots": [slot.to_json() for slot in slots]})
            case "DELETE", _ if slot_path:
                return TerminalReply(HTTPStatus.OK, terminal.cancel(slot_path[1]).to_json())
            case "GET", "/livez":
                terminal.check()
                return TerminalReply(HTTPStatus.OK, {"status": "ok"})
        raise _no_route(self.command, path)

    def _sell(self, body: bytes) -> TerminalReply:
        equipment, window = _parse_claim(body)
        slot, replayed = self.server.terminal.sell(equipment, window, self._idempotency_key())
        status = HTTPStatus.OK if replayed else HTTPStatus.CREATED
        return TerminalReply(status, {**slot.to_json(), "replayed": replayed})

    def _idempotency_key(self) -> str | None:
        values = self.headers.get_all("Idempotency-Key")
        if values is None:
            return None
        if len(values) > 1 or not _KEY.fullmatch(values[0]):
            raise SlotRefused(
                HTTPStatus.BAD_REQUEST, "Idempotency-Key must be one value of 1-255 visible ASCII"
            )
        return str(values[0])

    def _read_body(self) -> bytes:
        """Read the whole body, so that the next request on the connection starts after it."""
        length = self._body_bytes()
        if length > BODY_BYTES_MAX:
            self._discard(length)
            raise SlotRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"body over {BODY_BYTES_MAX} bytes")
        body = self.rfile.read(length)
        if len(body) < length:
            self.close_connection = True
            raise SlotRefused(HTTPStatus.BAD_REQUEST, "body shorter than its Content-Length")
        return body

    def _body_bytes(self) -> int:
        """Return the announced length; a doubtful one ends the connection: its framing is lost."""
        lengths = self.headers.get_all("Content-Length", [])
        if "Transfer-Encoding" in self.headers or (not lengths and self.command == "POST"):
            self.close_connection = True
            raise SlotRefused(HTTPStatus.LENGTH_REQUIRED, "a Content-Length is required")
        if len(lengths) > 1 or not all(_LENGTH.fullmatch(length) for length in lengths):
            self.close_connection = True
            raise SlotRefused(HTTPStatus.BAD_REQUEST, "Content-Length is malformed")
        return int(lengths[0]) if lengths else 0

    def _discard(self, length: int) -> None:
        self.close_connection = True
        left = min(length, DISCARD_BYTES_MAX)
        while left > 0 and (piece := self.rfile.read(min(left, BODY_BYTES_MAX))):
            left -= len(piece)

    def _write_refusal(self, refusal: SlotRefused) -> None:
        answer = TerminalReply(refusal.status, {"error": str(refusal)})
        self._write_answer(answer, allow=refusal.allow)

    def _write_answer(self, answer: TerminalReply, *, allow: str | None = None) -> None:
        content = json.dumps(answer.body).encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if allow is not None:
            self.send_header("Allow", allow)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
        self.wfile.flush()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what the parser refuses; an unknown method or version is no fault of ours: 4xx."""
        ours = {501: HTTPStatus.METHOD_NOT_ALLOWED, 505: HTTPStatus.BAD_REQUEST}
        self.close_connection = True
        status = ours.get(code) or HTTPStatus(code)
        self._write_refusal(SlotRefused(status, message or explain or status.phrase))

    def handle_expect_100(self) -> bool:
        """Tell a waiting caller to go on, at once although answers are buffered."""
        super().handle_expect_100()
        self.wfile.flush()
        return True

    def log_message(self, *_: Any, **__: Any) -> None:
        """Keep no access log: the record is the only account."""


for _method in ("GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS"):
    setattr(RequestHandler, f"do_{_method}", RequestHandler.serve)


def _parse_target(target: str) -> tuple[str, str | None]:
    """Return the path and the `key` parameter; any other parameter is refused, never ignored."""
    try:
        parts = urllib.parse.urlsplit(target)
        parameters = urllib.parse.parse_qsl(
            parts.query, keep_blank_values=True, errors="strict", max_num_fields=8
        )
    except ValueError:
        raise SlotRefused(HTTPStatus.BAD_REQUEST, "the request target is malformed") from None
    if not parameters:
        return parts.path, None
    if len(parameters) > 1 or parameters[0][0] != "key" or parts.path != "/slots":
        raise SlotRefused(HTTPStatus.BAD_REQUEST, "the only parameter is key, once, on /slots")
    return parts.path, parameters[0][1]


def _parse_claim(body: bytes) -> tuple[str, str]:
    try:
        claim = json.loads(body)
    except (ValueError, RecursionError):
        raise SlotRefused(HTTPStatus.BAD_REQUEST, "the body is not JSON") from None
    if not isinstance(claim, dict) or set(claim) != set(_FIELDS):
        raise SlotRefused(HTTPStatus.BAD_REQUEST, "the body takes exactly equipment and window")
    for field in _FIELDS:
        value = claim[field]
        if not isinstance(value, str) or not 0 < len(value) <= FIELD_CHARACTERS_MAX:
            raise SlotRefused(
                HTTPStatus.BAD_REQUEST, f"{field} must be 1-{FIELD_CHARACTERS_MAX} characters"
            )
    return claim["equipment"], claim["window"]


def _no_route(method: str, path: str) -> SlotRefused:
    allowed = {"/slots": "GET, POST", "/livez": "GET"}.get(path)
    if _SLOT_PATH.fullmatch(path):
        allowed = "DELETE"
    if allowed is None:
        return SlotRefused(HTTPStatus.NOT_FOUND, f"nothing at {path}")
    message = f"{method} is not possible here"
    return SlotRefused(HTTPStatus.METHOD_NOT_ALLOWED, message, allow=allowed)


def _exit_on_signal(*_: object) -> NoReturn:
    # Ctrl-C reaches the whole group and the parent adds its SIGTERM: the first one is enough.
    for number in _ENDING_SIGNALS:
        signal.signal(number, _do_nothing)
    sys.exit(0)


def _do_nothing(*_: object) -> None:
    """Stand in for SIG_IGN, of which Python complains when the signal is already on its way."""


def _serve_until_stdin_closes(server: TerminalServer) -> None:
    """Serve on daemon threads: what was answered is on disk, so they may be cut off anywhere."""
    # Only this thread takes signals: two at once can both land on another one, and the read goes on.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING_SIGNALS)
    threading.Thread(target=server.serve_forever, name="accept", daemon=True).start()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING_SIGNALS)
    ready = {"port": server.server_address[1], "pid": os.getpid()}
    sys.stdout.write(json.dumps(ready) + "\n")
    sys.stdout.flush()
    while os.read(0, 4096):
        pass


def main(arguments: list[str] | None = None) -> int:
    """Run a terminal until its stdin closes or it gets SIGTERM; 2 if it cannot start."""
    parser = argparse.ArgumentParser(prog="python -m oncegate.demo.terminal")
    parser.add_argument("--record", type=Path, required=True, help="file of sales, kept over runs")
    parser.add_argument("--port", type=int, default=0, help="0 takes any free port")
    parser.add_argument("--key-mode", type=KeyMode, default=KeyMode.HONOUR, choices=list(KeyMode))
    options = parser.parse_args(arguments)
    for number in _ENDING_SIGNALS:
        signal.signal(number, _exit_on_signal)
    try:
        terminal = Terminal(SlotRecord(options.record), options.key_mode)
        server = TerminalServer(options.port, terminal)
    except (RecordUnusable, OSError, OverflowError) as error:
        where = f"{options.record}, port {options.port}"
        sys.stderr.write(f"terminal: cannot start on {where}: {error}\n")
        return 2
    _serve_until_stdin_closes(server)
    return 0


if __name__ == "__main__":
    sys.exit(main())
