"""Signatures in the manner of Slack: `X-Slack-Signature: v0=…` over version, time and body."""

from __future__ import annotations

import hmac
import re
from collections.abc import Sequence
from typing import Final

from oncegate.errors import NotAuthentic
from oncegate.signatures.scheme import (
    TOLERANCE_S,
    Authentic,
    Headers,
    read_plain_secrets,
    read_timestamp,
)

_HEADER: Final = "x-slack-signature"
_TIMESTAMP: Final = "x-slack-request-timestamp"
_SIGNATURE: Final = re.compile(r"v0=([0-9a-f]{64})", re.ASCII)


class SlackSignature:
    """HMAC-SHA256 of `v0:time:body`, in hex; any of the secrets will do."""

    signs_id: Final = False

    def __init__(self, secrets: Sequence[str], *, tolerance_s: int = TOLERANCE_S) -> None:
        self._secrets = read_plain_secrets(secrets)
        self._tolerance_s = tolerance_s

    def verify(self, headers: Headers, body: bytes, now_s: int) -> Authentic:
        """Checks time and signature."""
        timestamp = headers.require(_TIMESTAMP)
        found = _SIGNATURE.fullmatch(headers.require(_HEADER))
        sent_at_s = read_timestamp(timestamp, _TIMESTAMP, now_s, self._tolerance_s)
        given = bytes.fromhex(found[1]) if found else b""
        content = b"v0:" + timestamp.encode("ascii") + b":" + body
        matches = [
            hmac.compare_digest(hmac.digest(secret, content, "sha256"), given) for secret in self._secrets
        ]
        if not any(matches):
            raise NotAuthentic(f"{_HEADER} is not a valid signature")
        return Authentic(sent_at_s=sent_at_s)
