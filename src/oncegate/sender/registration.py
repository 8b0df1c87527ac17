"""What a host's name answers when its endpoint is registered: a blocked address refuses the endpoint.

This answer does not bind later calls: each connection resolves the name again and judges the answers again
(`connector.py`). A name without an answer is registered with a warning, because the process that
delivers may have another resolver, and an outage of DNS is no reason to refuse a customer.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Final

from oncegate.errors import BadEndpoint
from oncegate.sender.addresses import AddressPolicy, judge_answers
from oncegate.sender.urls import EndpointUrl

RESOLVE_SECONDS_MAX: Final = 5.0

LookUp = Callable[[str, int], Sequence[str]]


def judge_name(url: EndpointUrl, policy: AddressPolicy, look_up: LookUp) -> str | None:
    """Resolves the URL's host; raises BadEndpoint for a blocked answer, returns a warning without one."""
    if url.address is not None:
        return None  # judged when it was read
    answers = _answers(url, look_up)
    if isinstance(answers, str):
        return (
            f"{url.host} cannot be resolved here ({answers}); it is resolved and judged when it is called"
        )
    try:
        found = judge_answers(policy, answers)
    except ValueError:
        raise BadEndpoint(f"{url.host} resolves to an unreadable address") from None
    if isinstance(found, str):
        raise BadEndpoint(f"{url.host} resolves to an address that may not be called: {found}")
    return None


def _answers(url: EndpointUrl, look_up: LookUp) -> Sequence[str] | str:
    """The addresses of the host, or why there are none; a resolver that hangs is left behind."""
    found: queue.SimpleQueue[Sequence[str] | str] = queue.SimpleQueue()

    def resolve() -> None:
        try:
            found.put(look_up(url.host, url.port) or "the name has no address")
        except (OSError, UnicodeError) as error:
            found.put(str(error))

    threading.Thread(target=resolve, name="oncegate-resolve", daemon=True).start()
    try:
        return found.get(timeout=RESOLVE_SECONDS_MAX)
    except queue.Empty:
        return f"no answer within {RESOLVE_SECONDS_MAX:g} s"
