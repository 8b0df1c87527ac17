# mypy: ignore-errors
"""oncegate on a Valkey ledger as a subject: the guarded effect, and no business row."""

from __future__ import annotations

import stand

from oncegate import Gate, Verdict


class OncegateOnValkey(stand.Subject):
    """One gate, one surface, one downstream that honours the key."""

    tasks = True

    def open(self):
        """Opens the ledger on the server that the driver started."""
        self.gate = Gate(f"redis+unix://{self.settings.url}")
        terminal = self.gate.downstream("terminal", honours_key="1d")

        @self.gate.handler(
            "bench", key="{notificationId}:{equipment_number}", retention="72h", retention_floor="72h"
        )
        async def book(event, once):
            return {"slot": await once.effect(terminal, self.claim_slot, stand.key_of(event))}

        return {"ledger": self.gate.engine.store.capabilities.durability.value}

    async def claim_slot(self, ref, idempotency_key):
        """The effect."""
        return self.downstream.call(idempotency_key)

    async def work(self, event):
        """Admits one event; whatever is not an outcome is a refusal."""
        admission = await self.gate.admit("bench", event)
        if admission.verdict not in (Verdict.RUN, Verdict.REPLAY):
            raise RuntimeError(f"{admission.verdict.name}")
        return admission.value


if __name__ == "__main__":
    stand.serve(OncegateOnValkey)
