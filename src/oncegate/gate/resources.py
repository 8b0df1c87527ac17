"""What a downstream handed out: its id, found in what a call returned, as text that any store can keep."""

from __future__ import annotations

from typing import Any, Final

_BARE: Final = frozenset({str, bytes, int, float, bool, type(None)})  # nothing to look for inside


def readable(text: str) -> str:
    """Text that any store can keep: halves of surrogate pairs and NUL are replaced."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", "replace").decode().replace("\0", " ")


def resource_of(result: Any) -> str | None:
    """Finds the id of what a downstream handed out, where a result shows one plainly."""
    if type(result) in _BARE:
        return None
    for attribute in ("resource_id", "id"):
        found = result.get(attribute) if isinstance(result, dict) else getattr(result, attribute, None)
        if isinstance(found, (str, int)) and not isinstance(found, bool):
            return readable(str(found))[:200]
    return None
