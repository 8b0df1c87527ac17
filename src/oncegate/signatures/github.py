"""Signatures in the manner of GitHub: `X-Hub-Signature-256: sha256=…` over the body alone.

Nothing but the body is covered: neither the delivery id nor a time. A recorded request can be sent again
under another id, so that a key must be made from the body's own fields.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Sequence
from typing import Final

from oncegate.errors import NotAuthentic
from oncegate.signatures.scheme import Authentic, Headers, read_plain_secrets

_HEADER: Final = "x-hub-signature-256"
_SIGNATURE: Final = re.compile(r"sha256=([0-9a-f]{64})", re.ASCII)


class GithubSignature:
    """HMAC-SHA256 of the body, in hex; any of the secrets will do."""

    signs_id: Final = False

    def __init__(self, secrets: Sequence[str], *, header: str = _HEADER) -> None:
        self._secrets = read_plain_secrets(secrets)
        self._header = header.lower()

    def verify(self, headers: Headers, body: bytes, now_s: int) -> Authentic:
        """Checks the signature; there is no time to check."""
        found = _SIGNATURE.fullmatch(headers.require(self._header))
        given = bytes.fromhex(found[1]) if found else b""
        matches = [
            hmac.compare_digest(hmac.digest(secret, body, "sha256"), given) for secret in self._secrets
        ]
        if not any(matches):
            raise NotAuthentic(f"{self._header} is not a valid signature")
        return Authentic()
