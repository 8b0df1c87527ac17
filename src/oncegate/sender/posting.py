"""One request now and then, from a thread: for alarms, which must go out under the same guard as events.

Each call is one request of its own, with nothing kept open between two. Must never name the address in an
error: the addresses of such webhooks are secrets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final

from oncegate.sender.addresses import AddressPolicy
from oncegate.sender.connection import check_parser
from oncegate.sender.exchange import Exchange, Response
from oncegate.sender.http import HttpClient
from oncegate.sender.request_builder import Request
from oncegate.sender.urls import EndpointUrl, parse_endpoint_url

DEADLINE: Final = timedelta(seconds=10)  # a watch that waits for a webhook does not watch

Post = Callable[[str, bytes, Mapping[str, str]], int]


def guarded_post(policy: AddressPolicy, *, deadline: timedelta = DEADLINE) -> Post:
    """Returns `post(url, body, headers)`, which sends once and returns the status; raises if none came."""
    check_parser()

    def post(url: str, body: bytes, headers: Mapping[str, str]) -> int:
        request = Request(tuple((name.lower(), value) for name, value in headers.items()), body)
        answer = asyncio.run(_exchange(parse_endpoint_url(url, policy), request, policy, deadline))
        if isinstance(answer, Response):
            return answer.status
        raise ConnectionError(f"no answer: {answer.kind.value}")

    return post


async def _exchange(
    url: EndpointUrl, request: Request, policy: AddressPolicy, deadline: timedelta
) -> Exchange:
    client = HttpClient(policy)
    try:
        return await client.post(url, request, deadline=deadline)
    finally:
        await client.close()
