"""Types of events, and which of them a destination takes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

DEFAULT_TYPE: Final = "event"  # of a published event that was given none
TYPE_LENGTH_MAX: Final = 120
TYPES_MAX: Final = 100


def is_type(text: object) -> bool:
    """Whether a text can be a type."""
    return isinstance(text, str) and 0 < len(text) <= TYPE_LENGTH_MAX and text.isprintable()


def is_pattern(text: str) -> bool:
    """Whether a text is a type, or one with `*` at its end, for all types that begin with the rest."""
    return is_type(text) and "*" not in text[:-1]


def takes(patterns: Sequence[str], event_type: str) -> bool:
    """Whether a type is among those that a destination takes; without patterns all are."""
    return not patterns or any(
        event_type.startswith(one[:-1]) if one.endswith("*") else event_type == one for one in patterns
    )
