"""One attempt at a delivery: its event meets the gate, and the ledger says what is on record."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from oncegate.commit.operations import Operation
from oncegate.errors import (
    Backlogged,
    EventError,
    EventNotStorable,
    Quarantined,
    StoreUnavailable,
    StoreUnknown,
)
from oncegate.gate.admission import Verdict
from oncegate.gate.facade import GateOnStore
from oncegate.gate.flows.unreadable import RawMessage
from oncegate.gate.recalling import quarantine
from oncegate.model.backoff import Backoff
from oncegate.model.surface import NAME_LENGTH_MAX
from oncegate.sources.contract import Traits
from oncegate.sources.decisions import (
    NOT_KEPT_SECONDS,
    AskLedger,
    Decided,
    Later,
    LedgerAway,
    OnRecord,
    Poisoned,
    after_admission,
    after_error,
    by_ledger,
)
from oncegate.sources.held import HeldDelivery
from oncegate.sources.options import Consumption
from oncegate.store import ClaimSession, Entry

_AGAIN: Final = Backoff(base=timedelta(seconds=1), cap=timedelta(minutes=5), retry_for=None)
_ATTEMPTS_COUNTED: Final = 20  # beyond, the wait does not grow


class ReadStanding(Operation[tuple[Entry | None, int]]):
    """Reads an entry by its key, and the ledger's time."""

    request: bytes

    @classmethod
    def run(
        cls, session: ClaimSession, operations: Sequence[ReadStanding]
    ) -> Sequence[tuple[Entry | None, int]]:
        """Reads many."""
        now = session.now_ticks()
        return [(entry, now) for entry in session.read([operation.request for operation in operations])]

    def recall(self, session: ClaimSession) -> tuple[Entry | None, int]:
        """Reads again."""
        return session.read([self.request])[0], session.now_ticks()


class GateAttempts:
    """Brings the deliveries of one source to the gate."""

    def __init__(self, gate: GateOnStore, one: Consumption) -> None:
        self._gate, self._one = gate, one
        has_author = gate.engine.surface(one.surface).rule.actor is not None
        self._author = None if has_author else f"source/{one.name}"[:NAME_LENGTH_MAX]
        self._keeps_bodies = gate.engine.store.capabilities.keeps_bodies

    async def attempt(self, held: HeldDelivery) -> Decided:
        """Admits the event; after an error, what the gate recorded about it counts."""
        if held.poison is not None:
            return Poisoned(held.poison)
        one = self._one
        try:
            admission = await self._gate.admit(
                one.surface, held.event, tenant=one.tenant, context=held.context, actor=self._author
            )
        except Exception as error:  # noqa: BLE001  a handler may raise anything; the ledger decides
            decided = after_error(error)
            if isinstance(decided, Poisoned) and self._is_readable(held):
                decided = AskLedger(error)  # about another event, which the handler brought to a gate
            return await self._asked(held, decided.error) if isinstance(decided, AskLedger) else decided
        if admission.verdict is Verdict.HOLD and not self._keeps_bodies:
            return Poisoned(f"{admission.reason}; it waits for a person, and this ledger keeps no events")
        return after_admission(admission)

    def _is_readable(self, held: HeldDelivery) -> bool:
        try:
            self._gate.engine.arrival_of(self._one.surface, held.event, self._one.tenant)
        except EventError:
            return False
        return True

    async def _asked(self, held: HeldDelivery, error: BaseException) -> Decided:
        """What the entry says, in the ledger's own time."""
        why = f"{type(error).__name__}: {error}"
        try:
            arrival = self._gate.engine.arrival_of(self._one.surface, held.event, self._one.tenant)
            entry, now = await self._gate.engine.submit(ReadStanding(arrival.key.digest))
        except (StoreUnavailable, StoreUnknown) as away:
            return LedgerAway(f"{type(away).__name__}: {away}")
        if entry is not None and not self._keeps_bodies and entry.state.label == "held":
            return Poisoned(f"{entry.reason}; it waits for a person, and this ledger keeps no events")
        count = min(max(held.attempts, held.delivery.times_delivered or 1), _ATTEMPTS_COUNTED)
        again = getattr(error, "retry_after_seconds", None) or _AGAIN.ceiling(count).total_seconds()
        if entry is not None and entry.fingerprint != arrival.fingerprint:
            return Later(again, f"{why}; the key is known with another content, which is not kept yet")
        return by_ledger(entry, now, why, again)

    async def keep_poison(self, held: HeldDelivery, reason: str, traits: Traits) -> Decided:
        """Puts a message that is no event into quarantine with its bytes; Later where it cannot be kept."""
        delivery, one = held.delivery, self._one
        origin = f"{traits.kind} {traits.queue}, message {delivery.message_id}"
        raw = RawMessage(delivery.body, reason, origin, delivery.headers, one.tenant or "")
        try:
            await quarantine(self._gate.engine, one.surface, raw)
        except (StoreUnavailable, StoreUnknown) as away:
            return LedgerAway(f"{type(away).__name__}: {away}")
        except (Backlogged, EventNotStorable, Quarantined) as refused:
            return Later(
                getattr(refused, "retry_after_seconds", None) or NOT_KEPT_SECONDS,
                f"message {delivery.message_id} is no event ({reason}) and is not kept: {refused}; remove"
                " it from the queue, or give the queue dead letters and set poison = 'dead-letter'",
            )
        return OnRecord()
