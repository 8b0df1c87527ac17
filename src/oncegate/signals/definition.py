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

    def shown(self, value: float) -> str:
        """A value with its unit, as text for people."""
        if self is Unit.RATIO:
            return f"{value:.1%}"
        if self is Unit.COUNT:
            return f"{value:,.0f}"
        return f"{value * 1000:.3g} ms" if 0 < value < 1 else f"{value:,.0f} s"


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
