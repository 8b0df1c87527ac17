"""Bodies that were admitted before, told by their bytes: most repeats are the same to the last one.

Such a body need not be read again to know its key and content; whether it is a replay is still the gate's
to say, and its signature was checked before any look here. Bounded; safe to lose.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from oncegate.gate.admission import Familiar

BODIES_MAX: Final = 20_000


Mark = tuple[str, bytes]


class FamiliarBodies:
    """What bodies at a service's surfaces stand for; the oldest are dropped first."""

    def __init__(self, bodies_max: int = BODIES_MAX) -> None:
        self._known: dict[Mark, Familiar] = {}
        self._bodies_max = bodies_max

    def find(self, surface: str, body: bytes) -> tuple[Mark, Familiar | None]:
        """What a body is known by, and what these bytes stood for at this surface if they were there."""
        mark = (surface, sha256(body).digest())
        return mark, self._known.get(mark)

    def learn(self, mark: Mark, known: Familiar) -> None:
        """Remembers a body."""
        if len(self._known) >= self._bodies_max:
            self._known.pop(next(iter(self._known)), None)
        self._known[mark] = known
