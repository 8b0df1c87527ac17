"""What a gate says to bytes: a replay of those that are known, quarantine for those that are no event."""

from __future__ import annotations

from oncegate.gate.admission import Admission, Familiar, Verdict, from_memory
from oncegate.gate.driver.drivers import Driver
from oncegate.gate.flows.unreadable import RawMessage, unreadable_flow
from oncegate.gate.registration import Declarations
from oncegate.gate.runtime.context import GateContext
from oncegate.model.keys import Key


async def quarantine(gate: Recalling, surface: str, raw: RawMessage) -> None:
    """Keeps a message that is no event in quarantine, with its bytes."""
    await gate.driver.run_async(unreadable_flow(gate._context, gate.surface(surface), raw))


class Recalling(Declarations):
    """What a gate's engine answers to familiar bytes."""

    driver: Driver
    _context: GateContext
    _is_watched = False  # whether an observer wants to see every event itself, or every flow

    def obey(self) -> None:
        """Reads what people decided about surfaces, if it is time to; for workers without arrivals."""
        self._context.decided.read_in_turn()

    def recall(self, surface: str, known: Familiar) -> Admission | None:
        """The replay of an arrival that is the same to the byte as an earlier one, if memory has it."""
        if self._is_watched:
            return None
        registered = self.surface(surface)
        if not registered.is_plain:
            return None
        found = self._context.cache.get(known.key.digest)
        if found is None or found.fingerprint != known.fingerprint:
            return None
        self._context.sightings.remembered(registered.rule, found, known.key)
        return from_memory(known.key, found, registered.codec)

    def familiar(self, admission: Admission) -> Familiar | None:
        """What to show `recall` when the bytes of this replay come again; None if it is not in memory."""
        if admission.verdict is not Verdict.REPLAY:
            return None
        key = Key.from_text(admission.key)
        found = self._context.cache.get(key.digest)
        return None if found is None else Familiar(key, found.fingerprint)
