# mypy: ignore-errors
"""oncegate as a subject among its peers: the business row is data, the downstream can be asked."""

from __future__ import annotations

import stand

from oncegate import Gate, Verdict

INSERT = "INSERT INTO booking VALUES (?, ?, ?)"


class Oncegate(stand.Subject):
    """One gate, one surface, one downstream that can be asked by key."""

    tasks = True

    def open(self):
        """Opens the ledger, with the business table beside it."""
        settings = self.settings
        url = settings.url if settings.store == "postgres" else f"sqlite:///{settings.url}"
        self.gate = Gate(url)
        session = self.gate.engine.store.connect()
        with session.unit():
            session.execute(stand.CREATE_BOOKING, ())
        session.close()
        # How long a request may still arrive after its sender died: on this machine, not at all.
        terminal = self.gate.downstream(
            "terminal", probe=self.downstream.owned_by, request_life_max=f"{settings.lease_s:g}s"
        )

        @self.gate.handler(
            "bench", key="{notificationId}:{equipment_number}", lease=f"{settings.lease_s:g}s"
        )
        async def book(event, once):
            ref = stand.key_of(event)
            self.downstream.approach()
            slot = await once.effect(terminal, self.claim_slot, ref)
            once.commit(resource=slot, writes=[(INSERT, (ref, event["equipment_number"], slot))])
            return {"slot": slot}

        return {"durability": "synchronous=FULL" if settings.store == "sqlite" else "fsync on"}

    async def claim_slot(self, ref, idempotency_key):
        """The effect."""
        return self.downstream.call(idempotency_key, approached=True)

    async def work(self, event):
        """Admits one event; whatever is not an outcome is a refusal."""
        admission = await self.gate.admit("bench", event)
        if admission.verdict not in (Verdict.RUN, Verdict.REPLAY):
            raise RuntimeError(f"{admission.verdict.name}")
        return admission.value

    def rows(self, key):
        """Counts on the ledger's own database."""
        session = self.gate.engine.store.connect()
        try:
            with session.unit():
                return session.execute("SELECT count(*) FROM booking WHERE ref = ?", (key,))[0][0]
        finally:
            session.close()


if __name__ == "__main__":
    stand.serve(Oncegate)
