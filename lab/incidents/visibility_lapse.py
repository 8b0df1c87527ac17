"""A message that becomes visible again while it is still being worked on, and once more under a new id."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from lab.incidents.incident import Incident, Numbers, Place, known, once_each, tally_done
from lab.incidents.stage import Stage
from oncegate import Gate, Verdict
from oncegate.commit.group_commit import GroupCommit
from oncegate.gate.runtime.leases import LeaseKeeper
from oncegate.recorder.planning import Planned, make_plan
from oncegate.recorder.reading import began_ms
from oncegate.testing import ManualClock
from oncegate.wiring import open_store

SURFACE: Final = "invoices"
RENDER_SECONDS: Final = 45.0


class VisibilityLapse(Incident):
    """A queue shows a message again before its consumer is done, and mails the invoice twice.

    A message is hidden for thirty seconds once it was received; drawing and mailing an invoice takes
    forty-five when the printer is slow. So a second consumer gets it while the first still works, and the
    memory of message ids, written at the end, does not help. Hours later two messages are redriven from the
    dead letters: the same invoices under new message ids. The gate's key is the invoice, its lease is
    renewed while the handler works, and a mail that cannot be recalled is never sent on a guess.
    """

    name = "visibility-lapse"

    def naive(self) -> dict[str, Callable[[Place], Numbers]]:
        """Remembers message ids when it is done."""
        return {"message ids remembered": lambda place: asyncio.run(self._by_message_id())}

    async def _by_message_id(self) -> Numbers:
        stage, mailed, done = Stage(self._clock()), list[str](), set[str]()

        async def deliver(one: Planned) -> str:
            message = one.payload["sqs"]["message_id"]
            if message in done:
                return "known"
            await stage.takes(RENDER_SECONDS)
            mailed.append(one.payload["invoice"])
            done.add(message)
            return "mailed"

        await stage.play(make_plan(self.recording), deliver)
        return self._counted(mailed)

    def gated(self, place: Place) -> Numbers:
        """The key is the invoice; what the queue adds is not part of the event."""
        return asyncio.run(self._behind_the_gate(place))

    async def _behind_the_gate(self, place: Place) -> Numbers:
        clock, mailed = self._clock(), list[str]()
        commits = GroupCommit(open_store(f"sqlite:///{place.folder}/ledger.db", clock=clock), clock=clock)
        keeper = LeaseKeeper(commits, clock)
        stage = Stage(clock, keeper.renew_due)

        async def send(invoice: str) -> None:
            await stage.takes(RENDER_SECONDS)
            mailed.append(invoice)

        with Gate(store=commits.store, clock=clock, commits=commits, leases=keeper) as gate:
            mail = gate.downstream("mail")  # can neither recognise a key nor be asked

            @gate.handler(SURFACE, key="{invoice}", ignore=["sqs"], lease="20s")
            async def invoice(event: Any, once: Any) -> None:
                await once.effect(mail, send, event["invoice"])

            async def deliver(one: Planned) -> Verdict:
                return (await gate.admit(SURFACE, one.payload)).verdict

            answers = await stage.play(make_plan(self.recording), deliver)
        return self._counted(mailed, answers.count(Verdict.BUSY), answers.count(Verdict.REPLAY))

    def _clock(self) -> ManualClock:
        return ManualClock(wall_ms=began_ms(self.recording))

    def _counted(self, mailed: list[str], busy: int | None = None, replays: int | None = None) -> Numbers:
        wanted = {one.payload["invoice"] for one in make_plan(self.recording)}
        return known(
            {
                "arrivals": len(self.recording.arrivals),
                "invoices": len(wanted),
                "invoices mailed": len(mailed),
                **tally_done(mailed, wanted),
                "left in the queue: still being worked on": busy,
                "acknowledged as known": replays,
            }
        )

    def wrong(self, numbers: Numbers) -> list[str]:
        """One mail an invoice."""
        return once_each(numbers, "invoices mailed", numbers["invoices"])
