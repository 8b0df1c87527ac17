"""The night the clock went back: 312 home-care routes that became 624, and stay 312 behind the gate.

In the night of 26 October 2025 a provider re-fires an event 27 minutes later. By the local clock that is 33
minutes *earlier*, so a window of one hour lets it through; 18 follow-ups come again outside the window,
under new ids, without an id, or with a time that has no offset. The arrivals are in homecare.jsonl.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from importlib import resources
from typing import Any, Final

import msgspec

from oncegate.gate.admission import Admission, Verdict
from oncegate.gate.gate import Gate
from oncegate.model.content import Content
from oncegate.model.timestamps import parse_timestamp

ROUTES: Final = 312
WINDOW: Final = timedelta(hours=1)
SURFACE: Final = "care.plans"
TABLE: Final = (
    "CREATE TABLE route (id TEXT NOT NULL, plan TEXT NOT NULL)"  # not unique: a double would show
)
INSERT: Final = "INSERT INTO route (id, plan) VALUES (?, ?)"
CONTENT: Final = Content(
    ("week", "routes"), target="{region}:{plan}", compensation="withdraw plan {plan} in {region}"
)


class Recorded(msgspec.Struct, frozen=True):
    """One arrival: when it came, what clocks on the wall said, what it was, and the event itself."""

    arrived_at: str
    local: str
    story: str
    event: dict[str, Any]

    @property
    def arrived_at_ms(self) -> int:
        """The arrival in milliseconds since 1970."""
        return int(parse_timestamp(self.arrived_at).timestamp() * 1000)


def arrivals() -> list[Recorded]:
    """Reads the recording."""
    text = resources.files("oncegate.chaos.incidents").joinpath("homecare.jsonl").read_bytes()
    return [msgspec.json.decode(line, type=Recorded) for line in text.splitlines()]


def as_it_was(recorded: Iterable[Recorded]) -> list[str]:
    """The routes made by the handler that stood there: seen within the last hour of local time, dropped."""
    routes: list[str] = []
    seen: dict[str | None, datetime] = {}
    for arrival in recorded:
        now = datetime.fromisoformat(arrival.local)  # no offset: that is the fault
        before = seen.get(arrival.event.get("event_id"))
        if before is not None and timedelta(0) <= now - before <= WINDOW:
            continue
        seen[arrival.event.get("event_id")] = now
        routes += arrival.event["routes"]
    return routes


def register(gate: Gate) -> None:
    """The handler behind the gate: routes are written with the outcome, in one transaction."""

    @gate.handler(
        SURFACE, key="{event_id}", occurred_at="fired_at", retention="30d", lease="10m", content=CONTENT
    )
    def plan(event: Any, once: Any) -> Any:
        with once.commit(resource=event["plan"]) as tx:
            for route in event["routes"]:
                tx.execute(INSERT, (route, event["plan"]))
        return {"plan": event["plan"], "routes": len(event["routes"])}


def play(gate: Gate, recorded: Iterable[Recorded], set_clock: Any) -> Iterator[tuple[Recorded, Admission]]:
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
