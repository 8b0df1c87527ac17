"""How large a JSON document may be, in one place: what is sent here can be received here.

The gate, the service, the sender, the feed and the receiver all read their limits from this file. Must
never be tightened: what is stored or under way would be refused on its next hop.
"""

from __future__ import annotations

import re
from typing import Final

DEPTH_MAX: Final = 64  # of arrays and objects within each other
DIGITS_MAX: Final = 40  # of a whole number; ids have fewer
VALUES_MAX: Final = 50_000  # of one body: its members, elements and the arrays and objects around them
# What is sent stands inside the body around it, and that inside the receiver's event with its id.
CARRIED_DEPTH_MAX: Final = DEPTH_MAX - 2
CARRIED_VALUES_MAX: Final = VALUES_MAX - 50

# Never fails once begun and never goes back: an unended string must not be looked at again and again.
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_OUTSIDE: Final = re.compile(rb'(?:"(?:[^"\\]|\\.)*+"?)?([^"]*)', re.DOTALL)  # a string, and what follows
_NO_BRACKETS: Final = bytes(sorted(set(range(256)) - set(b"[]{}")))
_DIGITS: Final = re.compile(rb"[0-9]{%d}" % (DIGITS_MAX + 1))


def is_nested_beyond(body: bytes, most: int) -> bool:
    """Tells whether a JSON text is nested deeper than so; few brackets need no counting."""
    if body.count(b"[") + body.count(b"{") <= most:
        return False
    depth = 0
    for byte in _STRING.sub(b"", body).translate(None, _NO_BRACKETS):
        if byte in b"[{":
            depth += 1
            if depth > most:
                return True
        else:
            depth -= 1
    return False


def values_at_most(body: bytes) -> int:
    """How many values a JSON text can have, at once; commas in its strings count too."""
    return 1 + body.count(b",") + body.count(b"[") + body.count(b"{")


def has_more_values(body: bytes, most: int) -> bool:
    """Tells whether a JSON text has more values than so; texts with few commas need no closer look."""
    if values_at_most(body) <= most:
        return False
    count = 1
    for found in _OUTSIDE.finditer(body):
        outside = found[1]
        count += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
        count -= outside.count(b"[]") + outside.count(b"{}")
        if count > most:
            return True
    return False


def cannot_be_carried(body: bytes) -> str | None:
    """Why canonical JSON could not be received where it is sent, if it could not."""
    if has_more_values(body, CARRIED_VALUES_MAX):
        return f"has more than {CARRIED_VALUES_MAX} JSON values"
    if is_nested_beyond(body, CARRIED_DEPTH_MAX):
        return f"is nested more than {CARRIED_DEPTH_MAX} deep"
    if _DIGITS.search(body) is not None and _DIGITS.search(_STRING.sub(b"", body)) is not None:
        return f"has a whole number of more than {DIGITS_MAX} digits"
    return None
