"""The order in which a batch's business writes are sent, the same for every store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from oncegate.store import Statement


def in_turn(batches: Sequence[tuple[Statement, ...]]) -> Iterable[Statement]:
    """Orders many events' statements: one event after the other, each one's next to each other.

    Events of one statement each have no order of their own, so that equal texts may meet.
    """
    if all(len(batch) == 1 for batch in batches):
        return sorted((batch[0] for batch in batches), key=lambda statement: statement[0])
    return [statement for batch in batches for statement in batch]
