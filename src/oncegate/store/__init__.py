"""The store contract: what a ledger must do, in small protocols, and the values that cross it.

A store is written once, blocking and set-based, and knows nothing of tasks, threads or batching: the
group commit (`commit/group_commit.py`) calls it from one thread at a time per session and does the rest.

    Store     one ledger: opens sessions, migrates, checks durability
    Session   one connection; `unit()` is one durable commit

The contract has six facets. A store declares those it has (`Capabilities.facets`) and implements each of
them whole. Claims are the least: a store with claims only is a `ClaimStore` with a `ClaimSession`.

    facet   protocols                                           what needs it
    ------  --------------------------------------------------  -----------------------------------------
    (all)   ClaimSession: unit, now_ticks, settle_doubt, close  every gate
    claims  Claims                                              every gate
    lanes   Lanes, LaneDesk, Replays, Attempts, Positions       sender, mode="accept", ordered receivers
    feed    FeedFacet                                           feed and its pruner
    open    Census, People                                      decisions, approvals, recovery
    review  Log, Sealing, Registry, Pruning, Contents,          page, service, pruning, changes of key
            Resources, Mutations, Browsing; Census of all       templates, sealing, failed entries that
            entries                                             run again
    stats   Tallies, SeenByAll, Notices, Traces                 signals, repeat classes, traces

Lanes, feed and stats stand on review. `InteractiveUnits` (business writes, joined transactions) is no
facet: a store has it where `Capabilities.units` is INTERACTIVE. A feature that needs a facet calls
`require(store, Facet.X, "its name")` at its start, and nowhere later.

A gate on a store without review refuses other content under a known key and does not keep it. It does not
compare key templates with the ledger. Without open entries it refuses events that would wait for a person
on arrival, a crash is recovered when its event is delivered again, and an outcome that is unknown stays
unknown. Without stats, nothing is counted in the ledger; the counters of the process go on.

Three results. A call returns (done), raises StoreUnavailable or StoreRejected (not done: nothing was
changed), or raises StoreUnknown (it may have taken effect). After StoreUnknown the group commit opens a
new session and reads back each operation by its own token; no effect starts before that is answered.

Time. `Session.now_ticks()` is the ledger's own time in milliseconds: it does not follow wall-clock steps
and never runs backwards, except that a restart of the machine may take it back to the latest recorded
lease. Leases are kept in it. Wall times (`*_at_ms`) are for people.

`oncegate.testing.conformance` checks all of this on any store, with one class a facet.
"""

from __future__ import annotations

from oncegate.store.attempts import Attempt, Attempts
from oncegate.store.browsing import Browsing, Note
from oncegate.store.census import Census, EntryFilter
from oncegate.store.claims import (
    TRANSACT_ITEM,
    Attachment,
    ClaimId,
    Claims,
    Entry,
    EntryDetail,
    Renewal,
    Reservation,
    Reserved,
    Settlement,
    Statement,
    StepRecord,
    StepRecords,
    StepState,
)
from oncegate.store.contents import (
    ContentPage,
    Contents,
    Dismissal,
    Doubled,
    Duplicate,
    Flag,
    Flagged,
    Pair,
    Unscanned,
)
from oncegate.store.facets import (
    ALL_FACETS,
    AuditTrail,
    Capabilities,
    Durability,
    Facet,
    Units,
    offers,
    require,
    require_retention,
    require_transactions,
)
from oncegate.store.lane_desk import (
    DeadLetter,
    DeliveryView,
    DestinationView,
    HeadAnswer,
    HeadOrder,
    LaneDesk,
    LaneFilter,
    LaneName,
    LanePruned,
    LanePruning,
    LaneView,
    Replaying,
    ReplayWanted,
    Steering,
    replay_name,
)
from oncegate.store.lanes import (
    MAYBE_MORE_MS,
    Acknowledgement,
    Advanced,
    Delivery,
    DestinationState,
    Failure,
    GivenUp,
    HeadHeld,
    Heads,
    HeadsWanted,
    Lanes,
    LaneState,
    Outgoing,
    Placed,
    Placing,
    Policy,
    Throttling,
)
from oncegate.store.ledger import (
    ClaimSession,
    ClaimStore,
    Finding,
    Joined,
    Migration,
    Session,
    Store,
    ledgers_of,
)
from oncegate.store.log import CLAIM_KINDS, ClaimNote, Log, LogKind, LogRecord, read_claim_note
from oncegate.store.mutations import NOTE_MUTATION, Mutated, Mutations
from oncegate.store.notices import Notice, Notices, Posting
from oncegate.store.people import People, Ruling, RulingAnswer
from oncegate.store.positions import Positions, move_of
from oncegate.store.pruning import EVERY_TENANT, Due, Forgetting, Pruning, Tenants, UnusedNames
from oncegate.store.registry import Document, DocumentChange, Registry
from oncegate.store.replays import ReplayFilter, ReplayOrder, Replays, ReplayState
from oncegate.store.resources import (
    LateResource,
    ResourceDismissal,
    Resources,
    ResourceSeen,
    SecondCount,
    SecondResource,
)
from oncegate.store.sealing import EntryBodies, Erasure, Sealing
from oncegate.store.seen import Before, Met, Seen, SeenByAll, SeenContent, SeenRepeat
from oncegate.store.tallies import Observations, Repeat, Tallies, Tally, Waiting, What
from oncegate.store.traces import TracedDelivery, TracedPublication, TraceLink, Traces

__all__ = [
    "ALL_FACETS",
    "CLAIM_KINDS",
    "EVERY_TENANT",
    "MAYBE_MORE_MS",
    "NOTE_MUTATION",
    "TRANSACT_ITEM",
    "Acknowledgement",
    "Advanced",
    "Attachment",
    "Attempt",
    "Attempts",
    "AuditTrail",
    "Before",
    "Browsing",
    "Capabilities",
    "Census",
    "ClaimId",
    "ClaimNote",
    "ClaimSession",
    "ClaimStore",
    "Claims",
    "ContentPage",
    "Contents",
    "DeadLetter",
    "Delivery",
    "DeliveryView",
    "DestinationState",
    "DestinationView",
    "Dismissal",
    "Document",
    "DocumentChange",
    "Doubled",
    "Due",
    "Duplicate",
    "Durability",
    "Entry",
    "EntryBodies",
    "EntryDetail",
    "EntryFilter",
    "Erasure",
    "Facet",
    "Failure",
    "Finding",
    "Flag",
    "Flagged",
    "Forgetting",
    "GivenUp",
    "HeadAnswer",
    "HeadHeld",
    "HeadOrder",
    "Heads",
    "HeadsWanted",
    "Joined",
    "LaneDesk",
    "LaneFilter",
    "LaneName",
    "LanePruned",
    "LanePruning",
    "LaneState",
    "LaneView",
    "Lanes",
    "LateResource",
    "Log",
    "LogKind",
    "LogRecord",
    "Met",
    "Migration",
    "Mutated",
    "Mutations",
    "Note",
    "Notice",
    "Notices",
    "Observations",
    "Outgoing",
    "Pair",
    "People",
    "Placed",
    "Placing",
    "Policy",
    "Positions",
    "Posting",
    "Pruning",
    "Registry",
    "Renewal",
    "Repeat",
    "ReplayFilter",
    "ReplayOrder",
    "ReplayState",
    "ReplayWanted",
    "Replaying",
    "Replays",
    "Reservation",
    "Reserved",
    "ResourceDismissal",
    "ResourceSeen",
    "Resources",
    "Ruling",
    "RulingAnswer",
    "Sealing",
    "SecondCount",
    "SecondResource",
    "Seen",
    "SeenByAll",
    "SeenContent",
    "SeenRepeat",
    "Session",
    "Settlement",
    "Statement",
    "Steering",
    "StepRecord",
    "StepRecords",
    "StepState",
    "Store",
    "Tallies",
    "Tally",
    "Tenants",
    "Throttling",
    "TraceLink",
    "TracedDelivery",
    "TracedPublication",
    "Traces",
    "Units",
    "Unscanned",
    "UnusedNames",
    "Waiting",
    "What",
    "ledgers_of",
    "move_of",
    "offers",
    "read_claim_note",
    "replay_name",
    "require",
    "require_retention",
    "require_transactions",
]
