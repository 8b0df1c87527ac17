"""Keyed hashes of values: equal values stay equal, others differ, and nothing can be read back.

The shape stays what it was, so that an event that could be read still can, and one that could not still
cannot: a text becomes a text, a number a number, an empty value stays empty, null stays null. The key is
never written anywhere; without it a guess cannot be checked.
"""

from __future__ import annotations

import hmac
import re
import secrets
from typing import Any, Final

from oncegate.errors import ConfigError
from oncegate.model.canonical import canonical_json

KEY_BYTES_MIN: Final = 16
MARK: Final = "~"  # what a hashed text begins with
# 16 digits and below 2**53: numbers that every JSON reader keeps as they are.
_LOWEST: Final = 10**15
_NUMBERS: Final = 8 * 10**15
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,254}")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class Pseudonyms:
    """One key's hashes. Recordings that are to be compared are made with the same key."""

    def __init__(self, key: bytes | None = None) -> None:
        if key is not None and len(key) < KEY_BYTES_MIN:
            raise ConfigError(f"the key for hashes is {len(key)} bytes; give at least {KEY_BYTES_MIN}")
        self._key = key if key is not None else secrets.token_bytes(32)

    def of_bytes(self, kind: str, value: bytes) -> str:
        """A short name for some bytes; the same bytes of another kind have another."""
        return self._digest(kind, value).hex()[:24]

    def of_text(self, text: str) -> str:
        """A text for a text; one that reads as a number or a UUID gets another one of those."""
        if not text:
            return text
        if _INTEGER.fullmatch(text):
            return str(self._number(text))
        if _UUID.fullmatch(text):
            digits = self._digest("uuid", text.lower().encode()).hex()
            return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-8{digits[17:20]}-{digits[20:32]}"
        return MARK + self.of_bytes("text", text.encode("utf-8", "surrogatepass"))

    def of(self, value: Any, path: str) -> Any:
        """A value of the same shape for any value of an event.

        Texts and whole numbers are the same wherever they stand, so that a number that two fields share is
        still shared. What has few possible values is hashed with its path, or one known flag would give
        away all the others.
        """
        if value is None or isinstance(value, str):
            return value if value is None else self.of_text(value)
        if isinstance(value, bool):
            return value is not bool(self._digest("bool", path.encode())[0] & 1)
        if isinstance(value, int):
            return self._number(str(value))
        if isinstance(value, float):
            return self._number(f"{path} {value!r}") + 0.5
        return self._container(value, path)

    def _container(self, value: Any, path: str) -> Any:
        """One element for all of them: neither names nor lengths below it are shown."""
        if not value:
            return value
        name = MARK + self.of_bytes("tree", path.encode() + b"\0" + canonical_json(value))
        return {MARK: name} if isinstance(value, dict) else [name]

    def _number(self, text: str) -> int:
        return int.from_bytes(self._digest("number", text.encode())[:8]) % _NUMBERS + _LOWEST

    def _digest(self, kind: str, value: bytes) -> bytes:
        return hmac.digest(self._key, kind.encode() + b"\0" + value, "sha256")
