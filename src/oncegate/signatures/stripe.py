"""Signatures in the manner of Stripe: `Stripe-Signature: t=…,v1=…,v1=…` over time and body.

The id of the event is inside the body; the scheme says nothing about it.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Sequence
from typing import Final

from oncegate.errors import MalformedRequest, NotAuthentic
from oncegate.signatures.scheme import (
    ENTRIES_MAX,
    TOLERANCE_S,
    Authentic,
    Headers,
    read_plain_secrets,
    read_timestamp,
)

_HEADER: Final = "stripe-signature"
_SIGNATURE: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_PARTS_MAX: Final = 2 * ENTRIES_MAX + 1  # the time, the signatures, and as many of older versions


class StripeSignature:
    """HMAC-SHA256 of `time.body`, in hex; any of the secrets will do."""

    signs_id: Final = False

    def __init__(
        self, secrets: Sequence[str], *, header: str = _HEADER, tolerance_s: int = TOLERANCE_S
    ) -> None:
        self._secrets = read_plain_secrets(secrets)
        self._header = header.lower()
        self._tolerance_s = tolerance_s

    def verify(self, headers: Headers, body: bytes, now_s: int) -> Authentic:
        """Checks time and signature."""
        times, signatures = _read(headers.require(self._header))
        if len(times) != 1:
            raise MalformedRequest(f"{self._header} has {len(times)} times instead of one")
        sent_at_s = read_timestamp(times[0], f"{self._header} t", now_s, self._tolerance_s)
        content = times[0].encode("ascii") + b"." + body
        expected = [hmac.digest(secret, content, "sha256") for secret in self._secrets]
        matches = [hmac.compare_digest(right, given) for given in signatures for right in expected]
        if not any(matches):
            raise NotAuthentic(f"{self._header} has no valid signature")
        return Authentic(sent_at_s=sent_at_s)


def _read(text: str) -> tuple[list[str], list[bytes]]:
    parts = [part.strip().partition("=") for part in text.split(",", _PARTS_MAX)[:_PARTS_MAX]]
    times = [value for name, _, value in parts if name == "t"]
    given = [value for name, _, value in parts if name == "v1" and _SIGNATURE.fullmatch(value)]
    return times, [bytes.fromhex(value) for value in given[:ENTRIES_MAX]]
