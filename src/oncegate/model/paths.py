"""Dotted paths into an event: `data.object.id`, `items.0.id`.

Called by key templates and by the fingerprint. Must never raise on an event, whatever its shape:
what is not there is MISSING.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

from oncegate.errors import ConfigError


class Missing(Enum):
    """The type of MISSING, which no event can contain."""

    MISSING = "missing"

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing.MISSING

# One spelling per element: 01 is not an index, and an absurd number is never converted.
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")


def parse_path(text: str) -> tuple[str, ...]:
    """Return the components of a dotted path; an empty component is a ConfigError."""
    components = tuple(text.split("."))
    if "" in components:
        raise ConfigError(f"path {text[:40]!a} has an empty component; write it as a.b.c")
    return components


def lookup(payload: object, path: tuple[str, ...]) -> object:
    """Return what `path` leads to inside `payload`, or MISSING."""
    value = payload
    for component in path:
        # dict is named first: the check against Mapping alone is several times slower.
        if isinstance(value, (dict, Mapping)):
            value = value.get(component, MISSING)
        elif isinstance(value, (list, tuple)):
            value = _element(value, component)
        else:
            return MISSING
    return value


def _element(values: Sequence[object], component: str) -> object:
    if _INDEX.fullmatch(component) is None:
        return MISSING
    index = int(component)
    return values[index] if index < len(values) else MISSING
