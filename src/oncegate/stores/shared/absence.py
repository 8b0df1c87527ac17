"""A ledger that is not where it was: what is said of it must not lead to an empty one in its place.

An empty ledger knows no event, so every event that comes again would run again. A process that has had a
ledger open therefore never makes a new one at its address, and never advises to.
"""

from __future__ import annotations

from oncegate.errors import StoreUnavailable


class FilePresence:
    """Whether this process has had the ledger open.

    Read `was_here` before you look whether the ledger is empty: another thread may make it in between.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self.was_here = False

    def seen(self) -> None:
        """The ledger is there."""
        self.was_here = True

    def missing(self) -> StoreUnavailable:
        """The error for an address without a ledger, with the next step."""
        if self.was_here:
            return StoreUnavailable(
                f"the ledger at {self._address} was here and is gone. Find it first: a volume that is not"
                " mounted, a file or folder that was moved or deleted, another database behind the address."
                " Do not create a new one in its place: an empty ledger knows no event, and every event"
                " that comes again would run again"
            )
        return StoreUnavailable(
            f"there is no ledger at {self._address}; if there never was one, run `oncegate migrate`"
        )
