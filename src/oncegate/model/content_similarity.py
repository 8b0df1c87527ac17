"""What two events have in common apart from their ids: hashes of content with some fields left out.

For finding one event under two ids (C6). The numbers are the same in every process, because processes show
them to each other; they have the tenant in them. Must never take a field for an id that may say what the
event is about: with several key fields only values that are plainly drawn by lot count as ids. An id that
stands in the event a second time (an envelope around a payload) is left out there too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final

from msgspec import Struct
from msgspec.json import encode

LEAVES_MAX: Final = 64  # an event with more fields is not compared
DEPTH_MAX: Final = 5
LEAVES_MIN: Final = 2  # what is left besides the ids; less than this many events have in common anyway
NUMBERS_MAX: Final = 8
_BITS: Final = 2**64 - 1
_DRAWN_BY_LOT: Final = re.compile(
    r"[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}"  # UUID
    r"|[0-9A-HJKMNP-TV-Z]{26}"  # ULID
    r"|[0-9a-f]{16,128}"
    r"|(?:[A-Za-z]{1,10}_)?(?=[A-Za-z0-9]*[0-9])(?=[A-Za-z0-9]*[A-Za-z])[A-Za-z0-9]{20,64}"
)
# Numbers that tell parts of a list apart; each part is an event in its own right.
_COUNTERS: Final = re.compile(
    r"(?i).*(line|seq|sequence|index|position|part|page|version|revision|number|no)"
)


class Likeness(Struct, frozen=True, gc=False):
    """An event's content without its ids, and the same without each of its numbers; signed, of 64 bits."""

    ids: tuple[str, ...]
    whole: int
    without: tuple[tuple[str, int], ...]


def likeness_of(
    event: object, key_paths: Iterable[str], ignored: Iterable[str] = (), tenant: str = ""
) -> Likeness | None:
    """Hashes an event without its ids; None if there is no id or too little else to compare."""
    if not isinstance(event, dict):
        return None
    leaves = dict(_leaves(event, "", 1))
    if len(leaves) > 2 * LEAVES_MAX:
        return None
    keys = [path for path in key_paths if path in leaves]
    ids = keys if len(keys) == 1 else [path for path in keys if _is_drawn_by_lot(leaves[path])]
    left_out = {*ids, *_copies(leaves, ids), *(path for path in leaves if _is_below(path, ignored))}
    hashes = {path: _hash(path, value) for path, value in leaves.items() if path not in left_out}
    if not ids or not LEAVES_MIN <= len(hashes) <= LEAVES_MAX:
        return None
    whole = sum(hashes.values()) & _BITS
    numbers = [path for path in hashes if path not in keys and _is_amount(path, leaves[path])]
    without = tuple(
        (path, _signed(tenant, path, (whole - hashes[path]) & _BITS))
        for path in sorted(numbers)[:NUMBERS_MAX]
    )
    return Likeness(tuple(ids), _signed(tenant, "", whole), without)


def _copies(leaves: Mapping[str, Any], ids: Iterable[str]) -> Iterator[str]:
    """Where else an id stands: the same text drawn by lot, or the same value under the same name."""
    for path in ids:
        value, name = leaves[path], path.rpartition(".")[2]
        drawn = _is_drawn_by_lot(value)
        for other, found in leaves.items():
            is_copy = type(found) is type(value) and found == value
            if is_copy and (drawn or other.rpartition(".")[2] == name):
                yield other


def _leaves(node: Mapping[str, Any], prefix: str, depth: int) -> Iterator[tuple[str, Any]]:
    for name, value in node.items():
        if isinstance(value, dict) and depth < DEPTH_MAX:
            yield from _leaves(value, f"{prefix}{name}.", depth + 1)
        else:
            yield f"{prefix}{name}", value


def _hash(path: str, value: Any) -> int:
    # One text, not a tuple: tuples are hashed so nearly linearly that swapped values give the same sum.
    body = encode(value) if isinstance(value, (dict, list)) else value
    return _number(f"{path}\0{type(value).__name__}\0{body!r}")


def _number(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def _signed(tenant: str, path: str, content: int) -> int:
    """What is kept of a content: whole contents and those without a number never meet, nor do tenants."""
    found = _number(f"{len(tenant)}\0{tenant}\0{path}\0{content}")
    return found - 2**64 if found >= 2**63 else found


def _is_drawn_by_lot(value: Any) -> bool:
    return isinstance(value, str) and _DRAWN_BY_LOT.fullmatch(value) is not None


def _is_amount(path: str, value: Any) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and _COUNTERS.fullmatch(path) is None


def _is_below(path: str, ignored: Iterable[str]) -> bool:
    return any(path == name or path.startswith(f"{name}.") for name in ignored)
