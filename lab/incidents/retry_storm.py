"""The retry storm: a slow answer, a provider that does not wait, and a check that comes too early."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from lab.incidents.incident import Incident, Numbers, Place, once_each, tally_done
from lab.incidents.stage import Stage
from oncegate import Gate, Verdict
from oncegate.recorder.planning import Planned, make_plan
from oncegate.recorder.reading import began_ms
from oncegate.testing import ManualClock

SURFACE: Final = "payments"
CHARGE_SECONDS: Final = 8.0


class RetryStorm(Incident):
    """A provider retries what it has no answer for, and every retry charges the card.

    Charging takes eight seconds that morning. The provider waits for three, then sends the payment again,
    and again, up to six times. The handler asks its table whether the payment was done, charges, and writes
    it down: a question in those eight seconds gets a no. The gate reserves the key before anything is
    called; a retry that comes meanwhile gets busy, one that comes later gets the answer.
    """

    name = "retry-storm"

    def naive(self) -> dict[str, Callable[[Place], Numbers]]:
        """Asks, charges, writes down."""
        return {"check, then act": lambda place: asyncio.run(self._unguarded())}

    async def _unguarded(self) -> Numbers:
        stage, charged, done = Stage(self._clock()), list[str](), set[str]()

        async def deliver(one: Planned) -> str:
            payment = one.payload["payment"]
            if payment in done:
                return "known"
            charged.append(payment)
            await stage.takes(CHARGE_SECONDS)
            done.add(payment)
            return "charged"

        answers = await stage.play(make_plan(self.recording), deliver)
        return self._counted(charged, answers.count("known"))

    def gated(self, place: Place) -> Numbers:
        """Reserves, charges with the key, commits."""
        return asyncio.run(self._behind_the_gate(place))

    async def _behind_the_gate(self, place: Place) -> Numbers:
        clock = self._clock()
        stage, charged = Stage(clock), list[str]()

        async def charge(payment: str, idempotency_key: str) -> dict[str, str]:
            charged.append(payment)
            await stage.takes(CHARGE_SECONDS)
            return {"id": f"charge-of-{payment}"}

        with Gate(f"sqlite:///{place.folder}/ledger.db", clock=clock) as gate:
            cards = gate.downstream("cards", honours_key="24h")

            @gate.handler(SURFACE, key="{payment}")
            async def pay(event: Any, once: Any) -> Any:
                return await once.effect(cards, charge, event["payment"])

            async def deliver(one: Planned) -> Verdict:
                return (await gate.admit(SURFACE, one.payload)).verdict

            answers = await stage.play(make_plan(self.recording), deliver)
        return self._counted(charged, answers.count(Verdict.REPLAY) + answers.count(Verdict.BUSY))

    def _clock(self) -> ManualClock:
        return ManualClock(wall_ms=began_ms(self.recording))

    def _counted(self, charged: list[str], known: int) -> Numbers:
        wanted = {one.payload["payment"] for one in make_plan(self.recording)}
        return {
            "arrivals": len(self.recording.arrivals),
            "payments": len(wanted),
            "cards charged": len(charged),
            **tally_done(charged, wanted),
            "repeats told that it is known or under way": known,
        }

    def wrong(self, numbers: Numbers) -> list[str]:
        """One charge a payment."""
        return once_each(numbers, "cards charged", numbers["payments"])
