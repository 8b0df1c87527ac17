"""What realtime calls and the confirmation of one window say of the same work, and where they differ (F8).

Realtime is best effort; a confirmation is the sum of its window. Pure: readings in, differences out. A
quantity that is no number counts as one piece. Nothing is guessed about an event without a window or item.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from msgspec import Struct, field

from oncegate.model.paths import lookup, parse_path

ITEMS_MAX: Final = 10_000  # of one window; more are not compared one by one
EXAMPLES_MAX: Final = 5
NAME_LENGTH_MAX: Final = 120

Sums = dict[str, Decimal]


class DriftFields(Struct, frozen=True):
    """Where calls name their window, item and quantity; a confirmation has its items in `lines`."""

    window: str = "window"
    item: str = "item"
    quantity: str = "quantity"
    lines: str = "lines"

    def __post_init__(self) -> None:
        for path in (self.window, self.item, self.quantity, self.lines):
            parse_path(path)


class Reading(Struct, frozen=True):
    """What one call says: of which window, and how much of what."""

    window: str
    sums: Sums


def read_call(payload: object, fields: DriftFields) -> Reading | None:
    """Reads a realtime call or a confirmation; None if it names no window."""
    window = _name(lookup(payload, parse_path(fields.window)))
    if window is None:
        return None
    lines = lookup(payload, parse_path(fields.lines))
    sums: Sums = {}
    for line in lines if isinstance(lines, list) else [payload]:
        for item, quantity in _amount(line, fields):
            sums[item] = sums.get(item, Decimal(0)) + quantity
    return Reading(window, sums)


def _amount(line: object, fields: DriftFields) -> Iterator[tuple[str, Decimal]]:
    item = _name(lookup(line, parse_path(fields.item))) if isinstance(line, Mapping) else None
    if item is not None:
        quantity = lookup(line, parse_path(fields.quantity))
        is_number = isinstance(quantity, (int, float)) and not isinstance(quantity, bool)
        yield item, Decimal(str(quantity)) if is_number else Decimal(1)


def _name(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return None
    return str(value)[:NAME_LENGTH_MAX] or None


class Side(Struct):
    """What one side has said of a window so far."""

    calls: int = 0
    first_at_ms: int = 0
    last_at_ms: int = 0
    sums: Sums = field(default_factory=dict)

    def add(self, reading: Reading, at_ms: int) -> None:
        """One more call."""
        self.first_at_ms = min(self.first_at_ms, at_ms) if self.calls else at_ms
        self.calls += 1
        self.last_at_ms = max(self.last_at_ms, at_ms)
        for item, quantity in reading.sums.items():
            if item in self.sums or len(self.sums) < ITEMS_MAX:
                self.sums[item] = self.sums.get(item, Decimal(0)) + quantity


class Drift(Struct, frozen=True):
    """A window in which the two sides differ: in items that only one has, and in quantities of both.

    `examples` are a few of these items. A window that is `unconfirmed` has no confirmation at all.
    """

    tenant: str
    partner: str
    window: str
    realtime_calls: int
    realtime_items: int
    confirmed_items: int
    only_realtime: int
    only_confirmed: int
    differing: int
    unconfirmed: bool
    last_at_ms: int
    examples: tuple[str, ...]


def compare(place: tuple[str, str, str], realtime: Side, confirmed: Side | None) -> Drift | None:
    """What is different in a window; None if nothing is."""
    there = confirmed.sums if confirmed is not None else {}
    only_realtime = sorted(set(realtime.sums) - set(there))
    only_confirmed = sorted(set(there) - set(realtime.sums))
    differing = sorted(
        item for item in set(there) & set(realtime.sums) if there[item] != realtime.sums[item]
    )
    found = [*differing, *only_realtime, *only_confirmed]
    if not found and confirmed is not None:
        return None
    last_at_ms = max(realtime.last_at_ms, 0 if confirmed is None else confirmed.last_at_ms)
    return Drift(
        *place,
        realtime_calls=realtime.calls,
        realtime_items=len(realtime.sums),
        confirmed_items=len(there),
        only_realtime=len(only_realtime),
        only_confirmed=len(only_confirmed),
        differing=len(differing),
        unconfirmed=confirmed is None,
        last_at_ms=last_at_ms,
        examples=tuple(found[:EXAMPLES_MAX]),
    )
