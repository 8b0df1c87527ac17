"""Problem documents (RFC 9457): one for every way in which a request is refused.

Used by the `Idempotency-Key` middleware and by the service. A document must never quote the request's
content, a secret, or anything of another tenant. `docs/problems.md` has a page for every name here.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

import msgspec

TYPE_PREFIX: Final = "urn:oncegate:problem:"
MEDIA_TYPE: Final = "application/problem+json"


class ProblemKind(Enum):
    """What went wrong, with its HTTP status and a title for people."""

    KEY_MISSING = ("key-missing", 400, "The Idempotency-Key header is missing")
    KEY_MALFORMED = ("key-malformed", 400, "The Idempotency-Key header cannot be read")
    CALLER_UNKNOWN = ("caller-unknown", 401, "The caller could not be told")
    CONFLICT = ("conflict", 422, "The key was used for another request")
    BUSY = ("busy", 409, "A request with this key is still running")
    UNRESOLVED = ("unresolved", 409, "An earlier request with this key waits for a person")
    RECORDED_FAILURE = ("recorded-failure", 422, "The recorded outcome of this key is a failure")
    BODY_TOO_LARGE = ("body-too-large", 413, "The body is larger than the limit")
    RESPONSE_TOO_LARGE = ("response-too-large", 500, "The response is larger than can be kept")
    MALFORMED = ("malformed", 400, "The request cannot be read")
    NOT_AUTHENTIC = ("not-authentic", 401, "The request does not show that it is its sender's")
    FORBIDDEN = ("forbidden", 403, "The caller may not do this")
    NOT_FOUND = ("not-found", 404, "There is nothing here")
    METHOD_NOT_ALLOWED = ("method-not-allowed", 405, "This cannot be done with this method")
    CURSOR_REFUSED = ("cursor-refused", 400, "The cursor was not given out here")
    CURSOR_EXPIRED = ("cursor-expired", 410, "The cursor's place is not there any more")
    ENCODING_UNSUPPORTED = ("encoding-unsupported", 415, "Compressed bodies are not taken")
    MEDIA_TYPE_UNSUPPORTED = ("media-type-unsupported", 415, "Only JSON is taken")
    TIMED_OUT = ("timed-out", 408, "The request did not arrive in time")
    HEADERS_TOO_LARGE = ("headers-too-large", 431, "The headers are larger than the limit")
    MISDIRECTED = ("misdirected", 421, "The request is addressed to somebody else")
    TOO_MANY = ("too-many", 429, "Too many requests at once from one caller")
    OVERLOADED = ("overloaded", 503, "The service has too much to do")
    INTERNAL = ("internal", 500, "Something went wrong here")
    HANDLER_FAILED = ("handler-failed", 503, "The handler could not carry the event out now")
    PAUSED = ("paused", 503, "Events of this kind are not taken now")
    STORE_UNAVAILABLE = ("store-unavailable", 503, "The ledger cannot be reached")

    def __init__(self, slug: str, status: int, title: str) -> None:
        self.slug = slug
        self.status = status
        self.title = title

    @property
    def type(self) -> str:
        """The problem's `type`, the same for ever."""
        return TYPE_PREFIX + self.slug


class Problem(msgspec.Struct, frozen=True):
    """One refusal, ready to be sent."""

    kind: ProblemKind
    detail: str
    retry_after_seconds: float | None = None
    why: dict[str, Any] | None = None  # reason, first_seen, skew_ms: members beside the standard ones
    more_headers: tuple[tuple[str, str], ...] = ()  # what its status calls for: Allow, WWW-Authenticate

    @property
    def status(self) -> int:
        """The status to answer with."""
        return self.kind.status

    @property
    def body(self) -> bytes:
        """The document."""
        document: dict[str, Any] = {
            "type": self.kind.type,
            "title": self.kind.title,
            "status": self.status,
            "detail": self.detail,
            **(self.why or {}),
        }
        return msgspec.json.encode(document)

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """The headers that belong to it; a wait is given in whole seconds, at least one."""
        fixed = (
            ("content-type", MEDIA_TYPE),
            ("content-length", str(len(self.body))),
            ("cache-control", "no-store"),
            *self.more_headers,
        )
        if self.retry_after_seconds is None:
            return fixed
        return (*fixed, ("retry-after", str(max(1, -int(-self.retry_after_seconds // 1)))))
