"""What a store has and promises: facets, units, audit trail. Features ask here at their start."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from typing import Final, Protocol

from msgspec import Struct

from oncegate.errors import ConfigError
from oncegate.model.durations import format_duration

FULL_STORES: Final = "SQLite or PostgreSQL"  # the stores that have every facet
OPEN_STORES: Final = "SQLite, PostgreSQL, Redis or DynamoDB"  # those that have open entries


class Facet(Enum):
    """A part of the contract that a store has as a whole, or not at all.

    Every store has CLAIMS. A store that has LANES, FEED or STATS has REVIEW too: they write to the log and
    keep documents. REVIEW goes with OPEN_ENTRIES: what is not final can be listed, decided about and
    recovered.
    """

    CLAIMS = "claims"
    OPEN_ENTRIES = "open entries"
    LANES = "lanes"
    FEED = "feed"
    REVIEW = "review"
    STATS = "stats"


ALL_FACETS: Final = frozenset(Facet)
_MARKS: Final = {  # a call that only sessions with the facet have
    Facet.CLAIMS: "reserve",
    Facet.OPEN_ENTRIES: "stranded",
    Facet.REVIEW: "open_pairs",
    Facet.LANES: "lanes",
    Facet.FEED: "publish",
    Facet.STATS: "repeats",
}
_WITHOUT_REVIEW: Final = frozenset({Facet.CLAIMS, Facet.OPEN_ENTRIES})


class Units(Enum):
    """What `ClaimSession.unit` holds together."""

    INTERACTIVE = "interactive"  # any number of calls, all or nothing
    PER_CALL = "per call"  # nothing: each item of each call is atomic and commits by itself


class AuditTrail(Enum):
    """What the store records of a claim besides its present state."""

    NONE = "none"
    PER_ENTRY = "per entry"  # `EntryDetail.records`, gone with the entry
    LOG = "log"  # besides, all records in commit order (`Log.read_log`)


class Durability(Enum):
    """What survives when a record has been acknowledged."""

    POWER_LOSS = "survives power loss"
    PROCESS_CRASH = "survives a crash of the process, not of the machine"
    MEMORY = "lost with the process"


class Capabilities(Struct, frozen=True):
    """What a store does and promises.

    `one_writer`: only one transaction can write at a time. `is_local`: a commit is a write to a local disk,
    short enough to be made in an event loop. `gives_way`: its sessions may be used on a strand, see
    `oncegate.commit.greenlet_bridge`. `business_writes`: `writes` of a settlement commit with it.
    `keeps_bodies`: the event itself is kept at least until its entry is final, so that an acknowledged
    event can be run again from the ledger. `forgets_on_failover`: acknowledged records may be lost when a
    replica takes over.
    `transact_items`: users' own items of the same service commit with a claim (`once.commit(transact=)`).
    `retention_max`: the longest retention that a surface may have; None where there is no limit.
    """

    name: str
    durability: Durability
    writers_max: int
    audit_trail: AuditTrail
    business_writes: bool
    one_writer: bool = True
    is_local: bool = True
    gives_way: bool = False
    facets: frozenset[Facet] = frozenset({Facet.CLAIMS})
    units: Units = Units.INTERACTIVE
    keeps_bodies: bool = True
    forgets_on_failover: bool = False
    retention_max: timedelta | None = None
    transact_items: bool = False

    def __post_init__(self) -> None:
        if Facet.CLAIMS not in self.facets:
            raise ConfigError(f"the store {self.name} declares no claims; every store has them")
        if Facet.REVIEW in self.facets and Facet.OPEN_ENTRIES not in self.facets:
            raise ConfigError(f"the store {self.name} declares review, which needs open entries")
        if self.facets - _WITHOUT_REVIEW and Facet.REVIEW not in self.facets:
            raise ConfigError(f"the store {self.name} declares {self.has}, which need review")
        if self.units is Units.PER_CALL and (self.one_writer or self.business_writes):
            raise ConfigError(
                f"the store {self.name} declares units per call: it has no transaction that could be the"
                " only writer or hold business writes"
            )

    @property
    def has(self) -> str:
        """Its facets in words."""
        return ", ".join(facet.value for facet in Facet if facet in self.facets)


class HasCapabilities(Protocol):
    """What of a store is needed here."""

    @property
    def capabilities(self) -> Capabilities:
        """What the store does and promises."""


def offers(session: object, facet: Facet) -> bool:
    """Whether a session has a facet: the calls of one that its store does not declare do not exist."""
    return hasattr(session, _MARKS[facet])


def require(store: HasCapabilities, facet: Facet, feature: str) -> None:
    """Raises ConfigError unless the store has a facet; `feature` names in the plural what needs it."""
    capabilities = store.capabilities
    if facet not in capabilities.facets:
        raise ConfigError(
            f"no {facet.value} in this ledger ({capabilities.name}: {capabilities.has} only):"
            f" {feature} need {OPEN_STORES if facet is Facet.OPEN_ENTRIES else FULL_STORES}"
            f"{' in one database' if capabilities.name == 'shards' else ''}"
        )


def require_transactions(store: HasCapabilities, feature: str) -> None:
    """Raises ConfigError unless the store commits users' statements with a claim."""
    capabilities = store.capabilities
    if not capabilities.business_writes:
        raise ConfigError(
            f"this ledger ({capabilities.name}) commits no statements with a claim:"
            f" {feature} need {FULL_STORES}"
        )


def require_retention(store: HasCapabilities, retention: timedelta, feature: str) -> None:
    """Raises ConfigError where the store keeps keys for a shorter time than a feature needs."""
    capabilities = store.capabilities
    longest = capabilities.retention_max
    if longest is not None and retention > longest:
        limit = format_duration(longest)
        raise ConfigError(
            f"{feature}: retention {format_duration(retention)} is too long for this ledger"
            f" ({capabilities.name}: {limit} at most); give retention='{limit}' and"
            f" retention_floor='{limit}', use {FULL_STORES}, or add long_retention=1 to its address"
        )
