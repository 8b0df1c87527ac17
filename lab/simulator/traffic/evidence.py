"""What is noted of a run of traffic, from outside the workers; the checkers judge it."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Sent:
    """A request that left for a receiver, and what the ledger held of its lane at that moment."""

    at: float
    key: str
    seq: int
    fence: int
    lane_fence: int
    is_leased: bool


@dataclass(frozen=True, slots=True)
class Arrived:
    """A request that reached its receiver, and how far the ledger says the lane was by then."""

    at: float
    key: str
    seq: int
    event_id: str
    head_seq: int


@dataclass(frozen=True, slots=True)
class Told:
    """What an operator was told about a click."""

    entry: int
    operator: str
    approves: bool
    answer: str  # done, refused or unknown


@dataclass(slots=True)
class Reading:
    """What a consumer of the feed has kept: the events it was given, in order, and its cursor."""

    cursor: str | None = None
    events: list[tuple[str, str, int]] = field(default_factory=list)


@dataclass(slots=True)
class TrafficEvidence:
    """Everything noted in one run."""

    database: sqlite3.Connection
    emitted: dict[str, str] = field(default_factory=dict)  # event id: key
    dead: set[str] = field(default_factory=set)  # those that are refused for ever
    published: dict[str, str] = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)
    arrived: list[Arrived] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    by_cursor: Reading = field(default_factory=Reading)
    by_ack: Reading = field(default_factory=Reading)
    unsettled: list[str] = field(default_factory=list)

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Asks the ledger itself."""
        return self.database.execute(sql, values).fetchall()
