"""The endpoint that is down for an hour, while its keys keep their order."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from lab.incidents.incident import Incident, Numbers, Place, once_each, tally_done
from oncegate import Gate
from oncegate.commit.lane_operations import Enqueue
from oncegate.lanes import Delivered, Destination, Engine, Unreached
from oncegate.recorder.planning import make_plan
from oncegate.recorder.reading import began_ms
from oncegate.store import Delivery, LaneFilter, LaneState, Outgoing
from oncegate.testing import ManualClock

DOWN_SECONDS: Final = range(60, 3660)
LASTS_SECONDS: Final = 5400
STEP_SECONDS: Final = 10
COUNTED_MAX: Final = 12
OUT_OF_ORDER: Final = "delivered out of order"
BLOCKED: Final = "keys blocked"
DIFFERENT: Final = "deliveries that differ on PostgreSQL"


class EndpointDown(Incident):
    """A customer's endpoint is down for an hour.

    Its certificate has expired, and the team notices at ten. A sender that counts twelve attempts gives
    the first event of every key up after some minutes; the key is blocked, or goes on without it. Here an
    endpoint that is not reached uses no attempt up and rests as a whole: one delivery at a time tries, and
    soon after its return every key goes on where it stood.
    """

    name = "outage-endpoint"
    needs_postgres = True

    def naive(self) -> dict[str, Callable[[Place], Numbers]]:
        """Twelve attempts, then the next event of the key."""
        return {"twelve attempts, then on": lambda place: self._counting()}

    def _counting(self) -> Numbers:
        tries, got = Counter[str](), list[str]()
        waiting = [(one.at_ms, one.payload) for one in make_plan(self.recording)]
        for second in range(0, LASTS_SECONDS, STEP_SECONDS):
            for item in list(waiting):
                if item[0] > second * 1000:
                    continue
                tries[item[1]["id"]] += 1
                if second not in DOWN_SECONDS:
                    got.append(item[1]["id"])
                    waiting.remove(item)
                elif tries[item[1]["id"]] >= COUNTED_MAX:
                    waiting.remove(item)
        return self._counted(got, 0)

    def gated(self, place: Place) -> Numbers:
        """The production engine in virtual time, on the embedded ledger and on PostgreSQL."""
        assert place.new_server is not None
        got, blocked = self._guarded(f"sqlite:///{place.folder}/ledger.db")
        with place.new_server() as server:
            other, also_blocked = self._guarded(server.new_database())
        numbers = self._counted(got, max(blocked, also_blocked))
        wrong_there = self._counted(other, 0)[OUT_OF_ORDER]
        different = len(set(got) ^ set(other)) + len(other) - len(set(other)) + wrong_there
        return {**numbers, DIFFERENT: different}

    def _guarded(self, url: str) -> tuple[list[str], int]:
        """What was delivered, and how many keys are blocked at the end."""
        clock, got = ManualClock(wall_ms=began_ms(self.recording)), list[str]()
        began_ms_ticks = clock.ticks_ms()

        async def deliver(delivery: Delivery) -> Any:
            if (clock.ticks_ms() - began_ms_ticks) // 1000 in DOWN_SECONDS:
                return Unreached("no TLS: the certificate has expired")
            got.append(delivery.event_id)
            return Delivered("200")

        with Gate(url, clock=clock) as gate:
            engine = Engine(
                gate.engine.commits, [Destination("customer", deliver)], clock=clock, jitter=lambda: 0.5
            )
            waiting = [(one.at_ms, one.payload) for one in make_plan(self.recording)]
            for second in range(0, LASTS_SECONDS, STEP_SECONDS):
                while waiting and waiting[0][0] <= second * 1000:
                    _enqueue(gate, clock, waiting.pop(0)[1])
                asyncio.run(engine.run_once())
                clock.advance(STEP_SECONDS)
            with gate.engine.store.look() as session:
                blocked = session.lanes(LaneFilter(None, None, None, (LaneState.BLOCKED,)), 0, 100)
        return got, len(blocked)

    def _counted(self, got: list[str], blocked: int) -> Numbers:
        events = [one.payload for one in make_plan(self.recording)]
        key_of = {event["id"]: event["key"] for event in events}
        order = [event["id"] for event in events]
        wrong = sum(
            [one for one in got if key_of[one] == key]
            != [one for one in order if key_of[one] == key and one in got]
            for key in set(key_of.values())
        )
        return {
            "events": len(events),
            "events delivered": len(got),
            **tally_done(got, set(key_of)),
            OUT_OF_ORDER: wrong,
            BLOCKED: blocked,
        }

    def wrong(self, numbers: Numbers) -> list[str]:
        """Each once, in order, no key left behind, and the same on both ledgers."""
        found = once_each(numbers, "events delivered", numbers["events"])
        labels = (OUT_OF_ORDER, BLOCKED, DIFFERENT)
        return found + [f"{label} is {numbers[label]}" for label in labels if numbers.get(label)]


def _enqueue(gate: Gate, clock: ManualClock, event: Any) -> None:
    name, key = event["id"], event["key"]
    body = f'{{"id":"{name}"}}'.encode()
    gate.engine.commits.submit(
        Enqueue(Outgoing("customer", "", key, name, "order", body, name.encode(), clock.wall_ms()))
    )
