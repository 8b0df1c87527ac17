"""Signatures in the manner of Twilio: `X-Twilio-Signature` over the address and the fields of a form.

The address is the one that Twilio calls. It is a setting, and never read from a request.
A JSON body is covered by its hash in the address (`bodySHA256`).
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from hashlib import sha256
from typing import Final
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from oncegate.errors import ConfigError, MalformedRequest, NotAuthentic
from oncegate.signatures.scheme import Authentic, Headers, read_plain_secrets
from oncegate.signatures.shopify import decoded

FORM: Final = "application/x-www-form-urlencoded"
FIELDS_MAX: Final = 1000
_HEADER: Final = "x-twilio-signature"
_SHA256_BYTES: Final = 32
_PORTS: Final = {"https": 443, "http": 80}


class TwilioSignature:
    """HMAC-SHA1 or SHA256 in base64; any of the auth tokens will do. No time is covered."""

    signs_id: Final = False

    def __init__(self, secrets: Sequence[str], *, url: str) -> None:
        self._secrets = read_plain_secrets(secrets)
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ConfigError("url= is the address that Twilio calls, such as https://example.com/twilio")
        self._url = url

    def verify(self, headers: Headers, body: bytes, now_s: int) -> Authentic:
        """Checks the signature over the address, with and without its port, as Twilio makes either."""
        given = decoded(headers.require(_HEADER))
        kind = "sha256" if len(given) == _SHA256_BYTES else "sha1"  # shared keys sign with the longer one
        is_form = (headers.find("content-type") or "").partition(";")[0].strip().lower() == FORM
        if is_form:
            suffix, addresses = _signed_fields(body), [self._url]
        else:
            separator = "&" if "?" in self._url else "?"
            suffix, addresses = "", [f"{self._url}{separator}bodySHA256={sha256(body).hexdigest()}"]
        contents = [f"{spelled}{suffix}".encode() for one in addresses for spelled in _spellings(one)]
        matches = [
            hmac.compare_digest(hmac.digest(secret, content, kind), given)
            for secret in self._secrets
            for content in contents
        ]
        if not any(matches):
            raise NotAuthentic(f"{_HEADER} is not a valid signature")
        return Authentic()


def read_form(body: bytes) -> dict[str, str | list[str]]:
    """The fields of a form; one that came several times is a list."""
    found: dict[str, list[str]] = {}
    for name, value in _fields(body):
        found.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def _fields(body: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(
            body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX
        )
    except (ValueError, UnicodeError):
        raise MalformedRequest("the body is not a form") from None


def _signed_fields(body: bytes) -> str:
    """Names and values, sorted by both; a value that came twice counts once."""
    return "".join(name + value for name, value in sorted(set(_fields(body))))


def _spellings(url: str) -> list[str]:
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    user, at, _ = parts.netloc.rpartition("@")
    names = [f"{user}{at}{host}", f"{user}{at}{host}:{parts.port or _PORTS[parts.scheme]}"]
    return [url, *(urlunsplit(parts._replace(netloc=name)) for name in names)]
