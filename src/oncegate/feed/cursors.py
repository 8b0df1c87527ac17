"""Cursors: a place in one tenant's feed, which only the ledger can make and only its tenant can use.

A cursor is opaque to its reader. It carries a version, the position, and a code over these and the
tenant, made with the ledger's secret. Must never be read without the tenant it is read for.
"""

from __future__ import annotations

import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final

from oncegate.errors import CursorRefused

CURSOR_LENGTH: Final = 34

_VERSION: Final = b"\x01"
_TAG: Final = b"oncegate-cursor-1"
_CODE_BYTES: Final = 16
_POSITION_BYTES: Final = 8
_TEXT: Final = re.compile(rf"[A-Za-z0-9_-]{{{CURSOR_LENGTH}}}")
_REFUSED: Final = "the cursor was not given out here; use the next_cursor of an earlier answer as it is"


class Cursors:
    """Makes and reads the cursors of one ledger."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def make(self, tenant: str, position: int) -> str:
        """The cursor of a place in a tenant's feed."""
        place = position.to_bytes(_POSITION_BYTES, "big")
        raw = _VERSION + place + self._code(tenant, place)
        return urlsafe_b64encode(raw).decode().rstrip("=")

    def read(self, tenant: str, text: str) -> int:
        """The position behind a cursor; raises CursorRefused unless it was made here for this tenant."""
        if _TEXT.fullmatch(text) is None:
            raise CursorRefused(_REFUSED)
        position = int.from_bytes(urlsafe_b64decode(text + "==")[1 : 1 + _POSITION_BYTES], "big")
        # Made anew, it must be the very same text: version, code, and its one spelling.
        if not hmac.compare_digest(self.make(tenant, position), text):
            raise CursorRefused(_REFUSED)
        return position

    def _code(self, tenant: str, place: bytes) -> bytes:
        owner = tenant.encode()
        message = _TAG + len(owner).to_bytes(8, "big") + owner + _VERSION + place
        return hmac.digest(self._secret, message, "sha256")[:_CODE_BYTES]
