"""The order in which a batch's business writes are sent, the same for every store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from oncegate.store import Statement


def by_position(batches: Sequence[tuple[Statement, ...]]) -> Iterable[Statement]:
    """Orders many settlements' statements so that equal texts meet, each one's own kept in order."""
    longest = max((len(batch) for batch in batches), default=0)
    for position in range(longest):
        column = [batch[position] for batch in batches if len(batch) > position]
        yield from sorted(column, key=lambda statement: statement[0])
