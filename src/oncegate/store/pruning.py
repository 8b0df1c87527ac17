"""Pruning: forgetting what is final and older than its retention, in short steps."""

from __future__ import annotations

from typing import Final, Protocol

from msgspec import Struct

from oncegate.model.retention import Sighting


class Tenants(Struct, frozen=True):
    """Whose entries are meant: those of `names`, or with `others` those of all tenants but these."""

    names: tuple[str, ...] = ()
    others: bool = True

    def has(self, name: str) -> bool:
        """Whether a tenant's entries are meant."""
        return (name in self.names) != self.others


EVERY_TENANT: Final = Tenants()


class Due(Struct, frozen=True):
    """Which of the entries looked at may be forgotten, and how to go on.

    `last_id` is the last entry looked at. `is_end` says that there are none after it, or that all of these
    were recent: entries are numbered in order of arrival, so nothing older is to be expected beyond.
    """

    entries: tuple[int, ...]
    looked: int
    last_id: int
    is_end: bool


class Forgetting(Struct, frozen=True):
    """Asks to remove these entries of a surface, as far as they are final and from before a moment.

    With `refused`, also those that wait for another try and have done nothing: retryable, and no step of
    them was called.
    """

    surface: str
    before_ms: int
    entries: tuple[int, ...]
    at_ms: int
    actor: str
    refused: bool = False
    tenants: Tenants = EVERY_TENANT


class UnusedNames(Struct, frozen=True):
    """Interned names that no row uses: those not marked yet, those to wait for, those that may go."""

    fresh: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    due: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.fresh or self.waiting or self.due)


class Pruning(Protocol):
    """Forgetting: in steps, each a short unit, so that no writer waits for long."""

    def due(
        self,
        surface: str,
        before_ms: int,
        now_ms: int,
        after_id: int,
        limit: int,
        *,
        refused: bool = False,
        tenants: Tenants = EVERY_TENANT,
    ) -> Due:
        """Looks at the next `limit` entries after an id and names those that may be forgotten.

        These are committed or failed entries of the surface and `tenants`, received and settled before the
        moment; with `refused` also retryable ones whose steps, if any, are all known as not applied. An
        entry received later than `now_ms` was dated by a wrong clock and does not count as recent. Only
        reads; the work is bounded by `limit`, whatever the ledger holds.
        """

    def forget(self, wanted: Forgetting) -> int:
        """Removes entries with their payloads, outcomes and steps, and tells how many.

        What is not final, of another surface or tenant, or from after the moment stays, whatever was asked
        for. The log keeps all it has; if anything was removed, one record says so under entry 0. No id and
        no fence of a removed entry is ever given out again.
        """

    def sight(self, wall_ms: int, *, is_certain: bool = False) -> Sighting:
        """Notes the wall time beside the ledger's own and returns what may be believed of it.

        All sessions of a ledger share one sighting; `model.retention.believe` decides. The first one is
        compared with the newest entry. `is_certain` is a person's word that the wall clock is right.
        """

    def unused_names(self, kept: int, limit: int) -> UnusedNames:
        """Finds up to `limit` interned names that no row uses; none in a ledger of `kept` names or fewer.

        Only reads. A name is due once no memory of any process can hold its number (`stores.naming`). A
        store without interned names has none.
        """

    def drop_names(self, found: UnusedNames) -> int:
        """Marks names as unused, and removes those that were due and are still marked; tells how many.

        The number of a removed name is never given out again.
        """
