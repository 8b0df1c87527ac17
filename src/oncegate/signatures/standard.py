"""Checks Standard Webhooks signatures, `v1` and `v1a`, strictly.

The published verifier raises on hostile input and takes odd timestamps; this one does neither. It serves
the tests as a second opinion only.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import Final

from oncegate.errors import MalformedRequest, NotAuthentic
from oncegate.signatures.keys import VerifyingKey, read_verifying_key
from oncegate.signatures.scheme import (
    ENTRIES_MAX,
    ENTRY_LENGTH_MAX,
    TOLERANCE_S,
    Authentic,
    Headers,
    check_secrets,
    read_timestamp,
)
from oncegate.signatures.signing import ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, signed_content

# No full stop: it separates the signed parts, and `a.1` + `2` must not be signed like `a` + `1.2`.
_ID: Final = re.compile(r"[ -\-/-~]{1,255}", re.ASCII)
# The only lengths that can be right; anything else is not worth decoding.
_SIGNATURE_BYTES: Final = {"v1": 32, "v1a": 64}
_STANDARD: Final = (ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER)
_SVIX: Final = ("svix-id", "svix-timestamp", "svix-signature")


def check_message_id(message_id: str, name: str = ID_HEADER) -> str:
    """Returns an id that can be signed, or raises MalformedRequest."""
    if _ID.fullmatch(message_id) is None:
        raise MalformedRequest(f"{name} is not 1 to 255 printable ASCII characters without a full stop")
    return message_id


class StandardWebhooks:
    """The scheme of Standard Webhooks; any of the secrets will do.

    Svix names the same three headers `svix-id`, `svix-timestamp` and `svix-signature`. A request
    has all three under one of the two prefixes.
    """

    signs_id: Final = True

    def __init__(self, secrets: Sequence[str | VerifyingKey], *, tolerance_s: int = TOLERANCE_S) -> None:
        self._keys = tuple(
            read_verifying_key(secret) if isinstance(secret, str) else secret
            for secret in check_secrets(secrets)
        )
        self._tolerance_s = tolerance_s

    def verify(self, headers: Headers, body: bytes, now_s: int) -> Authentic:
        """Checks id, time and signature."""
        id_name, timestamp_name, signature_name = _names(headers)
        message_id = check_message_id(headers.require(id_name), id_name)
        timestamp = headers.require(timestamp_name)
        given = headers.require(signature_name)
        sent_at_s = read_timestamp(timestamp, timestamp_name, now_s, self._tolerance_s)
        # The timestamp as it came, not as it was read: leading zeros are signed too.
        if not self._is_signed(signed_content(message_id, timestamp, body), given):
            raise NotAuthentic(f"{signature_name} has no valid signature")
        return Authentic(message_id, sent_at_s)

    def _is_signed(self, content: bytes, given: str) -> bool:
        """Compares every entry with every key, also after one has matched."""
        checkers = [(key.version, key.checker(content)) for key in self._keys]
        found = False
        for version, signature in read_entries(given):
            for expected_version, accepts in checkers:
                if version == expected_version:
                    found |= accepts(signature)
        return found


def _names(headers: Headers) -> tuple[str, str, str]:
    """The names under which a request has its three headers: one set or the other, never a mix."""
    if headers.find(ID_HEADER) is None and headers.find(_SVIX[0]) is not None:
        return _SVIX
    return _STANDARD


def read_entries(given: str) -> list[tuple[str, bytes]]:
    """The entries that can be read, of the first few; what cannot be read is skipped."""
    entries = given.split(" ", ENTRIES_MAX)[:ENTRIES_MAX]
    return [entry for entry in map(_read_entry, entries) if entry is not None]


def _read_entry(entry: str) -> tuple[str, bytes] | None:
    version, comma, text = entry.partition(",")
    if not comma or len(entry) > ENTRY_LENGTH_MAX or version not in _SIGNATURE_BYTES:
        return None
    try:
        signature = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return (version, signature) if len(signature) == _SIGNATURE_BYTES[version] else None
