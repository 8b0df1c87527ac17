"""Fields that alone make events of many keys conflict: most likely they change with each sending.

In the memory of one process, and bounded. Only words are made of it: a person decides what to ignore.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from oncegate.model.differences import ignore_hint

KEYS_MIN: Final = 3  # different keys whose conflicts differ in this field alone
PLACES_MAX: Final = 1000


class VolatileFields:
    """Counts, for each field of a surface, the keys that conflicted because of it alone."""

    def __init__(self) -> None:
        self._keys: dict[tuple[str, str], set[bytes]] = {}
        self._lock = threading.Lock()

    def note(self, surface: str, names: Sequence[str], key: bytes) -> str | None:
        """Notes a conflict; returns what to write where its only field differs in event after event."""
        if len(names) != 1:
            return None
        place = (surface, names[0])
        with self._lock:
            known = self._keys.get(place)
            if known is None:
                if len(self._keys) >= PLACES_MAX:
                    self._keys.clear()
                known = self._keys[place] = set()
            if len(known) < KEYS_MIN:
                known.add(key)
            return ignore_hint(names[0]) if len(known) >= KEYS_MIN else None
