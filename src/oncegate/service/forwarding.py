"""Brings an event to the team's own handler over HTTP, with its key, and reads what the answer means.

Must never send by itself twice: whether a call may be repeated is the gate's to decide.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Protocol

import msgspec

from oncegate.errors import Failed, NotApplied, OncegateError
from oncegate.model.canonical import canonical_json
from oncegate.sender.envelope import Request, quoted
from oncegate.sender.exchange import Exchange, NoResponse, Response
from oncegate.sender.http import HttpClient
from oncegate.sender.urls import EndpointUrl

# The handler says that it has done nothing and may be asked again.
_NOT_NOW = frozenset({408, 425, 429})


class ForwardFailed(OncegateError):
    """The handler failed or did not answer; it may have acted."""


class Forwarder(Protocol):
    """Something that brings an event to a handler."""

    async def forward(self, event: Any, key: str) -> Any:
        """Returns the handler's answer, or raises what the gate understands."""


class HttpForwarder:
    """One downstream over the guarded client, which is made in the loop that uses it."""

    def __init__(self, client: HttpClient, url: EndpointUrl, timeout: timedelta) -> None:
        self._client, self._url, self._timeout = client, url, timeout

    async def forward(self, event: Any, key: str) -> Any:
        """Sends the event as JSON."""
        headers = (("content-type", "application/json"), ("idempotency-key", quoted(key)))
        request = Request(headers, canonical_json(event))
        return judged(await self._client.post(self._url, request, deadline=self._timeout))


def judged(exchange: Exchange) -> Any:
    """The handler's answer: JSON of a 2xx, else an error that says what is known."""
    if isinstance(exchange, NoResponse):
        if exchange.was_sent:
            raise ForwardFailed(f"no answer: {exchange.kind.value}")
        raise NotApplied(f"the handler was not reached: {exchange.kind.value}")
    if 200 <= exchange.status < 300:
        return _value(exchange)
    if exchange.status in _NOT_NOW:
        raise NotApplied(f"the handler answered {exchange.status}")
    if 400 <= exchange.status < 500 and exchange.status != 409:
        raise Failed(f"the handler answered {exchange.status}")
    raise ForwardFailed(f"the handler answered {exchange.status}")


def _value(response: Response) -> Any:
    """JSON as it is; anything else, or too much, is not kept."""
    try:
        value = None if response.is_cut or not response.body else msgspec.json.decode(response.body)
    except ValueError:
        value = None
    return {"status": response.status, "body": value}
