"""The headers that a user may add to an endpoint: checked once, when they are given."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from oncegate.errors import BadHeader

HEADERS_MAX: Final = 32
VALUE_LENGTH_MAX: Final = 4096

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}", re.ASCII)
_VALUE: Final = re.compile(r"[!-~](?:[ -~\t]*[!-~])?|", re.ASCII)
# What we say ourselves, and what would change how the message is framed or routed.
_RESERVED: Final = frozenset(
    {
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "http2-settings",
        "idempotency-key",
        "keep-alive",
        "te",
        "traceparent",
        "tracestate",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
        "via",
        "x-correlation-id",
        "x-key",
        "x-planner-id",
        "x-previous-seq",
        "x-replay",
        "x-seq",
    }
)
_RESERVED_PREFIXES: Final = ("webhook-", "proxy-", "ce-", "sec-")


def check_headers(given: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Returns an endpoint's own headers in lower case, or raises BadHeader with the reason."""
    if len(given) > HEADERS_MAX:
        raise BadHeader(f"an endpoint has at most {HEADERS_MAX} headers of its own")
    checked = tuple((_check_name(name), _check_value(name, value)) for name, value in given.items())
    if len({name for name, _ in checked}) != len(checked):
        raise BadHeader("a header is given twice, in different cases")
    return checked


def _check_name(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise BadHeader(f"{name[:40]!a} is not a header name")
    lower = name.lower()
    if lower in _RESERVED or lower.startswith(_RESERVED_PREFIXES):
        raise BadHeader(f"{lower} is set by the sender itself and cannot be given")
    return lower


def _check_value(name: str, value: str) -> str:
    # The value may be a credential: the message names the header only.
    if len(value) > VALUE_LENGTH_MAX:
        raise BadHeader(f"the value of {name} is longer than {VALUE_LENGTH_MAX} characters")
    if _VALUE.fullmatch(value) is None:
        raise BadHeader(
            f"the value of {name} has a line break, a control character, a character outside ASCII, or a "
            "space at an end"
        )
    return value
