"""In which fields two contents of one key differ: their names, never their values. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import msgspec

from oncegate.model.paths import MISSING
from oncegate.model.same_values import Place, spelled_fields

NAMES_MAX: Final = 12
NAME_LENGTH_MAX: Final = 80
_DEPTH_MAX: Final = 6


def differing(
    one: bytes | None,
    other: bytes | None,
    *,
    ignore: Collection[str] = (),
    places: Mapping[str, Place] | None = None,
) -> list[str] | None:
    """The names of the fields in which two events differ; None where one is not kept or not JSON.

    `ignore` are fields that are not compared, with all that is below them. `places` are where equal values
    may be spelled in two ways.
    """
    first, second = read_event(one), read_event(other)
    if not isinstance(first, dict) or not isinstance(second, dict):
        return None
    if places:
        first, second = spelled_fields(first, places), spelled_fields(second, places)
    left, right = dict(_leaves(first)), dict(_leaves(second))
    names = [name for name in {**left, **right} if left.get(name, MISSING) != right.get(name, MISSING)]
    return [name for name in names if not any(_is_within(name, path) for path in ignore)]


def names_text(names: Collection[str]) -> str:
    """Names of fields as a short text."""
    shown = [name[:NAME_LENGTH_MAX] for name in list(names)[:NAMES_MAX]]
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return f"{', '.join(shown)}{more}"


def ignore_hint(name: str) -> str:
    """What to write where a field differs in event after event."""
    return f'{name} looks volatile: add ignore=["{name[:NAME_LENGTH_MAX]}"]'


def read_event(body: bytes | None) -> Any:
    """A stored event; None where there is none, or it is not JSON."""
    try:
        return msgspec.json.decode(body) if body else None
    except msgspec.DecodeError:
        return None


def _is_within(name: str, path: str) -> bool:
    return name == path or name.startswith(f"{path}.")


def _leaves(node: dict[str, Any], prefix: str = "", depth: int = 1) -> Iterator[tuple[str, Any]]:
    for name, value in node.items():
        if isinstance(value, dict) and value and depth < _DEPTH_MAX:
            yield from _leaves(value, f"{prefix}{name}.", depth + 1)
        else:
            yield f"{prefix}{name}", value
