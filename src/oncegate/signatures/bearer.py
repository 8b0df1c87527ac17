"""A fixed token in `Authorization: Bearer …`: says who called, and nothing about what was sent or when."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from oncegate.errors import NotAuthentic
from oncegate.signatures.scheme import ENTRY_LENGTH_MAX, Authentic, Headers, read_plain_secrets

_HEADER: Final = "authorization"
_AUTHENTIC: Final = Authentic()  # a token says nothing of the message, so that it is the same for all


class BearerToken:
    """Any of the tokens will do."""

    signs_id: Final = False

    def __init__(self, secrets: Sequence[str]) -> None:
        # Digests have one length, so that comparing them does not tell a token's.
        self._digests = tuple(sha256(secret).digest() for secret in read_plain_secrets(secrets))

    def verify(self, headers: Headers, body: bytes, now_s: int) -> Authentic:
        """Compares the token with every one that is known."""
        kind, _, token = (headers.find(_HEADER) or headers.require(_HEADER)).partition(" ")
        if kind.lower() != "bearer" or len(token) > ENTRY_LENGTH_MAX:
            raise NotAuthentic("authorization is not a bearer token")
        given = sha256(token.encode("utf-8", "surrogatepass")).digest()
        is_known = False
        for known in self._digests:  # all of them, whichever matches
            is_known |= hmac.compare_digest(known, given)
        if not is_known:
            raise NotAuthentic("the bearer token is not known")
        return _AUTHENTIC
