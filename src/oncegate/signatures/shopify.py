"""Signatures in the manner of Shopify: `X-Shopify-Hmac-Sha256`, base64, over the body alone."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Sequence
from typing import Final

from oncegate.errors import NotAuthentic
from oncegate.signatures.scheme import ENTRY_LENGTH_MAX, Authentic, Headers, read_plain_secrets

_HEADER: Final = "x-shopify-hmac-sha256"


class ShopifySignature:
    """HMAC-SHA256 of the body, in base64; any of the secrets will do. No id and no time is covered."""

    signs_id: Final = False

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = read_plain_secrets(secrets)

    def verify(self, headers: Headers, body: bytes, now_s: int) -> Authentic:
        """Checks the signature; there is no time to check."""
        given = decoded(headers.require(_HEADER))
        matches = [
            hmac.compare_digest(hmac.digest(secret, body, "sha256"), given) for secret in self._secrets
        ]
        if not any(matches):
            raise NotAuthentic(f"{_HEADER} is not a valid signature")
        return Authentic()


def decoded(text: str) -> bytes:
    """The bytes of a signature in base64; none if it cannot be one."""
    try:
        return base64.b64decode(text, validate=True) if len(text) <= ENTRY_LENGTH_MAX else b""
    except ValueError:
        return b""
