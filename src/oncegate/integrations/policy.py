"""What the `Idempotency-Key` middleware does about a request, for ASGI and WSGI alike.

The edges read requests and write responses; what a request's key and content are, which requests need
one, and how a verdict is answered, is decided here. Must never answer with another caller's response:
the caller is part of every key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from oncegate.errors import (
    Backlogged,
    ClaimLost,
    ConfigError,
    Failed,
    NotApplied,
    OutcomeUnknown,
    StoreError,
)
from oncegate.gate.admission import Admission, Verdict
from oncegate.gate.facade import GateOnStore
from oncegate.gate.options import Duration, MiddlewareOptions
from oncegate.gate.runtime.not_run_log import held_reason
from oncegate.gate.surface import Downstream
from oncegate.integrations.keyheader import BadKeyHeader, read_key_header
from oncegate.integrations.problems import Problem, ProblemKind
from oncegate.integrations.replies import REPLAYED_HEADER, Reply, as_kept, kept_headers_of
from oncegate.model.surface import check_name

BODY_BYTES_MAX: Final = 1024 * 1024
RESPONSE_BYTES_MAX: Final = 1024 * 1024
ATTEMPTS_MAX: Final = 20  # of one request that keeps failing; then a person looks
RETRY_SECONDS: Final = 5.0  # until the ledger may be back


class NotFinal(NotApplied):
    """The application answered that nothing was done, or failed: the request may be tried again.

    Its first attempt leaves nothing in the ledger: a stranger's refused requests must not fill a disk.
    """

    leaves_nothing = True

    def __init__(self, reply: Reply | None) -> None:
        super().__init__("the application failed" if reply is None else f"answered {reply.status}")
        self.reply = reply


class Undecided(Exception):
    """The application failed and may have acted: what may happen next is its downstream's to say."""

    def __init__(self, reply: Reply | None) -> None:
        super().__init__("the application failed" if reply is None else f"answered {reply.status}")
        self.reply = reply


@dataclass(slots=True)
class KeyedExchange:
    """One request on its way through, and the whole response that its caller gets."""

    request: Any
    reply: Reply | None = None
    was_called: bool = False
    is_observed: bool = False  # the response goes out whole, whatever of it can be kept


current: ContextVar[KeyedExchange | None] = ContextVar("oncegate_exchange", default=None)


class OnlyItsCaller(NotApplied):
    """Only its caller can send a request again."""


def live_exchange() -> KeyedExchange:
    """The request being served; raises if there is none, as when the worker recovers the key."""
    exchange = current.get()
    if exchange is None or exchange.was_called:
        raise OnlyItsCaller("only its caller can send this request again")
    exchange.was_called = True
    return exchange


class KeyPolicy:
    """One middleware's settings, and what follows from them."""

    def __init__(
        self,
        *,
        methods: Collection[str] = ("POST", "PATCH"),
        required: bool = True,
        bare_keys: bool = False,
        body_bytes_max: int = BODY_BYTES_MAX,
        response_bytes_max: int = RESPONSE_BYTES_MAX,
        keep_headers: Collection[str] = (),
        retry_on_5xx: bool | Collection[int] = False,
    ) -> None:
        if isinstance(methods, str):
            raise ConfigError("methods= is a list of HTTP methods, such as ['POST']")
        self.methods = frozenset(method.upper() for method in methods)
        self.required = required
        self.bare_keys = bare_keys
        self.body_bytes_max = body_bytes_max
        self.response_bytes_max = response_bytes_max
        self.kept_headers = kept_headers_of(keep_headers)
        self._harmless = _harmless_statuses(retry_on_5xx)
        self._exceptions_harmless = retry_on_5xx is True

    def key_of(self, values: Sequence[bytes]) -> str | Problem | None:
        """The key, a problem, or None for a request that may go on without one."""
        if not values:
            missing = Problem(ProblemKind.KEY_MISSING, "send a new key with every new request")
            return missing if self.required else None
        try:
            return read_key_header(values, bare_keys=self.bare_keys)
        except BadKeyHeader as error:
            return Problem(ProblemKind.KEY_MALFORMED, str(error))

    def too_large(self) -> Problem:
        """The answer to a body over the limit."""
        return Problem(ProblemKind.BODY_TOO_LARGE, f"at most {self.body_bytes_max} bytes are taken")

    def conclude(self, exchange: KeyedExchange, reply: Reply | None) -> Reply:
        """Takes the application's response, or its failure, and returns what is kept of it."""
        if reply is not None and (reply.is_final or reply.is_too_large):
            exchange.reply = reply
            if len(reply.body) > self.response_bytes_max:
                reply = Reply(reply.status, reply.headers, is_too_large=True)
            return as_kept(reply, self.kept_headers)
        raise self.failure(reply)

    def failure(self, reply: Reply | None, error: Exception | None = None) -> NotFinal | Undecided:
        """What the gate records about a response that is not final, or about an exception.

        A failure says nothing about what the application did before it. It counts as harmless only where
        the application declares that.
        """
        if reply is None:
            is_harmless = self._exceptions_harmless or isinstance(error, NotApplied)
        else:
            is_harmless = reply.status < 500 or reply.status in self._harmless
        return NotFinal(reply) if is_harmless else Undecided(reply)


def _harmless_statuses(retry_on_5xx: bool | Collection[int]) -> Collection[int]:
    if isinstance(retry_on_5xx, bool):
        return range(500, 1000) if retry_on_5xx else ()
    statuses = frozenset(retry_on_5xx)
    if not all(isinstance(status, int) and 500 <= status <= 599 for status in statuses):
        raise ConfigError("retry_on_5xx= is True, False, or a list of statuses from 500 to 599")
    return statuses


def register(
    gate: GateOnStore,
    surface: str,
    run: Callable[..., Any],
    *,
    downstream: Downstream | None,
    retention: Duration,
    attempts_max: int,
    options: MiddlewareOptions,
) -> None:
    """Makes the middleware a surface of the gate; only the caller sends its requests again.

    So another request under a known key is the caller's alone to mend: it is not kept.
    """
    gate.handler(
        surface,
        key="{key}",
        returns=Reply,
        downstream=downstream,
        retention=retention,
        attempts_max=attempts_max,
        retry_for=None,
        caller_retries=True,
        **options,
    )(run)


def caller_or_problem(caller: object) -> str | Problem:
    """Checks what the `caller` function said."""
    try:
        if isinstance(caller, str):
            return check_name("tenant", caller)
    except ConfigError:
        pass
    return Problem(ProblemKind.CALLER_UNKNOWN, "the request does not show whose it is")


def event_of(key: str, target: tuple[str, str, str], content_type: str, body: bytes) -> dict[str, str]:
    """The request as the ledger knows it: which it is, and a hash of its content, not the content.

    `target` is the method, the path and the query.
    """
    method, path, query = target
    return {
        "key": key,
        "method": method,
        "path": path,
        "query": query,
        "content_type": content_type,
        "body": sha256(body).hexdigest(),
    }


def answer_to(admission: Admission, exchange: KeyedExchange) -> Reply | Problem:
    """What the caller gets."""
    if admission.verdict is Verdict.RUN and exchange.reply is not None:
        return exchange.reply if exchange.is_observed else _whole(exchange.reply)
    if admission.error is not None:
        return Problem(ProblemKind.RECORDED_FAILURE, "it will not be tried again", why=admission.why())
    if admission.verdict in (Verdict.RUN, Verdict.REPLAY):
        return _replayed(admission)
    if admission.verdict is Verdict.CONFLICT:
        why = admission.why("another request under a known key")
        detail = "a key stands for one request; send a new key with a new one"
        return Problem(ProblemKind.CONFLICT, detail, why=why)
    if admission.is_paused:
        detail = "an operator has paused it; nothing was run"
        return Problem(ProblemKind.PAUSED, detail, admission.retry_after_seconds)
    if admission.verdict is Verdict.BUSY:
        detail = "its response can be had by sending the same request again later"
        wait = min(admission.retry_after_seconds, 60.0)
        return Problem(ProblemKind.BUSY, detail, wait, why=admission.why())
    return unresolved(admission)


def unresolved(admission: Admission | None = None) -> Problem:
    """The answer where an earlier attempt may have acted, and what it did is not known."""
    why = None if admission is None else admission.why(held_reason(admission.reason))
    return Problem(
        ProblemKind.UNRESOLVED, "whether it took effect is being looked into by a person", why=why
    )


def _whole(reply: Reply) -> Reply | Problem:
    if not reply.is_too_large:
        return reply
    detail = f"the request was carried out and answered {reply.status}; its response could not be kept"
    return Problem(ProblemKind.RESPONSE_TOO_LARGE, detail)


def _replayed(admission: Admission) -> Reply | Problem:
    value = admission.value
    if not isinstance(value, Reply):
        return unresolved()  # finished by hand, or by a probe: the outcome is no response
    if value.is_too_large:
        return _whole(value)
    more = [(REPLAYED_HEADER, "true")]
    more += [(f"idempotency-{name.replace('_', '-')}", str(text)) for name, text in admission.why().items()]
    return Reply(value.status, (*value.headers, *more), value.body)


def answer_to_error(error: BaseException, exchange: KeyedExchange) -> Reply | Problem | None:
    """What the caller gets when admitting raised; None where the error is the application's own."""
    if isinstance(error, (NotFinal, Undecided)):
        return error.reply
    if isinstance(error, StoreError):
        return _store_down(exchange)
    if isinstance(error, Backlogged):
        detail = "too many requests wait for a person already; nothing was run"
        return Problem(ProblemKind.TOO_MANY, detail, error.retry_after_seconds)
    if isinstance(error, ClaimLost):
        return Problem(ProblemKind.BUSY, "another worker has taken the request over", 1.0)
    if isinstance(error, OutcomeUnknown):
        return unresolved()
    if isinstance(error, Failed):
        return Problem(ProblemKind.RECORDED_FAILURE, "it will not be tried again")
    if isinstance(error, OnlyItsCaller):
        return Problem(ProblemKind.BUSY, "the key is being looked into", 1.0)
    return None


def _store_down(exchange: KeyedExchange) -> Problem:
    if exchange.was_called:
        detail = "the request may have been carried out, but that could not be recorded; send it again"
    else:
        detail = "nothing was run; send the same request again later"
    return Problem(ProblemKind.STORE_UNAVAILABLE, detail, RETRY_SECONDS)
