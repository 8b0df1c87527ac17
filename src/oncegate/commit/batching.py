"""Which tickets share a transaction, and what becomes of those that cannot.

Where a store has one writer, all that waits is one transaction: such a store keeps nothing for the length
of one but rows. Elsewhere operations of one kind share one, apart from those that carry users' statements,
and of these only such as have one statement each. Must never let an event reach another one: by what its
statements leave until the transaction ends, by their failure, or by a lock that they wait for. Where a
store is several ledgers (`place_of`), those of one ledger share one: no batch holds two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncegate.commit.blocked import BlockedOperations
from oncegate.commit.operations import Operation
from oncegate.commit.pending import Pending, by_kind
from oncegate.commit.transactions import Transactions
from oncegate.model.sql_guard import Carries

PlaceOf = Callable[[bytes], int | None]  # which ledger of several has a key


def by_place(tickets: list[Pending], place_of: PlaceOf) -> list[list[Pending]]:
    """Tickets that a store of several ledgers can run in one transaction; those without a key go alone."""
    shared = share_out(tickets, place_of)
    alone = shared.pop(None, [])
    return [*shared.values(), *([ticket] for ticket in alone)]


def share_out(tickets: list[Pending], place_of: PlaceOf) -> dict[object, list[Pending]]:
    """Tickets by the ledger that has their key; None where there is no key, or none has it now."""
    groups: dict[object, list[Pending]] = {}
    for ticket in tickets:
        request = ticket.operation.request
        key = request if isinstance(request, bytes) else getattr(request, "key", None)
        groups.setdefault(None if key is None else place_of(key), []).append(ticket)
    return groups


class Batching:
    """Runs batches on a store, in as few transactions as is right."""

    def __init__(self, units: Transactions, *, one_writer: bool, place_of: PlaceOf | None = None) -> None:
        self._units = units
        self._place_of = place_of
        self._one_writer = one_writer
        self._needs_own = Carries.SCOPED if one_writer else Carries.SEVERAL
        self.apart = BlockedOperations(self._run_by_itself)

    def is_own(self, operation: Operation[Any]) -> bool:
        """Whether an operation has a transaction of its own."""
        return operation.carries >= self._needs_own

    def split(self, tickets: list[Pending]) -> tuple[list[Pending], list[Pending]]:
        """Those that may share a transaction, and those that have their own."""
        least = self._needs_own
        own = {ticket: None for ticket in tickets if ticket.operation.carries >= least}
        return ([one for one in tickets if one not in own] if own else tickets), list(own)

    def run(self, tickets: list[Pending], *, wait: bool) -> list[Pending]:
        """Runs tickets; returns those that have an answer or an error now.

        Others run apart and are answered there: another lock blocks them. Raises StoreBusy only
        without `wait`, and nothing was done then.
        """
        busy: set[Pending] = set()
        for group in self._groups(tickets):
            found = self._units.run(group, wait=wait)
            self.apart.add(found, patient=len(found) < len(group) or len(group) == 1)
            busy.update(found)
            wait = True  # from here on something has been done
        return [ticket for ticket in tickets if ticket not in busy] if busy else tickets

    def _groups(self, tickets: list[Pending]) -> list[list[Pending]]:
        if len(tickets) == 1:
            return [tickets]
        shared, own = self.split(tickets)
        groups = [shared] if self._one_writer and shared else by_kind(shared)
        if self._place_of is not None:
            groups = [part for group in groups for part in by_place(group, self._place_of)]
        return groups + [[ticket] for ticket in own]

    def _run_by_itself(self, ticket: Pending, patient: bool) -> bool:
        """Runs one ticket beside the writers; False if a lock is in its way, and nothing was done then."""
        return not self._units.run([ticket], wait=True, patient=patient)
