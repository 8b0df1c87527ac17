"""A framework's own transactions, as the gate joins them where the program names none.

`oncegate.contrib.django` brings one. Without one the gate joins only what is given as `tx=`.
"""

from __future__ import annotations

from typing import Protocol

from oncegate.gate.surface import Surface


class AmbientTransactions(Protocol):
    """Where the framework keeps the calling thread's open transaction."""

    def open_one(self, surface: Surface, *, admitting: bool = False) -> object | None:
        """The calling thread's open transaction on the ledger's database; None where there is none.

        With `admitting` it raises UsageError where the ledger would wait for that transaction itself.
        """

    def with_own(self, surface: Surface) -> Surface:
        """A same-database surface whose handler opens the framework's transaction itself."""
