"""The night the clock went back: 312 home-care routes that became 624, and stay 312 behind the gate.

In the night of 26 October 2025 a provider re-fires an event 27 minutes later. By the local clock that is 33
minutes *earlier*, so a window of one hour lets it through; 18 follow-ups come again outside the window,
under new ids, without an id, or with a time that has no offset. The arrivals: fixtures/clock-change.jsonl.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from lab.incidents.incident import Incident, Numbers, Place, known, once_each, tally_done
from oncegate.clock import from_wall_ms
from oncegate.gate.admission import Admission, Verdict
from oncegate.gate.facade import GateOnStore
from oncegate.maintenance.content_scan import ContentScan
from oncegate.model.content import Content
from oncegate.recorder.planning import make_plan
from oncegate.recorder.reading import began_ms
from oncegate.testing import ManualClock
from oncegate.wiring import open_store

ROUTES: Final = 312
WINDOW: Final = timedelta(hours=1)
SURFACE: Final = "care.plans"
CLOCK_GOES_BACK: Final = datetime(2025, 10, 26, 1, tzinfo=UTC)
TABLE: Final = (
    "CREATE TABLE route (id TEXT NOT NULL, plan TEXT NOT NULL)"  # not unique: a double would show
)
INSERT: Final = "INSERT INTO route (id, plan) VALUES (?, ?)"
CONTENT: Final = Content(
    ("week", "routes"), target="{region}:{plan}", compensation="withdraw plan {plan} in {region}"
)


class Recorded(msgspec.Struct, frozen=True):
    """One arrival: when it came, what clocks on the wall said, what it was, and the event itself."""

    arrived_at_ms: int
    local: datetime
    story: str
    event: dict[str, Any]


def arrivals() -> list[Recorded]:
    """Reads the recording."""
    incident = ClockChange()
    start = began_ms(incident.recording)
    return [
        Recorded(start + one.at_ms, _wall(start + one.at_ms), one.arrival.note or "", one.payload)
        for one in make_plan(incident.recording)
    ]


def _wall(at_ms: int) -> datetime:
    """What a clock on a wall in Amsterdam shows: two hours ahead of UTC, from that night on one."""
    moment = from_wall_ms(at_ms)
    return (moment + timedelta(hours=2 if moment < CLOCK_GOES_BACK else 1)).replace(tzinfo=None)


def as_it_was(recorded: Iterable[Recorded]) -> list[str]:
    """The routes made by the handler that stood there: seen within the last hour of local time, dropped."""
    routes: list[str] = []
    seen: dict[str | None, datetime] = {}
    for arrival in recorded:
        now = arrival.local  # no offset: that is the fault
        before = seen.get(arrival.event.get("event_id"))
        if before is not None and timedelta(0) <= now - before <= WINDOW:
            continue
        seen[arrival.event.get("event_id")] = now
        routes += arrival.event["routes"]
    return routes


def register(gate: GateOnStore) -> None:
    """The handler behind the gate: routes are written with the outcome, in one transaction."""

    @gate.handler(
        SURFACE, key="{event_id}", occurred_at="fired_at", retention="30d", lease="10m", content=CONTENT
    )
    def plan(event: Any, once: Any) -> Any:
        with once.commit(resource=event["plan"]) as tx:
            for route in event["routes"]:
                tx.execute(INSERT, (route, event["plan"]))
        return {"plan": event["plan"], "routes": len(event["routes"])}


def play(
    gate: GateOnStore, recorded: Iterable[Recorded], set_clock: Any
) -> Iterator[tuple[Recorded, Admission]]:
    """Lets each event arrive at its time; `set_clock` is told the milliseconds."""
    for arrival in recorded:
        set_clock(arrival.arrived_at_ms)
        yield arrival, gate.admit_sync(SURFACE, arrival.event)


def tally(answers: Iterable[tuple[Recorded, Admission]]) -> Counter[str]:
    """Counts verdicts; of quarantines, by the first word of their reasons."""
    counts: Counter[str] = Counter()
    for _, answer in answers:
        reason = (answer.reason or "").partition(":")[0]
        is_quarantined = answer.verdict is Verdict.QUARANTINE
        counts[f"quarantined: {reason}" if is_quarantined else answer.verdict.value] += 1
    return counts


class ClockChange(Incident):
    """The clock goes back an hour, and a window of one hour lets everything through.

    A provider re-fires an event 27 minutes later. By the clock on the wall that is 33 minutes earlier, so a
    handler that drops what it has seen within the last hour has not seen it. Eighteen further events
    compound it: some come again outside the window, some under new ids, some without an id or with a time
    that says no zone. By Wednesday 312 routes are 624. The gate's answer depends on no clock; what cannot
    be read or dated waits for a person, and the nightly scan finds what came under two ids.
    """

    name = "clock-change"

    def naive(self) -> dict[str, Callable[[Place], Numbers]]:
        """The handler that stood there."""
        return {"a window of local time": lambda place: _counted(as_it_was(arrivals()))}

    def gated(self, place: Place) -> Numbers:
        """Routes are written with the outcome; then the scan looks for what came under two ids."""
        clock = ManualClock(wall_ms=began_ms(self.recording))
        store = open_store(f"sqlite:///{place.folder}/ledger.db", clock=clock)
        with GateOnStore(store, clock=clock) as gate:
            register(gate)
            session = store.connect()
            with session.unit():
                session.execute(TABLE, ())
            answers = list(play(gate, arrivals(), _setter(clock)))
            pairs = len(ContentScan(store, clock).run_once().pairs)
            with session.unit():
                routes = [str(row[0]) for row in session.execute("SELECT id FROM route", ())]
            session.close()
        waiting = sum(answer.verdict is Verdict.QUARANTINE for _, answer in answers)
        return _counted(routes, waiting, pairs)

    def wrong(self, numbers: Numbers) -> list[str]:
        """Each route once."""
        return once_each(numbers, "routes planned", ROUTES)


def _counted(made: list[str], waiting: int | None = None, pairs: int | None = None) -> Numbers:
    recorded = arrivals()
    wanted = {route for one in recorded for route in one.event["routes"]}
    return known(
        {
            "arrivals": len(recorded),
            "routes": len(wanted),
            "routes planned": len(made),
            **tally_done(made, wanted),
            "left to a person": waiting,
            "same content under two ids, by the scan": pairs,
        }
    )


def _setter(clock: ManualClock) -> Callable[[int], None]:
    def set_clock(at_ms: int) -> None:
        clock.advance((max(0, at_ms - clock.wall_ms()) + 0.5) / 1000)

    return set_clock
