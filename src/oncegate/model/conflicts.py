"""Another content that is kept beside a known key: how many, and how its reason names the key.

The gate writes the reason, pages and commands read it back. Must stay readable for both: reasons are
stored, and the log keeps the first one permanently.
"""

from __future__ import annotations

import re
from typing import Final

from oncegate.model.keys import Key
from oncegate.model.surface import Reason

KEPT_MAX: Final = 8  # different contents under one key; a sender with more of them has another problem

LOGGED_MAX: Final = 100  # conflicts of one entry or lane in the log; further ones are only counted

_BEGINS: Final = f"{Reason.CONFLICT.value}: other content under the key "
_KNOWN_KEY: Final = re.compile(re.escape(_BEGINS) + r"([0-9a-f]{48})")


def reason_of(
    known: Key, entry_id: int | None, besides: str | None = None, differs: str | None = None
) -> str:
    """Why it waits: whose key it wanted, in which fields it differs, and what else is wrong with it."""
    where = "of an event in its lane" if entry_id is None else f"of entry {entry_id}"
    fields = "" if differs is None else f"; {differs}"
    also = "" if besides is None else f"; also {besides}"
    return f"{_BEGINS}{known.text} {where}{fields}{also}"


def known_key(reason: str | None) -> Key | None:
    """The key that another content wanted, if the reason says that it is one."""
    found = _KNOWN_KEY.match(reason or "")
    return None if found is None else Key.from_text(found[1])
