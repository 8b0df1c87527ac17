"""Stands in a commit block for a transaction that the caller gave: it refuses to be written through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from oncegate.errors import UsageError
from oncegate.gate.driver.awaiting import Given
from oncegate.store import Outgoing


class TheirTransaction:
    """Stands in a block for a transaction that is the caller's own: they write through that."""

    @property
    def given(self) -> Given:
        """Nothing is done through it, so nothing is kept in mind."""
        return []

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """Says so."""
        raise _write_through_yours()

    def enqueue(self, event: Outgoing) -> Any:
        """Says so."""
        raise _write_through_yours()


THEIRS: Final[Any] = TheirTransaction()


def _write_through_yours() -> UsageError:
    return UsageError(
        "once.commit(tx=…) has joined your own transaction: write through what you gave as tx=, before it; "
        "`with once.commit() as tx:` opens one of the gate's"
    )
