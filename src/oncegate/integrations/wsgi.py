"""`Idempotency-Key` for any WSGI application, such as Flask's and Django's.

As `integrations.asgi`, for threads: the whole response is gathered, recorded, and only then sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256
from http import HTTPStatus
from io import BytesIO
from sys import maxsize
from typing import Any, TypeAlias

from oncegate.errors import OncegateError
from oncegate.gate.once import Once
from oncegate.integrations.middleware import Middleware, Passage
from oncegate.integrations.policy import (
    caller_or_problem,
    event_of,
    live_exchange,
)
from oncegate.integrations.problems import Problem, ProblemKind
from oncegate.integrations.replies import Headers, Reply, ResponseBuffer, can_have_body

Environ: TypeAlias = dict[str, Any]
StartResponse: TypeAlias = Callable[..., Any]
Application: TypeAlias = Callable[[Environ, StartResponse], Iterable[bytes]]

READ_BYTES: int = 64 * 1024


def caller_by_authorization(environ: Environ) -> str | None:
    """Tells callers apart by their Authorization header, kept as a hash; None where there is none in it."""
    found = environ.get("HTTP_AUTHORIZATION")
    return sha256(found.encode("latin-1")).hexdigest()[:40] if found and found.strip() else None


class IdempotencyKey(Middleware[Application, Environ]):
    """Middleware: each request with a key is carried out once, and its response is sent again.

    Takes the same settings as `oncegate.asgi.IdempotencyKey`; `caller` and `applies` get the environ, and
    the application finds "oncegate.key" and, with `uses_once`, "oncegate.once" in it.
    """

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Serves a request."""
        if environ["REQUEST_METHOD"] not in self._policy.methods or not self._applies(environ):
            return self._app(environ, start_response)
        header = environ.get("HTTP_IDEMPOTENCY_KEY")
        key = self._policy.key_of([] if header is None else [header.encode("latin-1")])
        if key is None or (self._observes and self._is_refused(key, environ)):
            return self._app(environ, start_response)
        answer = key if isinstance(key, Problem) else self._guard(key, environ)
        start_response(_status_line(answer.status), _complete_headers(answer))
        return [answer.body]

    def _guard(self, key: str, environ: Environ) -> Reply | Problem:
        caller = caller_or_problem(self._caller(environ))
        if isinstance(caller, Problem):
            return caller
        body = _read_body(environ, maxsize if self._observes else self._policy.body_bytes_max)
        if body is None:
            return Problem(ProblemKind.MALFORMED, "the body is not as long as was announced")
        if body.is_too_large:
            return self._policy.too_large()
        return self._admit(caller, _event(key, environ, body.body), environ, body.body)

    def _admit(self, caller: str, event: dict[str, str], environ: Environ, body: bytes) -> Reply | Problem:
        passage = Passage((environ, body), is_observed=self._observes)
        with passage:
            passage.conclude(self._gate.admit_sync(self._surface, event, tenant=caller))
        return passage.answer

    def _handler(self, uses_once: bool) -> Callable[..., Reply]:
        def run(event: Any, idempotency_key: str = "") -> Reply:
            return self._run({"oncegate.key": idempotency_key})

        def run_with_once(event: Any, once: Once) -> Reply:
            return self._run({"oncegate.key": once.key, "oncegate.once": once})

        return run_with_once if uses_once else run

    def _run(self, additions: dict[str, Any]) -> Reply:
        exchange = live_exchange()
        environ, body = exchange.request
        shown = {
            **environ,
            **additions,
            "wsgi.input": BytesIO(body),
            "CONTENT_LENGTH": str(len(body)),
        }
        try:
            limit = maxsize if exchange.is_observed else self._policy.response_bytes_max
            reply = _recorded(self._app, shown, limit)
        except Exception as error:
            if "oncegate.once" in additions and isinstance(error, OncegateError):
                raise  # what the gate itself said through `once` is for the gate to judge
            raise self._policy.failure(None, error) from error
        return self._policy.conclude(exchange, reply)


def _recorded(app: Application, environ: Environ, bytes_max: int) -> Reply:
    """Calls an application and gathers its whole response, its closing included."""
    gathering, started = ResponseBuffer(bytes_max), dict[str, Any]()

    def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        started.update(status=int(status.split(" ", 1)[0]), headers=tuple(headers))
        return gathering.add

    parts = app(environ, start_response)
    try:
        for part in parts:
            gathering.add(part)
    finally:
        close = getattr(parts, "close", None)
        if close is not None:
            close()
    return Reply(started["status"], started["headers"], gathering.body, gathering.is_too_large)


def _event(key: str, environ: Environ, body: bytes) -> dict[str, str]:
    path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    query, kind = environ.get("QUERY_STRING", ""), environ.get("CONTENT_TYPE") or ""
    return event_of(key, (environ["REQUEST_METHOD"], path, query), kind, body)


def _read_body(environ: Environ, bytes_max: int) -> ResponseBuffer | None:
    """Reads as much as was announced, or to the end where the server says that there is one.

    None if less came, or if it cannot be told how much should: a part of a request must not run.
    """
    gathering, stream = ResponseBuffer(bytes_max), environ["wsgi.input"]
    announced = environ.get("CONTENT_LENGTH") or None
    if announced is None and not environ.get("wsgi.input_terminated"):
        return None if environ.get("HTTP_TRANSFER_ENCODING") else gathering
    if announced is not None and not (announced.isascii() and announced.isdigit()):
        return None
    left = None if announced is None else int(announced)
    while left is None or left > 0:
        part = stream.read(READ_BYTES if left is None else min(READ_BYTES, left))
        gathering.add(part)
        if gathering.is_too_large:
            break
        if not part:
            return gathering if left is None else None
        left = None if left is None else left - len(part)
    return gathering


def _status_line(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Unknown"


def _complete_headers(answer: Reply | Problem) -> list[tuple[str, str]]:
    headers: Headers = answer.headers
    is_told = any(name.lower() == "content-length" for name, _ in headers)
    if is_told or not can_have_body(answer.status):
        return list(headers)
    return [*headers, ("Content-Length", str(len(answer.body)))]
