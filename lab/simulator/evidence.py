"""What the checkers judge by: what downstreams, ledger and queue really did, noted as it happens.

Written by the simulated world, never by the gate: a broken gate cannot make its own evidence.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec import Struct

from lab.simulator.schedule import Fate
from oncegate.gate.admission import Admission
from oncegate.testing.simulation.ledger import Row, Tables

began_at: ContextVar[float] = ContextVar("oncegate_began_at", default=0.0)


class Intent(NamedTuple):
    """What one event means: who wants what. Two deliveries of an event are one intent."""

    surface: str
    tenant: str
    ident: tuple[str, str]


class Call(Struct, frozen=True):
    """A request that left for a downstream, and what the ledger held of the event at that moment."""

    at: float
    service: str
    intent: Intent
    worker: str
    was_reserved: bool


class Effect(Struct, frozen=True):
    """Something that happened at a downstream."""

    at: float
    service: str
    intent: Intent
    amount: int
    resource: str


class Start(Struct, frozen=True):
    """A handler that began to run; `since` is when its worker took the event up, before reserving it."""

    since: float
    intent: Intent
    amount: int
    attempt: int


class Ack(Struct, frozen=True):
    """A delivery that was acknowledged: with which answer, and what the ledger held by then."""

    at: float
    delivery: int
    intent: Intent
    amount: int
    admission: Admission | None
    was_recorded: bool


class Change(Struct, frozen=True):
    """A committed change of an entry; `true_ms` is virtual time, which no clock step touches."""

    at: float
    true_ms: int
    before: Row | None
    after: Row | None


class Write(Struct, frozen=True):
    """A write for a claim: what it showed, what it met, what it left, what it was told."""

    at: float
    call: str
    claim: tuple[int, int]  # fence and token
    before: Row | None
    after: Row | None
    answer: bool


@dataclass(slots=True)
class Evidence:
    """Everything noted in one run."""

    calls: list[Call] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    acks: list[Ack] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    unsettled: list[str] = field(default_factory=list)
    intents: dict[int, Intent] = field(default_factory=dict)
    fates: dict[Intent | None, Fate] = field(default_factory=dict)
    tables: Tables = field(default_factory=Tables)
    knowers: dict[Intent, set[str]] = field(default_factory=dict)  # workers that began its handler
    alive: set[str] = field(default_factory=set)  # workers that never died
    lost: dict[Intent, set[str]] = field(default_factory=dict)  # by a failover, in part; who knew then
    is_faultless: bool = False  # nothing goes wrong but what handlers do
