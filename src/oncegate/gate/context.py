"""What flows need from the gate they belong to, and nothing more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from oncegate.clock import Clock
from oncegate.crashpoints import CrashPoints
from oncegate.gate.cache import OutcomeCache
from oncegate.gate.claim import Claim
from oncegate.gate.leases import LeaseKeeper
from oncegate.gate.sightings import Sightings
from oncegate.groupcommit import GroupCommit
from oncegate.model.backlog import Backlog


@dataclass(slots=True)
class GateContext:
    """Clock, crash points, randomness, the ledger and the memory of one gate."""

    clock: Clock
    crashpoints: CrashPoints
    commits: GroupCommit
    cache: OutcomeCache
    leases: LeaseKeeper
    sightings: Sightings
    new_token: Callable[[], int]
    actor: str
    keys_read: set[str] = field(default_factory=set)
    value_follows: dict[int, Claim] = field(default_factory=dict)  # by entry: committed, not yet returned
    bells: list[Callable[[], None]] = field(default_factory=list)
    backlog: Backlog = field(default_factory=Backlog)
