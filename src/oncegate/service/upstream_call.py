"""Brings an event to the team's own handler over HTTP, with its key, and reads what the answer means.

Must never send by itself twice: whether a call may be repeated is the gate's to decide.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, Protocol
from urllib.parse import quote

import msgspec

from oncegate.clock import Clock
from oncegate.errors import BadEndpoint, Failed, NotApplied, OncegateError
from oncegate.gate.runtime.tracing import current_claim
from oncegate.model.canonical import canonical_json
from oncegate.model.redact import masked_excerpt
from oncegate.sender.addresses import AddressPolicy
from oncegate.sender.exchange import Exchange, NoResponse, Response
from oncegate.sender.http import HttpClient
from oncegate.sender.request_builder import Request, quoted
from oncegate.sender.urls import EndpointUrl, parse_endpoint_url

# The handler says that it has done nothing and may be asked again.
_NOT_NOW: Final = frozenset({408, 425, 429})
PLACE_OF_KEY: Final = "{key}"
LOGGED_MAX: Final = 20  # failures of one downstream in the log
LOG_PERIOD_MS: Final = 60_000

log: Final = logging.getLogger("oncegate.service")


class ForwardFailed(OncegateError):
    """The handler failed or did not answer; it may have acted. Without a status there was no answer."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = 504 if status is None else status
        self.was_answered = status is not None


class HandlerDown(NotApplied):
    """The handler was not reached, or says that it has done nothing and may be asked again."""

    def __init__(self, message: str, answer: Response | None = None) -> None:
        super().__init__(message)
        self.was_reached = answer is not None
        self.status = None if answer is None else answer.status
        wait = None if answer is None else answer.retry_after
        self.headers = {} if wait is None else {"retry-after": str(int(wait.total_seconds()))}


class Forwarder(Protocol):
    """Something that brings an event to a handler."""

    async def forward(self, event: Any, key: str, more: Mapping[str, str]) -> Any:
        """Returns the handler's answer, or raises what the gate understands."""


class HttpForwarder:
    """One downstream over the guarded client, which is made in the loop that uses it."""

    def __init__(
        self, client: HttpClient, url: EndpointUrl, timeout: timedelta, failures: FailureLog
    ) -> None:
        self._client, self._url, self._timeout, self._failures = client, url, timeout, failures

    async def forward(self, event: Any, key: str, more: Mapping[str, str]) -> Any:
        """Sends the event as JSON; `more` are the headers of its journey."""
        headers = (("content-type", "application/json"), ("idempotency-key", quoted(key)))
        request = Request((*headers, *more.items()), canonical_json(event))
        exchange = await self._client.post(self._url, request, deadline=self._timeout)
        try:
            return judged(exchange)
        except OncegateError as error:
            self._failures.note(key, exchange, error)
            raise


class FailureLog:
    """Failures of one downstream in the log: which event, what was answered, and why it failed.

    At most 20 a minute, so that an outage does not fill a disk; the next record counts the others.
    """

    def __init__(self, downstream: str, clock: Clock) -> None:
        self._downstream, self._clock = downstream, clock
        self._since_ms, self._logged, self._left_out = clock.ticks_ms(), 0, 0

    def note(self, key: str, exchange: Exchange, error: OncegateError) -> None:
        """Writes one failure down."""
        now = self._clock.ticks_ms()
        if now - self._since_ms >= LOG_PERIOD_MS:
            self._since_ms, self._logged = now, 0
        if self._logged >= LOGGED_MAX:
            self._left_out += 1
            return
        claim, is_answer = current_claim.get(), isinstance(exchange, Response)
        told = {
            "surface": "" if claim is None else claim.surface.name,
            "key": key,
            "downstream": self._downstream,
            "status": exchange.status if isinstance(exchange, Response) else None,
            "cause": type(error).__name__ if is_answer else str(error),
            "body": masked_excerpt(exchange.body) if isinstance(exchange, Response) else "",
            "not_logged": self._left_out,
        }
        self._logged, self._left_out = self._logged + 1, 0
        log.warning("downstream %s: %s", self._downstream, error, extra={"oncegate": told})


class HttpProbe:
    """Asks a handler what a key owns: a GET of the declared address with the key in it."""

    def __init__(
        self, client: HttpClient, template: str, policy: AddressPolicy, timeout: timedelta
    ) -> None:
        self._client, self._template = client, checked_probe_url(template, policy)
        self._policy, self._timeout = policy, timeout

    async def ask(self, key: str) -> Any:
        """What the handler answered for this key before, or None where it has never seen it."""
        url = parse_endpoint_url(self._template.replace(PLACE_OF_KEY, quote(key, safe="")), self._policy)
        found = await self._client.get(url, (("accept", "application/json"),), deadline=self._timeout)
        if isinstance(found, NoResponse):
            if not found.was_sent:
                raise HandlerDown(f"the handler was not reached: {found.kind.value}")
            raise ForwardFailed(f"no answer to the probe: {found.kind.value}")
        if found.status == 404:
            return None
        if found.status != 200:
            told = f"the probe was answered {found.status}; only 200 and 404 say something"
            raise ForwardFailed(told, found.status)
        return _value(found)


def checked_probe_url(template: str, policy: AddressPolicy) -> str:
    """Returns an address that a key can be put into, or raises BadEndpoint."""
    head, place, _ = template.partition(PLACE_OF_KEY)
    if template.count(PLACE_OF_KEY) != 1 or "/" not in head.partition("://")[2]:
        raise BadEndpoint("probe_url must hold {key} once, behind the host: https://…/slots/{key}")
    parse_endpoint_url(template.replace(place, "k"), policy)
    return template


def judged(exchange: Exchange) -> Any:
    """The handler's answer: JSON of a 2xx, else an error that says what is known."""
    if isinstance(exchange, NoResponse):
        if exchange.was_sent:
            raise ForwardFailed(f"no answer: {exchange.kind.value}")
        raise HandlerDown(f"the handler was not reached: {exchange.kind.value}")
    if 200 <= exchange.status < 300:
        return _value(exchange)
    if exchange.status in _NOT_NOW:
        raise HandlerDown(_told(exchange), exchange)
    if 400 <= exchange.status < 500 and exchange.status != 409:
        raise Failed(_told(exchange))
    raise ForwardFailed(_told(exchange), exchange.status)


def _told(answer: Response) -> str:
    """What the handler said, as the entry's reason keeps it."""
    said = masked_excerpt(answer.body)
    return f"the handler answered {answer.status}" + (f": {said}" if said else "")


def _value(response: Response) -> Any:
    """JSON as it is; anything else, or too much, is not kept."""
    try:
        value = None if response.is_cut or not response.body else msgspec.json.decode(response.body)
    except (ValueError, RecursionError):
        value = None
    return {"status": response.status, "body": value}
