"""What an error says about the other side: whether it was reached at all, and whether it is well.

Errors of the usual clients are recognised by the names of their classes; none of them is imported. An error
that another one was raised from speaks for both. One that was merely being handled meanwhile does not: code
that falls back to another way after a refused connection has used that other way.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from enum import Enum
from traceback import walk_tb
from typing import Any, Final

RETRY_AFTER_SECONDS_MAX: Final = 3600.0
CHAIN_MAX: Final = 32  # errors of one chain that are looked at
TOO_MANY: Final = 429
_UNWELL_STATUSES: Final = frozenset({TOO_MANY, 502, 503, 504})
_UNWELL_CODES: Final = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"})  # gRPC

# Raised before the first byte of a request was sent.
_NOT_SENT: Final = frozenset(
    {
        ("httpx", "ConnectError"),
        ("httpx", "ConnectTimeout"),
        ("httpx", "PoolTimeout"),
        ("httpx", "UnsupportedProtocol"),
        ("httpcore", "ConnectError"),
        ("httpcore", "ConnectTimeout"),
        ("httpcore", "PoolTimeout"),
        ("requests", "ConnectTimeout"),
        ("urllib3", "NewConnectionError"),
        ("urllib3", "NameResolutionError"),
        ("urllib3", "ConnectTimeoutError"),
        ("aiohttp", "ClientConnectorError"),
        ("aiohttp", "ConnectionTimeoutError"),
        ("botocore", "EndpointConnectionError"),
        ("botocore", "ConnectTimeoutError"),
    }
)
# Raised while a request was under way: it may have been read.
_MAYBE_SENT: Final = frozenset(
    {
        ("httpx", "TransportError"),
        ("httpcore", "TimeoutException"),
        ("httpcore", "NetworkError"),
        ("httpcore", "ProtocolError"),
        ("requests", "Timeout"),
        ("requests", "ChunkedEncodingError"),
        ("urllib3", "ReadTimeoutError"),
        ("urllib3", "ProtocolError"),
        ("aiohttp", "ServerConnectionError"),
        ("aiohttp", "ClientOSError"),
        ("aiohttp", "ClientPayloadError"),
        ("botocore", "ReadTimeoutError"),
        ("botocore", "ConnectionClosedError"),
        ("http", "RemoteDisconnected"),
        ("http", "IncompleteRead"),
    }
)
_LOST: Final = (ConnectionError, TimeoutError)
# Where calls of a client keep what they sent before: an error that ends a redirect may carry none of it.
_SENT_BEFORE: Final = {
    "requests": "hist",
    "urllib3": "history",
    "httpx": "history",
    "aiohttp": "history",
    "urllib": "visited",
}
# Where those that repeat a call count it: the last error of theirs may carry nothing of those before.
_COUNTS: Final = {
    "botocore": "attempts", "tenacity": "retry_state", "backoff": "tries", "retrying": "attempt_number",
}  # fmt: skip
_REPEATING: Final = frozenset(_COUNTS) - {"botocore"}  # they know nothing of requests


class Reach(Enum):
    """What became of a request, as far as its error tells."""

    NOT_REACHED = "not reached"  # no byte of it was sent
    UNWELL = "unwell"  # no answer, or one that says "not now"
    UNTOLD = "untold"  # the error says nothing about the other side


def reach_of(error: BaseException) -> Reach:
    """What an error tells of the other side; where one part says it was sent, it counts as sent."""
    is_unsent = False
    is_unwell = False
    for found, is_cause in _chain(error):
        if _is_unsent(found):
            is_unsent = is_unsent or is_cause
        elif _is_lost(found) or _says_not_now(found):
            is_unwell = True
    if is_unwell or (is_unsent and _is_second(error)):
        return Reach.UNWELL
    return Reach.NOT_REACHED if is_unsent else Reach.UNTOLD


def was_turned_away(error: BaseException) -> bool:
    """Whether the other side answered 429 to the only request: it has done nothing yet."""
    found = [one for one, is_cause in _chain(error) if is_cause]
    return any(status_of(one) == TOO_MANY for one in found) and not _is_second(error)


def _is_second(error: BaseException) -> bool:
    """Whether a client sent a request before the one that failed: it repeats, or followed a redirect."""
    return any(_was_repeated(found) for found, _ in _chain(error, is_whole=True))


def _was_repeated(error: BaseException) -> bool:
    """Whether an error is of a second request: the first may have been carried out."""
    if any(
        kind.__name__ == "RetryError" for kind in type(error).__mro__
    ):  # tenacity, google.api_core, requests
        return True
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore
        told = response.get("ResponseMetadata", {})
        return bool(told.get("RetryAttempts")) if isinstance(told, dict) else True
    retries = getattr(getattr(response, "raw", response), "retries", None)  # requests, urllib3
    holders = (error, response, retries, getattr(error, "retries", None))
    if any(_has_sent(getattr(holder, "history", None)) for holder in holders):
        return True
    calls = tuple(_calls_of_clients(error))
    if any(_shows_earlier(*call) for call in calls):
        return True
    return all(package in _REPEATING for package, _ in calls) and _is_of_reading(error)


def _has_sent(history: object) -> bool:
    """Whether one of the requests before was sent; connections that were refused were not."""
    if not isinstance(history, (list, tuple, dict)):
        return False
    errors = (getattr(one, "error", None) for one in history)
    return not all(isinstance(one, BaseException) and _is_unsent(one) for one in errors)


def _calls_of_clients(error: BaseException) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The calls of clients that an error came through: the package and its variables."""
    for frame, _ in walk_tb(error.__traceback__):
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if (package in _SENT_BEFORE or package in _COUNTS) and (known := frame.f_locals):
            yield package, known


def _shows_earlier(package: str, known: Mapping[str, Any]) -> bool:
    if package in _SENT_BEFORE:
        return _has_sent(known.get(_SENT_BEFORE[package]))
    count = known.get(_COUNTS[package])
    count = getattr(count, "attempt_number", count)
    return isinstance(count, int) and count > 1


def _is_of_reading(error: BaseException) -> bool:
    """Whether the request that failed is a GET or HEAD, as one that follows a redirect of a POST is."""
    try:
        request = getattr(error, "request", None)
    except RuntimeError:  # httpx, where the error has none
        return False
    return getattr(request, "method", None) in ("GET", "HEAD")


def observed(error: BaseException) -> str:
    """What was seen of the other side, for people: the status of its answer, or that there was none."""
    found = [one for one, is_cause in _chain(error) if is_cause]
    statuses = [status_of(one) for one in found if getattr(one, "was_answered", True)]
    status = next((one for one in statuses if one is not None), None)
    if status is not None:
        return f"HTTP {status}"
    return {Reach.NOT_REACHED: "no connection", Reach.UNWELL: "no answer"}.get(reach_of(error), "")


def status_of(error: BaseException) -> int | None:
    """The HTTP status that an error of a client carries."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore
        told = response.get("ResponseMetadata", {})
        return _status(told.get("HTTPStatusCode") if isinstance(told, dict) else None)
    for holder, name in ((response, "status_code"), (response, "status"), (error, "status")):
        if (status := _status(getattr(holder, name, None))) is not None:
            return status
    return _status(getattr(error, "code", None))  # urllib


def _status(value: object) -> int | None:
    return value if type(value) is int and 100 <= value <= 599 else None


def asked_wait(error: BaseException) -> float:
    """For how many seconds the other side asked to be left alone; 0 where it did not, or not in seconds."""
    response = getattr(error, "response", None)
    headers = getattr(error if response is None else response, "headers", None)
    get = getattr(headers, "get", None)
    if get is None:
        return 0.0
    told = str(get("retry-after") or get("Retry-After") or "")
    seconds = float(told) if told.isascii() and told.isdigit() and len(told) < 9 else 0.0
    return min(seconds, RETRY_AFTER_SECONDS_MAX)


def _chain(error: BaseException, *, is_whole: bool = False) -> Iterator[tuple[BaseException, bool]]:
    """The error with all it was made of; whether it is a cause or was only being handled meanwhile."""
    waiting: list[tuple[Any, bool]] = [(error, True)]
    seen: set[int] = set()
    while waiting and len(seen) < CHAIN_MAX:
        found, is_cause = waiting.pop()
        if not isinstance(found, BaseException) or id(found) in seen:
            continue
        seen.add(id(found))
        yield found, is_cause
        parts = (found.__cause__, getattr(found, "reason", None), *found.args[:2])
        if all(found.__context__ is not part for part in parts):
            waiting.append((found.__context__, False))
        if is_whole or not _is_unsent(
            found
        ):  # what a client that did not connect met below is part of that
            waiting += [(part, is_cause) for part in parts]


def _is_unsent(error: BaseException) -> bool:
    if isinstance(error, (ConnectionRefusedError, socket.gaierror)):
        return True
    if getattr(error, "was_reached", None) is False:  # ours, of the service's own client
        return True
    is_plain = type(error) is OSError and error.errno is None
    if is_plain and str(error).startswith("Multiple exceptions: [Errno"):
        return True  # asyncio, after it tried every address
    return _is_named(error, _NOT_SENT)


def _is_lost(error: BaseException) -> bool:
    return isinstance(error, _LOST) or _is_named(error, _MAYBE_SENT)


def _says_not_now(error: BaseException) -> bool:
    if status_of(error) in _UNWELL_STATUSES:
        return True
    code = getattr(error, "code", None)
    if not callable(code) or not _is_from(error, "grpc"):
        return False
    return getattr(code(), "name", None) in _UNWELL_CODES


def _is_named(error: BaseException, names: frozenset[tuple[str, str]]) -> bool:
    return any((kind.__module__.partition(".")[0], kind.__name__) in names for kind in type(error).__mro__)


def _is_from(error: BaseException, package: str) -> bool:
    return any(kind.__module__.partition(".")[0] == package for kind in type(error).__mro__)
