"""How the handler of an event is started once it may run."""

from __future__ import annotations

from asyncio import CancelledError
from typing import Any, Final

from msgspec import Struct

from oncegate.gate.codec.declared_types import ABSENT
from oncegate.gate.codec.reading import read_again
from oncegate.gate.driver.drivers import Driver
from oncegate.gate.driver.requests import Flow, Invoke, Where
from oncegate.gate.flows.effects import opaque_flow
from oncegate.gate.flows.key_injection import put_back
from oncegate.gate.flows.recovery import check_handler, recorded_result
from oncegate.gate.flows.transactions import OpenTransaction
from oncegate.gate.once import AsyncOnce, Once
from oncegate.gate.runtime.claim import Claim, checked
from oncegate.gate.runtime.context import GateContext
from oncegate.gate.runtime.tracing import correlated, current_claim, link_flow
from oncegate.model.trace import Context
from oncegate.store import Joined

_CALL: Final = Where.CALL


class HandlerStart(Struct, frozen=True):
    """An event on its way to its handler; one value, because every event in flight has one."""

    gate: GateContext
    driver: Driver
    event: Any
    context: Context | None
    given: Any = ABSENT

    def __call__(self, claim: Claim, transaction: OpenTransaction | Joined | None = None) -> Flow[Any]:
        """Calls the handler; what it emits meanwhile belongs to this claim's journey."""
        gate, context, given = self.gate, self.context, self.given
        if claim.surface.correlation is not None:
            context = correlated(claim.surface.correlation, self.event, context)
        if (context is not None or not claim.is_new) and gate.has_stats:
            claim.context = context
            yield from link_flow(claim, in_transaction=transaction is not None)
        if not claim.is_first_attempt and (said := check_handler(claim)) is not None:
            claim.resource = said.resource
            return recorded_result(said, claim.surface.codec)
        if given is ABSENT:
            reader = claim.surface.reader
            given = self.event if reader is None else read_again(reader, self.event)
        token = current_claim.set(claim)
        try:
            request = self._request(claim, given, transaction)
            if request is None:
                return (yield from opaque_flow(gate, claim, claim.surface.handler, (given,)))
            try:
                return (yield request)
            except CancelledError:
                claim.left = request.left
                raise
        finally:
            put_back(current_claim, token)

    def _request(
        self, claim: Claim, given: Any, transaction: OpenTransaction | Joined | None
    ) -> Invoke | None:
        """How the handler is called; None for one that knows nothing of the gate."""
        surface = claim.surface
        where = _CALL
        if transaction is not None and not isinstance(transaction, OpenTransaction):
            where = Where.HERE  # the caller's own
        if surface.writes is not None:
            claim.writes += checked(surface.writes(self.event))
        if surface.takes_once:
            is_async = surface.is_async
            once = (AsyncOnce if is_async else Once)(self.gate, self.driver, claim, transaction)
            return Invoke(surface.handler, (given, once), where=where, is_async=is_async)
        return None if transaction is None else Invoke(surface.handler, (given,), where=where)
