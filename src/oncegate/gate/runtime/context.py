"""What flows need from the gate they belong to, and nothing more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from oncegate.clock import Clock
from oncegate.commit.group_commit import GroupCommit
from oncegate.crashpoints import CrashPoints
from oncegate.gate.runtime.ambient import AmbientTransactions
from oncegate.gate.runtime.arrival_stats import Sightings
from oncegate.gate.runtime.cache import OutcomeCache
from oncegate.gate.runtime.circuits import Circuits
from oncegate.gate.runtime.claim import Claim
from oncegate.gate.runtime.decided import DecidedSurfaces
from oncegate.gate.runtime.leases import LeaseKeeper
from oncegate.gate.runtime.recent import Recent
from oncegate.gate.runtime.volatile_fields import VolatileFields
from oncegate.gate.surface import Downstream
from oncegate.model.backlog import Backlog
from oncegate.model.identity import KeyPlan
from oncegate.model.parking import Parking
from oncegate.model.states import State
from oncegate.model.surface import Arrival, SurfaceRule
from oncegate.store import Facet, require_transactions


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
    circuits: Circuits
    decided: DecidedSurfaces
    ambient: AmbientTransactions | None = None
    downstreams: Mapping[str, Downstream] = field(default_factory=dict)  # all that the program declares
    has_review: bool = field(init=False)  # what the ledger has, read once (`store.Facet`)
    has_stats: bool = field(init=False)
    takes_writes: bool = field(init=False)
    keys_read: set[str] = field(default_factory=set)
    value_follows: dict[int, Claim] = field(default_factory=dict)  # by entry: committed, not yet returned
    bells: list[Callable[[], None]] = field(default_factory=list)
    backlog: Backlog = field(default_factory=Backlog)
    recent: Recent = field(default_factory=Recent)
    parking: Parking = field(default_factory=Parking)
    volatile: VolatileFields = field(default_factory=VolatileFields)
    plans: dict[str, KeyPlan] = field(
        default_factory=dict
    )  # by surface: how keys are made, see `identifying`

    def __post_init__(self) -> None:
        has = self.commits.store.capabilities
        self.has_review, self.has_stats = Facet.REVIEW in has.facets, Facet.STATS in has.facets
        self.takes_writes = has.business_writes

    def ends(self, state: State) -> bool:
        """Whether nothing leads on from a state: a person may let a failed event run again."""
        return state is State.COMMITTED or (state is State.FAILED and not self.has_review)


def author_of(gate: GateContext, rule: SurfaceRule, arrival: Arrival) -> str:
    """Who the log names as the author: as the caller says, else the surface, else the gate."""
    if arrival.actor is None and rule.actor is None:
        return gate.actor
    return arrival.actor or rule.author(arrival.tenant) or gate.actor


def check_takes_writes(gate: GateContext) -> None:
    """Raises ConfigError where the ledger commits no statements with a claim."""
    if not gate.takes_writes:
        require_transactions(gate.commits.store, "business writes, once.commit() blocks and tx=")
