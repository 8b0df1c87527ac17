"""What the page reads of a request: its path below the mount, where it comes from, a form within bounds."""

from __future__ import annotations

from email.parser import BytesParser
from email.policy import HTTP
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request

from oncegate.errors import UsageError

BODY_BYTES_MAX: Final = 64 * 1024
UPLOAD_BYTES_MAX: Final = 4 * 1024 * 1024
UPLOADS: Final = frozenset({"/audit/keep"})
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


async def read_form(request: Request, *, may_upload: bool = False) -> dict[str, str] | None:
    """Reads a form; None if it is larger than any form of ours. Only some pages take a file."""
    is_upload = may_upload and path_of(request) in UPLOADS
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > (UPLOAD_BYTES_MAX if is_upload else BODY_BYTES_MAX):
            return None
    kind = request.headers.get("content-type", "")
    if kind.startswith("multipart/form-data"):
        return _parts_of(kind, bytes(body))
    text = body.decode("utf-8", "replace")
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_MAX))
    except ValueError:  # more fields than any form of ours
        return None


def _parts_of(kind: str, body: bytes) -> dict[str, str] | None:
    """The fields of a form with a file; a file is its text."""
    document = BytesParser(policy=HTTP).parsebytes(
        f"content-type: {kind}\r\n\r\n".encode("latin-1", "replace") + body
    )
    parts = list(document.iter_parts())
    if len(parts) > FIELDS_MAX:
        return None
    names = [str(part.get_param("name", "", header="content-disposition")) for part in parts]
    payloads = (part.get_payload(decode=True) for part in parts)
    texts = (one.decode("utf-8", "replace") if isinstance(one, bytes) else "" for one in payloads)
    return dict(zip(names, texts, strict=True))


def read_seq(text: str) -> int:
    """A seq from a form; raises UsageError for what cannot be one."""
    if not (text.isascii() and text.isdigit() and len(text) <= 18 and int(text)):
        raise UsageError(f"{text[:20]!r} is not a seq; seqs count from 1")
    return int(text)
