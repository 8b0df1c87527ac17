"""What the page reads of a request: its path below the mount, where it comes from, a form within bounds."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request

from oncegate.errors import UsageError

BODY_BYTES_MAX: Final = 64 * 1024
FIELDS_MAX: Final = 200
COOKIES_MAX: Final = 4


def path_of(request: Request) -> str:
    """The path below wherever the page is mounted."""
    path = str(request.scope["path"]).removeprefix(request.scope.get("root_path", ""))
    return path or "/"


def place_of(request: Request) -> str:
    """Where a request comes from: the peer's address, or what a trusted proxy reports."""
    return "an unknown place" if request.client is None else request.client.host


def cookies_of(request: Request, name: str) -> list[str]:
    """All values of a cookie: browsers send one for each path, and do not tell ports of a host apart."""
    given = "; ".join(request.headers.getlist("cookie")).split(";")
    parts = (part.strip().partition("=") for part in given)
    return [value for found, _, value in parts if found == name and value][:COOKIES_MAX]


def is_encrypted(request: Request) -> bool:
    """Whether the browser speaks HTTPS, to us or to a proxy in front of us."""
    return request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")


async def read_form(request: Request) -> dict[str, str] | None:
    """Reads a plain form; None if it is larger than any form of ours."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > BODY_BYTES_MAX:
            return None
    text = body.decode("utf-8", "replace")
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_MAX))
    except ValueError:  # more fields than any form of ours
        return None


def read_seq(text: str) -> int:
    """A seq from a form; raises UsageError for what cannot be one."""
    if not (text.isascii() and text.isdigit() and len(text) <= 18 and int(text)):
        raise UsageError(f"{text[:20]!r} is not a seq; seqs count from 1")
    return int(text)
