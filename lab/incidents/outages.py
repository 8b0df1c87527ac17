"""Outages: something is down for seconds, minutes or an hour, and mends itself; no person has to be asked.

Each is played on both ledgers in virtual time. Events come again from their senders, as brokers and
providers do, and a worker runs beside them.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar, Final

from lab.incidents.incident import Incident, Numbers, Place, once_each, tally_done
from oncegate import Gate, StoreError, Verdict
from oncegate.maintenance.accepted_events import AcceptedWork
from oncegate.maintenance.reconciler import Reconciler
from oncegate.model.states import State
from oncegate.recorder.planning import make_plan
from oncegate.recorder.reading import began_ms
from oncegate.testing import ManualClock
from oncegate.testing.faults import Faults, faulty
from oncegate.wiring import open_store

SURFACE: Final = "orders"
COUNTED_MAX: Final = 8
ASKED: Final = "left to a person"
DIFFERENT: Final = "orders that ended differently on PostgreSQL"

Send = Callable[[Any], bool]


class Unwell(Exception):
    """What a client raises for a 503."""

    status = 503


class Outage(Incident):
    """Something is down for a while."""

    needs_postgres = True
    lasts_seconds: ClassVar[int]
    step_seconds: ClassVar[int] = 10  # so often senders bring what was not taken, and a worker comes

    @abstractmethod
    def is_down(self, second: float) -> bool:
        """Whether it is down at this moment of the story."""

    def failure(self) -> Exception:
        """What a call meets while it is down."""
        return ConnectionRefusedError(111, "Connection refused")

    def naive(self) -> dict[str, Callable[[Place], Numbers]]:
        """Counts attempts, and asks a person when they are used up."""
        return {"eight attempts, then a person": lambda place: self._counting()}

    def _counting(self) -> Numbers:
        clock, tries = self._clock(), Counter[str]()
        world = _World(self, clock)
        asked: set[str] = set()

        def send(event: Any) -> bool:
            while event["order"] not in asked:
                tries[event["order"]] += 1
                with contextlib.suppress(Exception):
                    world.act(event["order"], event["order"])
                    return True
                if tries[event["order"]] >= COUNTED_MAX:
                    asked.add(event["order"])
            return True  # the sender hears that it is on record, and is content

        self._played(clock, send, lambda: None)
        return self._counted(world, len(asked))

    def gated(self, place: Place) -> Numbers:
        """Plays it on the embedded ledger and on PostgreSQL."""
        assert place.new_server is not None
        world, asked = self._guarded(f"sqlite:///{place.folder}/ledger.db")
        with place.new_server() as server:
            other, also_asked = self._guarded(server.new_database())
        different = set(world.done) ^ set(other.done)
        numbers = self._counted(world, max(asked, also_asked))
        return {**numbers, DIFFERENT: len(different) + len(other.done) - len(set(other.done))}

    def _guarded(self, url: str) -> tuple[_World, int]:
        clock = self._clock()
        world = _World(self, clock)
        with self.open(url, world) as gate:
            beside = self.prepare(gate, world)
            self._played(clock, lambda event: self.send(gate, event), beside)
            asked = _waiting(gate)
        return world, asked

    def open(self, url: str, world: _World) -> Gate:
        """The gate on its ledger."""
        return Gate(url, clock=world.clock)

    def prepare(self, gate: Gate, world: _World) -> Callable[[], object]:
        """Registers the handler; returns what runs beside the arrivals."""
        bank = gate.downstream("bank", honours_key="24h")

        @gate.handler(SURFACE, key="{order}")
        def order(event: Any, once: Any) -> Any:
            return once.effect(bank, world.act, event["order"])

        return Reconciler(gate).run_once

    def send(self, gate: Gate, event: Any) -> bool:
        """Delivers once; whether the sender is content."""
        try:
            return gate.admit_sync(SURFACE, event).verdict is not Verdict.BUSY
        except Exception:  # noqa: BLE001  whatever it is, the sender hears 503 and comes again
            return False

    def _played(
        self, clock: ManualClock, send: Callable[[Any], bool], beside: Callable[[], object]
    ) -> None:
        coming = [(one.at_ms, one.payload) for one in make_plan(self.recording)]
        open_events: list[Any] = []
        for second in range(0, self.lasts_seconds, self.step_seconds):
            while coming and coming[0][0] <= second * 1000:
                open_events.append(coming.pop(0)[1])
            open_events = [event for event in open_events if not send(event)]
            with contextlib.suppress(StoreError):  # a worker comes again
                beside()
            clock.advance(self.step_seconds)

    def _clock(self) -> ManualClock:
        return ManualClock(wall_ms=began_ms(self.recording))

    def _counted(self, world: _World, asked: int) -> Numbers:
        wanted = {one.payload["order"] for one in make_plan(self.recording)}
        return {
            "orders": len(wanted),
            "orders done": len(world.done),
            **tally_done(world.done, wanted),
            ASKED: asked,
            "calls while it was down": world.calls_in_vain,
        }

    def wrong(self, numbers: Numbers) -> list[str]:
        """Every order done once, no person asked, and the same on both ledgers."""
        found = once_each(numbers, "orders done", numbers["orders"])
        found += [
            f"{label} is {numbers[label]}, not 0" for label in (ASKED, DIFFERENT) if numbers.get(label)
        ]
        return found


class _World:
    """The downstream: down at times, and it does what it is asked once for each key."""

    def __init__(self, outage: Outage, clock: ManualClock) -> None:
        self._outage, self.clock, self._began_ms = outage, clock, clock.ticks_ms()
        self._keys: set[str] = set()
        self.done: list[str] = []
        self.calls_in_vain = 0

    @property
    def is_down(self) -> bool:
        """Whether it is down now."""
        return self._outage.is_down((self.clock.ticks_ms() - self._began_ms) / 1000)

    def act(self, what: str, idempotency_key: str = "") -> dict[str, str]:
        """Does it, if it is up."""
        if self.is_down:
            self.calls_in_vain += 1
            raise self._outage.failure()
        if idempotency_key not in self._keys:
            self._keys.add(idempotency_key)
            self.done.append(what)
        return {"id": f"done-{what}"}


def _waiting(gate: Gate) -> int:
    with gate.engine.store.look() as session:
        counts = session.counts()
    return sum(counts.get(state, 0) for state in (State.HELD, State.UNKNOWN, State.QUARANTINED))


class HalfAMinute(Outage):
    """A downstream is restarted, and thirty seconds leave a pile for people.

    The bank's proxy is restarted; connections are refused for thirty seconds. The consumer's queue delivers
    a failed message again at once: eight attempts are over in half a second, and every order of that half
    minute waits for a person, who finds a bank that is up. With the gate an order that fails has a time
    before which it is not tried again, a refused connection uses nothing up, and the bank is left alone as
    a whole until one call at a time has found it back.
    """

    name = "outage-half-a-minute"
    lasts_seconds = 180
    step_seconds = 5

    def is_down(self, second: float) -> bool:
        """From the twentieth second on."""
        return 20 <= second < 50


class HalfAnHour(Outage):
    """A downstream answers 503 for half an hour.

    A release of the bank goes wrong and is taken back after half an hour. It answers, with 503: the call
    may count, so it is made again by the schedule, 1, 2, 4 s and so on up to five minutes. After five
    orders in a row without an answer the bank rests as a whole. When it is back all orders are done, and
    no person was asked.
    """

    name = "outage-half-an-hour"
    lasts_seconds = 2700
    step_seconds = 30

    def is_down(self, second: float) -> bool:
        """From the first minute on."""
        return 60 <= second < 1860

    def failure(self) -> Exception:
        """It answers."""
        return Unwell("503 Service Unavailable")


class Flapping(Outage):
    """A downstream comes and goes.

    A load balancer has one good server of three and sends a third of the seconds to it: down for twenty
    seconds, up for ten, for ten minutes. What is tried in the wrong moment waits and is tried again.
    """

    name = "outage-flapping"
    lasts_seconds = 1200

    def is_down(self, second: float) -> bool:
        """Two thirds of the time."""
        return second < 600 and second % 30 < 20


class Accepting(Outage):
    """A downstream is down behind a surface that accepts first.

    Orders are accepted at once and run later, in order of their customers. The handler's downstream is down
    for ten minutes. Counted attempts were over within half a minute; the lane stood still behind an order
    that only a person could move on, long after the handler was back.
    """

    name = "outage-accepting"
    lasts_seconds = 1200

    def is_down(self, second: float) -> bool:
        """For ten minutes."""
        return 10 <= second < 610

    def prepare(self, gate: Gate, world: _World) -> Callable[[], object]:
        """Accepts; the work runs apart."""
        bank = gate.downstream("bank", honours_key="24h")

        @gate.handler(SURFACE, key="{order}", mode="accept", lane="{customer}")
        def order(event: Any, once: Any) -> Any:
            return once.effect(bank, world.act, event["order"])

        work = AcceptedWork(gate, jitter=lambda: 0.5)
        return lambda: asyncio.run(work.run_once())


class LedgerDown(Outage):
    """The ledger itself is down for five minutes.

    The database is failed over. Without a ledger nothing is called: senders hear 503 and come again, and
    what was done before is known afterwards. A consumer that goes on without its table of done work, or
    gives up after a count, does neither.
    """

    name = "outage-ledger"
    lasts_seconds = 900

    def is_down(self, second: float) -> bool:
        """The ledger, that is: nothing reaches the downstream meanwhile."""
        return 30 <= second < 330

    def open(self, url: str, world: _World) -> Gate:
        """A gate whose ledger cannot be reached while it is down."""
        faults = Faults()

        def tell(event: Any) -> None:
            faults.down = world.is_down

        self._before_each = tell
        return Gate(store=faulty(open_store(url, clock=world.clock), faults), clock=world.clock)

    def send(self, gate: Gate, event: Any) -> bool:
        """Delivers to a gate whose ledger may be away."""
        self._before_each(event)
        return super().send(gate, event)
