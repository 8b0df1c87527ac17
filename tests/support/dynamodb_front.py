"""A server before DynamoDB Local that fails as told: what the emulator itself never does.

It passes requests on, and their answers back. `do` names what happens to the next requests of an operation:
throttled, answered with an error, carried out without an answer, or carried out twice with the second
answer. Each counts in `happened`, so that a test can show that its fault was there.
"""

from __future__ import annotations

import json
import socket
import threading
import zlib
from collections import Counter, deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


class FrontFault(Enum):
    """What becomes of a request."""

    THROTTLE = "throttled"
    FAIL = "answered with an internal error, and not carried out"
    LOSE_REPLY = "carried out, and the connection is closed without an answer"
    TWICE = "carried out twice, and answered with the second answer"
    REFUSE = "refused: the credentials are not known"
    THROTTLE_SOME = "every second statement of a batch is throttled, the others are carried out"


class DynamoFront:
    """Listens on a free port of the loopback interface."""

    def __init__(self, server: str) -> None:
        parts = urlsplit(server)
        self.server = (parts.hostname or "127.0.0.1", parts.port or 80)
        self.happened: Counter[FrontFault] = Counter()
        self.seen: Counter[str] = Counter()
        self.plans: dict[str, deque[FrontFault]] = {}
        self.before: Callable[[str], None] = lambda operation: None
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        serve = partial(self._http.serve_forever, poll_interval=0.02)
        threading.Thread(target=serve, name="dynamodb-front", daemon=True).start()

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return f"http://127.0.0.1:{self._http.server_port}"

    def do(self, operation: str, *faults: FrontFault) -> None:
        """What happens to the next requests of an operation, such as PutItem."""
        self.plans.setdefault(operation, deque()).extend(faults)

    def fault(self, operation: str) -> FrontFault | None:
        """What happens to a request now."""
        plan = self.plans.get(operation)
        if not plan:
            return None
        fault = plan.popleft()
        self.happened[fault] += 1
        return fault

    def pass_on(self, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        """Carries out a request at the emulator."""
        connection = HTTPConnection(*self.server, timeout=30)
        try:
            connection.request("POST", "/", body, headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def __enter__(self) -> DynamoFront:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()


_PASSED = {"authorization", "content-type", "x-amz-date", "x-amz-target", "x-amz-security-token"}
_ERRORS = {
    FrontFault.THROTTLE: (400, "ProvisionedThroughputExceededException"),
    FrontFault.FAIL: (500, "InternalServerError"),
    FrontFault.REFUSE: (400, "UnrecognizedClientException"),
}


def _handler(front: DynamoFront) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 65_536  # headers and body in one packet

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            operation = self.headers["x-amz-target"].partition(".")[2]
            front.seen[operation] += 1
            front.before(operation)
            fault = front.fault(operation)
            if fault in _ERRORS:
                status, code = _ERRORS[fault]
                self._answer(status, {}, json.dumps({"__type": f"x#{code}", "message": "as told"}).encode())
                return
            headers = {name: value for name, value in self.headers.items() if name.lower() in _PASSED}
            if fault is FrontFault.THROTTLE_SOME:
                self._throttle_some(headers, body)
                return
            answer = front.pass_on(headers, body)
            if fault is FrontFault.TWICE:
                answer = front.pass_on(headers, body)
            if fault is FrontFault.LOSE_REPLY:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self._answer(*answer)

        def _throttle_some(self, headers: dict[str, str], body: bytes) -> None:
            wanted = json.loads(body)
            statements = wanted["Statements"]
            wanted["Statements"] = statements[::2]
            inner = json.dumps(wanted).encode()
            status, _, said = front.pass_on(headers, inner)
            done = iter(json.loads(said)["Responses"])
            refused: dict[str, Any] = {"Error": {"Code": "ThrottlingError", "Message": "as told"}}
            answers = [refused if place % 2 else next(done) for place in range(len(statements))]
            self._answer(status, {}, json.dumps({"Responses": answers}).encode())

        def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/x-amz-json-1.0")
            self.send_header("x-amz-crc32", str(zlib.crc32(body)))
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class names it so
            """Says nothing."""

    return Handler
