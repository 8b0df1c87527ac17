"""A schedule as a value: what is delivered when, and what goes wrong where."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

WORKERS: Final = 3


class Fate(Enum):
    """What a handler does with an event, whatever the faults do."""

    SUCCEEDS = "succeeds"
    FAILS_FOR_GOOD = "fails for good"
    FAILS_FIRST = "fails at its first attempt, after the effect"


class Event(Struct, frozen=True):
    """One event. `ident` is two fields of its key; `amount` is content that is not."""

    surface: str
    tenant: str
    ident: tuple[str, str]
    amount: int = 1
    fate: Fate = Fate.SUCCEEDS


class Delivery(Struct, frozen=True):
    """One arrival of an event; `changed` makes it a near-duplicate: same key, one field different."""

    at: float
    event: int
    worker: int = 0
    changed: bool = False


class FaultKind(Enum):
    """Everything that can go wrong. The values are shown in reports."""

    CRASH_AT_POINT = "worker crashes at a crash point"
    CRASH_AT_TIME = "worker crashes at a moment"
    STALL_AT_POINT = "worker stalls at a crash point"
    STALL_AT_TIME = "worker stalls at a moment"
    STORE_REQUEST_LOST = "request to the store lost"
    STORE_REPLY_LOST = "reply of the store lost"
    STORE_SLOW = "request to the store delayed"
    COMMIT_DONE_UNKNOWN = "commit done, its reply lost"
    COMMIT_UNDONE_UNKNOWN = "commit undone, its reply lost"
    STORE_DOWN = "store down"
    CALL_REQUEST_LOST = "request to a downstream lost"
    CALL_REPLY_LOST = "reply of a downstream lost"
    CALL_SLOW = "request to a downstream delayed"
    CALL_REFUSED = "downstream refuses"
    CLOCK_STEP = "wall clock steps"
    FAILOVER = "failover loses the last commits"


class Fault(Struct, frozen=True):
    """One thing that goes wrong.

    At a moment (`at`), or to whoever is the `nth` to reach a crash point (`name`), or with the `nth`
    batch, unit or call of the run. `seconds` is how long a stall or an outage lasts, how late a request
    comes, when a worker restarts, or how far a clock steps. A failover at a moment loses `nth` commits.
    """

    kind: FaultKind
    at: float = 0.0
    worker: int = 0
    nth: int = 1
    name: str = ""
    seconds: float = 0.0


class Schedule(Struct, frozen=True):
    """One run: everything that is not drawn from the seed."""

    seed: int
    events: tuple[Event, ...]
    deliveries: tuple[Delivery, ...]
    faults: tuple[Fault, ...] = ()

    def encode(self) -> str:
        """The schedule as one line."""
        return msgspec.json.encode(self).decode()

    @staticmethod
    def decode(line: str) -> Schedule:
        """The schedule from its line."""
        return msgspec.json.decode(line, type=Schedule)

    @property
    def items(self) -> tuple[Delivery | Fault, ...]:
        """Everything that the minimiser may leave out."""
        return (*self.deliveries, *self.faults)

    def keeping(self, items: tuple[Delivery | Fault, ...]) -> Schedule:
        """The same schedule with only these deliveries and faults."""
        return replace(
            self,
            deliveries=tuple(item for item in items if isinstance(item, Delivery)),
            faults=tuple(item for item in items if isinstance(item, Fault)),
        )


def describe(schedule: Schedule) -> list[str]:
    """The schedule for people, a line each."""
    return [_delivery(schedule, item) for item in schedule.deliveries] + [
        describe_fault(f) for f in schedule.faults
    ]


def _delivery(schedule: Schedule, item: Delivery) -> str:
    event = schedule.events[item.event]
    name = f"{event.surface} {event.tenant}/{event.ident[0]}:{event.ident[1]}"
    fate = "" if event.fate is Fate.SUCCEEDS else f", which {event.fate.value}"
    changed = " with another content" if item.changed else ""
    return f"at {item.at:g} s worker {item.worker} is given {name}{changed}{fate}"


def describe_fault(fault: Fault) -> str:
    """A fault for people."""
    parts: list[Any] = [fault.kind.value]
    if fault.name:
        parts.append(f"{fault.name}, number {fault.nth}")
    elif fault.kind is FaultKind.FAILOVER:
        parts.append(f"{fault.nth} of them at {fault.at:g} s")
    elif fault.at:
        parts.append(f"worker {fault.worker} at {fault.at:g} s")
    else:
        parts.append(f"number {fault.nth}")
    if fault.seconds:
        parts.append(f"{fault.seconds:g} s")
    return ": ".join([str(parts[0]), ", ".join(str(part) for part in parts[1:])])
