"""What a signal is: its name, its unit, its limits, and the levels it can have."""

from __future__ import annotations

from enum import Enum, IntEnum

from msgspec import Struct


class Level(IntEnum):
    """How much a signal matters now. UNKNOWN is neither right nor wrong: nothing was seen to tell by."""

    UNKNOWN = -1
    OK = 0
    TICKET = 1
    PAGE = 2

    @property
    def label(self) -> str:
        """The word shown to people."""
        return self.name.lower()


class Unit(Enum):
    """What a signal's value counts."""

    RATIO = "ratio"
    SECONDS = "seconds"
    COUNT = "count"


class Definition(Struct, frozen=True):
    """One signal. `ticket` and `page` are the values from which on it matters; None: it never does.

    `query` is the same value in PromQL. `label` is what tells its values apart: a surface, a destination,
    or nothing where there is one value for the whole ledger.
    """

    name: str
    title: str
    unit: Unit
    meaning: str
    action: str
    query: str
    ticket: float | None = None
    page: float | None = None
    label: str = "surface"
