"""What the page reads of a request: its path below the mount, where it comes from, a form within bounds."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request

from oncegate.dashboard.auth import is_own_page
from oncegate.dashboard.read_limits import in_thread
from oncegate.errors import UsageError

BODY_BYTES_MAX: Final = 64 * 1024
UPLOAD_BYTES_MAX: Final = 4 * 1024 * 1024
UPLOADS: Final = frozenset({"/audit/keep"})
FIELDS_MAX: Final = 200
COOKIES_MAX: Final = 4
KIND_MAX: Final = 200
PARTS_MAX: Final = 8
PART_HEAD_MAX: Final = 1024

_BOUNDARY: Final = re.compile(
    r"""multipart/form-data; ?boundary=(?:([\w'()+,./:=?-]{1,70})|"([\w'()+,./:=? -]{1,70})")""",
    re.ASCII | re.IGNORECASE,
)
_NAME: Final = re.compile(rb'\r\ncontent-disposition: ?form-data; ?name="([^"\r\n]*)"', re.IGNORECASE)


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


async def read_form(
    request: Request, is_signed_in: Callable[[Request], bool] | None = None
) -> dict[str, str] | None:
    """Reads a form; None if it is larger than any form of ours.

    One page takes a file, from our own page in a session that the ledger knows. Without that the file is
    not looked at, and the form is empty. A file for another page is refused unread.
    """
    kind = request.headers.get("content-type", "")
    has_file = kind[:10].lower() == "multipart/"
    if has_file and path_of(request) not in UPLOADS:
        raise HTTPException(415)
    is_taken = False
    if has_file and is_signed_in is not None and is_own_page(request.headers, request.url.scheme):
        is_taken = await in_thread(is_signed_in, request)
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > (UPLOAD_BYTES_MAX if is_taken else BODY_BYTES_MAX):
            return None
    if has_file:
        return await in_thread(parts_of, kind, bytes(body)) if is_taken else {}
    text = body.decode("utf-8", "replace")
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_MAX))
    except ValueError:  # more fields than any form of ours
        return None


def parts_of(kind: str, body: bytes) -> dict[str, str]:
    """The fields of a form with a file, as browsers write it; a file is its text.

    Cuts once, a few times at most, and looks only at the beginning of each part: whatever the body holds,
    the work is in proportion to its length. Raises HTTPException for any other body.
    """
    cut = _BOUNDARY.fullmatch(kind) if len(kind) <= KIND_MAX else None
    if cut is None:
        raise HTTPException(400)
    line = b"\r\n--" + (cut[1] or cut[2]).encode()
    before, *parts = (b"\r\n" + body).split(line, PARTS_MAX + 1)
    if before or not parts or not parts.pop().startswith(b"--"):
        raise HTTPException(400)
    return dict(map(_field_of, parts))


def _field_of(part: bytes) -> tuple[str, str]:
    end = part.find(b"\r\n\r\n", 0, PART_HEAD_MAX)
    named = _NAME.search(part[:end]) if end > 0 and part.startswith(b"\r\n") else None
    if named is None:
        raise HTTPException(400)
    return named[1].decode("utf-8", "replace"), part[end + 4 :].decode("utf-8", "replace")


def read_seq(text: str) -> int:
    """A seq from a form; raises UsageError for what cannot be one."""
    if not (text.isascii() and text.isdigit() and len(text) <= 18 and int(text)):
        raise UsageError(f"{text[:20]!r} is not a seq; seqs count from 1")
    return int(text)
